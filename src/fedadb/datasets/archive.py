"""Unpacks archives without trusting what they state.

`tarfile`'s "data" filter does less: it neither bounds the bytes nor rejects links and duplicates,
it does not cover zip files, and Python has it only from 3.11.4 on.
"""

import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from fedadb.core.errors import Fault
from fedadb.progress import Progress

BLOCK = 1 << 20  # bytes
MAX_FILES = 1_000_000  # more than any of the datasets has


def unpack_archive(archive: Path, into: Path, limit: int, progress: Progress) -> None:
    """Unpack a zip or tar.gz archive into a new folder.

    Raises a Fault if the archive is damaged, contains anything but regular files and folders, or
    unpacks to more than `limit` bytes.
    """
    left = limit
    into.mkdir()
    try:
        with progress(f"unpacking {archive.name}", limit, "bytes") as advance:
            for count, (name, content) in enumerate(_members(archive)):
                if count == MAX_FILES:
                    raise Fault(f"{archive.name} contains more than {MAX_FILES} files")
                path = into / _relative_path(archive, name)
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
        raise Fault(f"{archive.name} contains {error.filename} twice") from error
    except OSError as error:
        if error.errno is not None:  # from the disk; errors of zlib and gzip have no number
            raise
        raise Fault(f"{archive.name} is damaged: {error}") from error
    except Exception as error:  # a damaged or encrypted archive raises many kinds
        raise Fault(f"{archive.name} is damaged: {error}") from error


def find_marker(folder: Path, marker: str) -> Path:
    """The topmost folder that contains a file or folder with the name `marker`."""
    parents = sorted((p.parent for p in folder.rglob(marker)), key=lambda p: len(p.parts))
    if not parents:
        raise Fault(f"the archive contains no {marker}, so it is not the expected one")
    return parents[0]


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The names and contents of the archive's regular files."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                if info.external_attr >> 28 == 0xA:  # the Unix file type of a symbolic link
                    raise Fault(f"{archive.name} contains a link, {info.filename}")
                if not info.is_dir():
                    yield info.filename, opened.open(info)
        return
    with tarfile.open(archive, "r|gz") as stream:
        for member in stream:
            content = stream.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content
            elif not member.isdir():
                kind = "a link" if member.issym() or member.islnk() else "a special file"
                raise Fault(f"{archive.name} contains {kind}, {member.name}")


def _relative_path(archive: Path, name: str) -> PurePosixPath:
    """The member's path; a Fault if it leads outside of the folder it is unpacked into."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or not path.parts:
        raise Fault(f"{archive.name} contains a path that leads outside of its folder, {name}")
    return path
