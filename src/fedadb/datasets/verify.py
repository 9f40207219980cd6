"""Whether a dataset on disk is what its publisher gave out."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image

from fedadb.core.data import Splits
from fedadb.core.errors import BadInput, Fault
from fedadb.progress import Progress
from fedadb.datasets.source import Source, directory


class Origin(NamedTuple):
    """Where a fetched dataset came from."""

    urls: list[str]
    digest: str | None  # of an unpacked archive


class Finding(NamedTuple):
    what: str
    expected: str
    found: str
    right: bool | None  # None: there is nothing to compare with


def origin_file(source: Source) -> Path:
    return directory() / f".{source.place.name}.origin.json"


def origin(source: Source) -> Origin | None:
    """Where it came from; None if fedadb did not fetch it."""
    try:
        return Origin(**json.loads(origin_file(source).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def verify(name: str, source: Source, progress: Progress) -> list[Finding]:
    """Checksums, rows, classes and shapes, each as it should be and as it is."""
    findings = list(_checksums(source, progress))
    try:
        splits = source.load(name, progress)
    except BadInput as error:
        return [*findings, Finding("contents", "readable", str(error), right=False)]
    return [*findings, *_contents(source, splits)]


def require_images(source: Source, folder: Path) -> None:
    """For what has no checksum: it holds as many images as it should."""
    found = sum(1 for p in folder.rglob("*") if p.suffix.lower() in Image.registered_extensions())
    if found != sum(source.rows):
        raise Fault(f"{source.place.name} has {found} images where {sum(source.rows)} is right")


def tree_digest(folder: Path, progress: Progress) -> str:
    """One number for all files of a folder, their names and contents."""
    digest = hashlib.sha256()
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    with progress("checking files", len(files), "files") as advance:
        for path in files:
            digest.update(os.fsencode(path.relative_to(folder)))
            digest.update(f"\0{_digest(path, 'sha256')}\n".encode())
            advance(1)
    return digest.hexdigest()


def _checksums(source: Source, progress: Progress) -> Iterator[Finding]:
    if source.marker is None:
        for download in source.downloads:
            path = source.place / download.name if source.place.is_dir() else source.place
            if download.md5 and path.is_file():
                found = _digest(path, "md5")
                what = f"MD5 of {download.name}"
                yield Finding(what, download.md5, found, found == download.md5)
        return
    known = origin(source)
    if known is None or known.digest is None:
        yield Finding("checksum", "unknown: fedadb did not fetch it", "not compared", None)
        return
    found = tree_digest(source.place, progress)
    yield Finding("SHA-256 of all files", known.digest[:16], found[:16], found == known.digest)


def _contents(source: Source, splits: Splits) -> Iterator[Finding]:
    for part, examples, rows in (
        ("train", splits.train, source.rows[0]),
        ("test", splits.test, source.rows[1]),
    ):
        yield _finding(f"rows to {part}", rows, len(examples.y))
        yield _finding(f"shape to {part}", source.shape, tuple(examples.x.shape[1:]))
        held = len(torch.unique(examples.y))
        yield _finding(f"classes to {part}", source.classes, held)


def _finding(what: str, expected: object, found: object) -> Finding:
    return Finding(what, str(expected), str(found), expected == found)


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()
