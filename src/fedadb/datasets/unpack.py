"""Archives unpacked by the byte, trusting nothing that they say of themselves."""

import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from fedadb.core.errors import Fault
from fedadb.progress import Progress

BLOCK = 1 << 20
FILES = 1_000_000  # more than any of the datasets has


def unpack(archive: Path, into: Path, limit: int, progress: Progress) -> None:
    """The archive's files below a new folder; a Fault if they are not plain, or over the limit."""
    left = limit
    into.mkdir()
    try:
        with progress(f"unpacking {archive.name}", limit, "bytes") as advance:
            for count, (name, content) in enumerate(_members(archive)):
                if count == FILES:
                    raise Fault(f"{archive.name} holds more than {FILES} files; not unpacked")
                path = into / _plain(archive, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                with content, path.open("xb") as file:
                    while block := content.read(BLOCK):
                        left -= len(block)
                        if left < 0:
                            raise Fault(f"{archive.name} unpacks to more than {limit} bytes")
                        file.write(block)
                        advance(len(block))
    except Fault:
        raise
    except (FileExistsError, NotADirectoryError) as error:
        raise Fault(f"{archive.name} holds {error.filename} twice; not unpacked") from error
    except OSError as error:
        if error.errno is not None:  # of the disk; zlib's and gzip's have none
            raise
        raise Fault(f"{archive.name} is damaged: {error}") from error
    except Exception as error:  # whatever a damaged or encrypted archive makes its reader raise
        raise Fault(f"{archive.name} is damaged: {error}") from error


def find(folder: Path, marker: str) -> Path:
    """The highest folder below this one that holds the marker."""
    holders = sorted((p.parent for p in folder.rglob(marker)), key=lambda p: len(p.parts))
    if not holders:
        raise Fault(f"the archive holds no {marker}: it is another one than expected")
    return holders[0]


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and contents of the files."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if info.external_attr >> 28 == 0xA:  # what Unix marks symbolic links with
                    raise Fault(f"{archive.name} holds a link, {info.filename}; not unpacked")
                if not info.is_dir():
                    yield info.filename, zipped.open(info)
        return
    with tarfile.open(archive, "r|gz") as tarred:
        for member in tarred:
            content = tarred.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content
            elif not member.isdir():
                kind = "a link" if member.issym() or member.islnk() else "a special file"
                raise Fault(f"{archive.name} holds {kind}, {member.name}; not unpacked")


def _plain(archive: Path, name: str) -> PurePosixPath:
    """The name, if it stays below the folder that it is put into."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or not path.parts:
        raise Fault(f"{archive.name} holds a file that would land outside, {name}; not unpacked")
    return path
