"""How long work shows how far it is, wherever it is done."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Track(Protocol):
    """`with track("decoding", 1000, "images") as advance:`, and `advance(8)` as work gets done."""

    def __call__(
        self, what: str, total: int, unit: str
    ) -> AbstractContextManager[Callable[[int], None]]: ...


@contextmanager
def unseen(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Nobody is looking."""
    yield lambda done: None
