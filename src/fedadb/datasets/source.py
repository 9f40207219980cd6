"""What is known of a published dataset, and where it lies on disk."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pooch

from fedadb.core.data import Splits
from fedadb.core.errors import BadInput
from fedadb.progress import Progress


@dataclass(frozen=True)
class Download:
    """One file as its publisher serves it."""

    name: str
    urls: tuple[str, ...]  # the official address, then mirrors
    md5: str | None  # None: the publisher gives none
    size: int  # bytes, about


@dataclass(frozen=True)
class Source:
    """A dataset in its official layout below the data directory."""

    classes: int
    shape: tuple[int, int, int]  # channels × height × width
    rows: tuple[int, int]  # to train on, and to test on
    licence: str
    path: str  # a file, or a folder
    downloads: tuple[Download, ...]
    read: Callable[[Path, Progress], Splits]
    # For an archive: something that its dataset's folder holds, and an upper bound on its bytes.
    marker: str | None = None
    unpacked: int = 0

    @property
    def place(self) -> Path:
        return directory() / self.path

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(download.size for download in self.downloads)

    def here(self) -> bool:
        return self.place.exists()

    def load(self, name: str, progress: Progress) -> Splits:
        if not self.here():
            raise BadInput(
                f"{name} is not on this machine: there is no {self.path} in {directory()}; "
                f"`fedadb data fetch {name}` brings it, or set FEDADB_DATA to where it lies"
            )
        try:
            return self.read(self.place, progress)
        except BadInput as error:
            anew = f"delete {self.place} and `fedadb data fetch {name}`"
            raise BadInput(f"{error}; to get it anew, {anew}") from error


def directory() -> Path:
    """FEDADB_DATA, or the user's cache directory."""
    return Path(os.environ.get("FEDADB_DATA") or cache()).expanduser()


def cache() -> Path:
    """Where things go that can be made again."""
    return Path(pooch.os_cache("fedadb"))
