"""Where datasets lie on disk, and where they come from."""

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests

from fedadb.core.data import Splits
from fedadb.core.errors import BadInput, Fault


@dataclass(frozen=True)
class Source:
    """A dataset in its official layout: a file, or a folder that comes as a .tar.gz."""

    classes: int
    path: str  # below the data directory
    url: str
    md5: str
    read: Callable[[Path], Splits]

    def here(self) -> bool:
        return (directory() / self.path).exists()

    def readable(self) -> bool:
        try:
            self.read(directory() / self.path)
        except BadInput:
            return False
        return True

    def load(self, name: str) -> Splits:
        if not self.here():
            raise BadInput(
                f"{name} is not on this machine: there is no {self.path} in {directory()}; "
                f"`fedadb data fetch {name}` brings it, or set FEDADB_DATA to where it lies"
            )
        return self.read(directory() / self.path)

    def fetch(self) -> Path:
        """Download, verify and unpack; what is not complete stays out of the way."""
        place = directory() / self.path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=directory()))
        except OSError as error:
            raise Fault(f"{directory()} cannot be written: {error.strerror}") from error
        try:
            file = Path(pooch.retrieve(self.url, f"md5:{self.md5}", path=partial))
            if self.url.endswith(".tar.gz"):
                with tarfile.open(file) as archive:
                    archive.extractall(partial, filter="data")
                file = partial / place.name
            if place.is_dir():  # a damaged one
                shutil.rmtree(place)
            file.replace(place)
        except (requests.RequestException, ValueError, tarfile.TarError, OSError) as error:
            raise Fault(f"{self.url} could not be fetched: {error}") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return place


def directory() -> Path:
    """FEDADB_DATA, or the user's cache directory."""
    return Path(os.environ.get("FEDADB_DATA") or pooch.os_cache("fedadb")).expanduser()
