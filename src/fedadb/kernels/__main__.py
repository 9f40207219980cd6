"""Compiles the kernels ahead of their first use: `python -m fedadb.kernels`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedadb.kernels.library import KernelsUnavailable, build
from fedadb.kernels.selection import kernels_here


@contextmanager
def print_progress(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Print a line before the work."""
    print(f"{what} …", flush=True)
    yield lambda done: None


def main() -> None:
    """Compile the kernels, and print which ones are used; without a compiler, torch's are."""
    try:
        build(print_progress)
    except KernelsUnavailable as error:
        print(f"kernels: torch ({error})")
    else:
        print(f"kernels: {kernels_here()}")


if __name__ == "__main__":
    main()
