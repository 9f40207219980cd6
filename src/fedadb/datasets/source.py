"""The description of a dataset, and the directories that contain datasets."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedadb.core.data import Splits
from fedadb.core.errors import BadInput
from fedadb.progress import Progress
from fedadb.storage.cache import cache_directory


@dataclass(frozen=True)
class Download:
    """One file that a publisher offers."""

    name: str
    urls: tuple[str, ...]  # the official address, then mirrors
    md5: str | None  # None: the publisher states none
    size: int  # bytes, approximately


@dataclass(frozen=True)
class Source:
    """Describes a dataset: its contents, its publisher's files, and how to read them."""

    classes: int
    shape: tuple[int, int, int]  # channels × height × width
    rows: tuple[int, int]  # for training and for testing
    licence: str
    path: str  # of its file or folder in the data directory
    downloads: tuple[Download, ...]  # none: it comes with a package that fedadb depends on
    read: Callable[[Path, Progress], Splits]
    # For an archive: the name of a file or folder at the dataset's top level, and an upper bound
    # on the bytes it unpacks to.
    marker: str | None = None
    unpacked: int = 0

    @property
    def location(self) -> Path:
        return data_directory() / self.path

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(download.size for download in self.downloads)

    def present(self) -> bool:
        """Whether it can be loaded without a download."""
        return not self.downloads or self.location.exists()

    def load(self, name: str, progress: Progress) -> Splits:
        """Read the dataset; `name` is its name in the registry, for errors."""
        if not self.present():
            raise BadInput(
                f"{name} is not on this machine: {data_directory()} has no {self.path}; "
                f"download it with `fedadb data fetch {name}`, or set FEDADB_DATA to the directory "
                "that contains it"
            )
        try:
            return self.read(self.location, progress)
        except BadInput as error:
            raise BadInput(
                f"{error}; to download it again, delete {self.location} and run "
                f"`fedadb data fetch {name}`"
            ) from error


def data_directory() -> Path:
    """FEDADB_DATA, or the user's cache directory."""
    return Path(os.environ.get("FEDADB_DATA") or cache_directory()).expanduser()
