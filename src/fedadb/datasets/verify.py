"""Verifies that a dataset on disk is as published."""

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
from fedadb.datasets.source import Source, data_directory
from fedadb.progress import Progress


class Origin(NamedTuple):
    """Where a dataset was downloaded from."""

    urls: list[str]
    digest: str | None  # of all files of an unpacked archive


class Finding(NamedTuple):
    """One property of a dataset, as published and on disk."""

    what: str
    expected: str
    actual: str
    equal: bool | None  # None: nothing is known to compare with


def origin_file(source: Source) -> Path:
    return data_directory() / f".{source.location.name}.origin.json"


def read_origin(source: Source) -> Origin | None:
    """Where the dataset came from; None if fedadb did not download it."""
    try:
        return Origin(**json.loads(origin_file(source).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def verify(name: str, source: Source, progress: Progress) -> list[Finding]:
    """Compare checksums, rows, classes and shapes with those published."""
    compared = list(_compare_checksums(source, progress))
    try:
        splits = source.load(name, progress)
    except BadInput as error:
        return [*compared, Finding("contents", "readable", str(error), equal=False)]
    return [*compared, *_compare_contents(source, splits)]


def require_image_count(source: Source, folder: Path) -> None:
    """For a dataset without checksum: a Fault unless it has the published number of images."""
    count = sum(1 for p in folder.rglob("*") if p.suffix.lower() in Image.registered_extensions())
    if count != sum(source.rows):
        raise Fault(f"{source.location.name} has {count} images; it must have {sum(source.rows)}")


def digest_folder(folder: Path, progress: Progress) -> str:
    """SHA-256 of the names and contents of all files of a folder."""
    digest = hashlib.sha256()
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    with progress("checking files", len(files), "files") as advance:
        for path in files:
            digest.update(os.fsencode(path.relative_to(folder)))
            digest.update(f"\0{_digest_file(path, 'sha256')}\n".encode())
            advance(1)
    return digest.hexdigest()


def _compare_checksums(source: Source, progress: Progress) -> Iterator[Finding]:
    if source.marker is None:
        folder = source.location if source.location.is_dir() else source.location.parent
        for download in source.downloads:
            path = folder / download.name
            if download.md5 and path.is_file():
                actual = _digest_file(path, "md5")
                what = f"MD5 of {download.name}"
                yield Finding(what, download.md5, actual, actual == download.md5)
        return
    origin = read_origin(source)
    if origin is None or origin.digest is None:
        unknown = "unknown: not downloaded by fedadb"
        yield Finding("checksum", unknown, "not compared", None)
        return
    actual = digest_folder(source.location, progress)
    equal = actual == origin.digest
    yield Finding("SHA-256 of all files", origin.digest[:16], actual[:16], equal)


def _compare_contents(source: Source, splits: Splits) -> Iterator[Finding]:
    parts = {"training": splits.train, "test": splits.test}
    for (part, examples), rows in zip(parts.items(), source.rows, strict=True):
        yield _compare(f"{part} rows", rows, len(examples.y))
        yield _compare(f"{part} image shape", source.shape, tuple(examples.x.shape[1:]))
        yield _compare(f"{part} classes", source.classes, len(torch.unique(examples.y)))


def _compare(what: str, expected: object, actual: object) -> Finding:
    return Finding(what, str(expected), str(actual), expected == actual)


def _digest_file(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()
