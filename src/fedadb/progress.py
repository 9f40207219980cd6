"""Progress reporting for long-running work."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Progress(Protocol):
    """Reports the progress of a piece of work.

    ```python
    with progress("decoding", 1000, "images") as advance:
        advance(8)  # eight more are done
    ```
    """

    def __call__(
        self, what: str, total: int, unit: str
    ) -> AbstractContextManager[Callable[[int], None]]: ...


@contextmanager
def no_progress(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Report nothing."""
    yield lambda done: None
