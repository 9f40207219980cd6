"""Compiles and loads the kernels ahead of their first use: `python -m fedadb.kernels`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedadb.kernels.library import KernelsUnavailable, build, library
from fedadb.kernels.selection import TORCH, expected_kernels


@contextmanager
def print_progress(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Print a line before the work."""
    print(f"{what} …", flush=True)
    yield lambda done: None


def main() -> None:
    """Compile and load the kernels, and print which ones are used; if that fails, torch's are."""
    try:
        build(print_progress)
        library()
    except KernelsUnavailable as error:
        print(f"kernels: {TORCH} ({error})")
    else:
        print(f"kernels: {expected_kernels()}")


if __name__ == "__main__":
    main()
