"""Downloads a published dataset and installs it, complete and verified, or not at all.

`pooch` selects the address and checks the MD5. Our own downloader adds what pooch lacks: it resumes
an interrupted download, and stops one that becomes too large.
"""

import errno
import json
import logging
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pooch
import requests
import urllib3.exceptions

from fedadb.core.errors import BadInput, Fault
from fedadb.datasets.archive import find_marker, unpack_archive
from fedadb.datasets.source import Download, Source, data_directory
from fedadb.datasets.verify import Origin, digest_folder, origin_file, require_image_count
from fedadb.progress import Progress
from fedadb.storage.cache import make_directory
from fedadb.storage.files import locked, write_atomically

BLOCK = 1 << 20  # bytes
TIMEOUTS = (10, 60)  # seconds to connect, and between two blocks
DOWNLOAD_ERRORS = (requests.RequestException, urllib3.exceptions.HTTPError, ValueError)


def fetch_dataset(source: Source, progress: Progress) -> Path:
    """Download, verify, unpack and install the dataset, and return its location.

    All steps use a work folder in the data directory, from which an interrupted download resumes.
    The last step is a rename.
    """
    work = data_directory() / f".fetching-{source.location.name}"
    try:
        make_directory(source.location.parent)
        work.mkdir(exist_ok=True)
        with locked(work):
            _require_space(source, work)
            urls = [_download(d, work / "files", progress) for d in source.downloads]
            try:
                complete = _assemble(source, work, progress)
            except (BadInput, Fault):
                shutil.rmtree(work)  # these files are of no use to a later call
                raise
            origin = Origin(urls, digest_folder(complete, progress) if source.marker else None)
            _install(complete, source.location, previous=work / "previous")
            write_atomically(origin_file(source), json.dumps(origin._asdict()).encode())
            shutil.rmtree(work)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise Fault(f"{data_directory()} has no space left; nothing was installed") from error
        raise Fault(
            f"{error.filename or data_directory()} cannot be written ({error.strerror or error}); "
            "set FEDADB_DATA to another directory"
        ) from error
    return source.location


def _require_space(source: Source, work: Path) -> None:
    downloaded = sum(p.stat().st_size for p in work.rglob("*") if p.is_file())
    needed, free = source.size + source.unpacked, shutil.disk_usage(work).free + downloaded
    if free < needed:
        raise Fault(
            f"{data_directory()} has {free / 1e6:.0f} MB free, but {source.location.name} needs "
            f"{needed / 1e6:.0f} MB; set FEDADB_DATA to a directory on a larger disk"
        )


def _download(download: Download, folder: Path, progress: Progress) -> str:
    """Download the file from the first address that has it, and return that address."""
    pooch.get_logger().setLevel(logging.ERROR)
    part = folder / f"{download.name}.part"
    failures = []
    for url in download.urls:
        try:
            pooch.retrieve(
                url,
                None if download.md5 is None else f"md5:{download.md5}",
                download.name,
                folder,
                downloader=partial(_stream, part=part, size=download.size, progress=progress),
            )
        except DOWNLOAD_ERRORS as error:
            failures.append(f"{url}: {_explain(error)}")
            if isinstance(error, ValueError):  # the file is complete, but wrong
                part.unlink(missing_ok=True)
        else:
            part.unlink(missing_ok=True)
            return url
    remedy = "the same command resumes the download" if part.exists() else "try again later"
    raise Fault(f"{download.name} could not be downloaded: {'; '.join(failures)}; {remedy}")


def _stream(
    url: str, output_file: str, _: pooch.Pooch, *, part: Path, size: int, progress: Progress
) -> None:
    """The downloader that pooch calls: resumes at the end of `part` if the server supports it."""
    done = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUTS) as reply:
        if reply.status_code != requests.codes.requested_range_not_satisfiable:
            reply.raise_for_status()
            if "text/html" in reply.headers.get("Content-Type", ""):
                raise requests.RequestException("the server sent a web page")
            resumed = reply.status_code == requests.codes.partial_content
            with (
                part.open("ab" if resumed else "wb") as file,
                progress(f"downloading {part.stem}", size, "bytes") as advance,
            ):
                advance(done if resumed else 0)
                _copy(reply, file, advance, limit=2 * size + BLOCK)
    # The part stays until pooch has compared its checksum. If the server had no more bytes, the
    # checksum also decides whether the part is complete.
    Path(output_file).unlink()
    os.link(part, output_file)


def _copy(
    reply: requests.Response, file: BinaryIO, advance: Callable[[int], None], limit: int
) -> None:
    for block in reply.raw.stream(BLOCK, decode_content=False):
        file.write(block)
        advance(len(block))
        if file.tell() > limit:
            raise ValueError(f"the server sent more than {limit} bytes")


def _explain(error: Exception) -> str:
    """One short sentence for what requests, urllib3 and pooch raise."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.exceptions.SSLError):
        return "the server's certificate is invalid"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy did not connect"
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        return "the server cannot be reached"
    if isinstance(error, urllib3.exceptions.HTTPError):
        return "the connection broke off"
    if isinstance(error, ValueError) and "hash" in str(error).lower():
        return "the file's checksum differs from the published one"
    return str(error)


def _assemble(source: Source, work: Path, progress: Progress) -> Path:
    """The dataset in its official layout: one file, a folder of files, or an archive's folder."""
    files, complete = work / "files", work / "complete"
    shutil.rmtree(complete, ignore_errors=True)  # incomplete, from an interrupted call
    if source.marker is not None:
        (archive,) = source.downloads
        unpack_archive(files / archive.name, complete, source.unpacked, progress)
        folder = find_marker(complete, source.marker)
        if archive.md5 is None:
            require_image_count(source, folder)
        return folder
    if (files / source.location.name).is_file():
        return files / source.location.name
    complete.mkdir()
    for download in source.downloads:
        os.link(files / download.name, complete / download.name)
    return complete


def _install(complete: Path, location: Path, previous: Path) -> None:
    """Move the dataset to its location; a failure leaves an earlier one there as it was."""
    if not location.is_dir():
        complete.replace(location)
        return
    shutil.rmtree(previous, ignore_errors=True)
    location.rename(previous)
    try:
        complete.rename(location)
    except OSError:
        previous.rename(location)
        raise
