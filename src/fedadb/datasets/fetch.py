"""Bringing a published dataset to this machine: whole and verified, or not at all."""

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
from fedadb.storage.files import locked, write_atomically
from fedadb.progress import Progress
from fedadb.datasets.source import Download, Source, directory
from fedadb.datasets.unpack import find, unpack
from fedadb.datasets.verify import Origin, origin_file, require_images, tree_digest

BLOCK = 1 << 20
PATIENCE = (10, 60)  # seconds for a connection, and between two pieces of an answer
SERVED = (requests.RequestException, urllib3.exceptions.HTTPError, ValueError)


def fetch(source: Source, progress: Progress) -> Path:
    """Download, verify, unpack and put into place.

    All happens in a folder of its own beside the data, where an interrupted fetch is gone on
    with; the last step is a rename.
    """
    work = directory() / f".fetching-{source.place.name}"
    try:
        source.place.parent.mkdir(parents=True, exist_ok=True)
        work.mkdir(exist_ok=True)
        with locked(work):
            _require_space(source, work)
            urls = [_download(d, work / "files", progress) for d in source.downloads]
            try:
                whole = _assembled(source, work, progress)
            except (BadInput, Fault):
                shutil.rmtree(work)  # a later call has no use for such files
                raise
            origin = Origin(urls, tree_digest(whole, progress) if source.marker else None)
            _replace(source.place, whole, aside=work / "old")
            write_atomically(origin_file(source), json.dumps(origin._asdict()).encode())
            shutil.rmtree(work)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise Fault(f"{directory()} has no space left; nothing was installed") from error
        raise Fault(
            f"{error.filename or directory()} cannot be written ({error.strerror or error}); set "
            "FEDADB_DATA to another directory"
        ) from error
    return source.place


def _require_space(source: Source, work: Path) -> None:
    have = sum(p.stat().st_size for p in work.rglob("*") if p.is_file())
    need, free = source.size + source.unpacked, shutil.disk_usage(work).free + have
    if free < need:
        raise Fault(
            f"{directory()} has {free / 1e6:.0f} MB free, and {source.place.name} takes "
            f"{need / 1e6:.0f} MB; set FEDADB_DATA to a larger disk"
        )


def _download(download: Download, folder: Path, progress: Progress) -> str:
    """Bring the file into the folder from the first address that has it; that address."""
    pooch.get_logger().setLevel(logging.ERROR)
    part = folder / f"{download.name}.part"
    faults = []
    for url in download.urls:
        try:
            pooch.retrieve(
                url,
                None if download.md5 is None else f"md5:{download.md5}",
                download.name,
                folder,
                downloader=partial(_stream, part=part, size=download.size, progress=progress),
            )
        except SERVED as error:
            faults.append(f"{url}: {_reason(error)}")
            if isinstance(error, ValueError):  # whole, and wrong
                part.unlink(missing_ok=True)
        else:
            part.unlink(missing_ok=True)
            return url
    again = "the same command goes on from what has come" if part.exists() else "try again later"
    raise Fault(f"{download.name} could not be fetched: {'; '.join(faults)}; {again}")


def _stream(
    url: str, output_file: str, _: pooch.Pooch, *, part: Path, size: int, progress: Progress
) -> None:
    """What pooch calls to download: from where the part ends, if the server can."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=PATIENCE) as reply:
        if reply.status_code != requests.codes.requested_range_not_satisfiable:
            reply.raise_for_status()
            if "text/html" in reply.headers.get("Content-Type", ""):
                raise requests.RequestException("the server answers with a web page")
            resumed = reply.status_code == requests.codes.partial_content
            with (
                part.open("ab" if resumed else "wb") as file,
                progress(f"fetching {part.stem}", size, "bytes") as advance,
            ):
                advance(have if resumed else 0)
                _copy(reply, file, advance, limit=2 * size + BLOCK)
    # The part stays until its checksum is known. If nothing was left to send, that tells whether
    # it is whole.
    Path(output_file).unlink()
    os.link(part, output_file)


def _copy(
    reply: requests.Response, file: BinaryIO, advance: Callable[[int], None], limit: int
) -> None:
    for block in reply.raw.stream(BLOCK, decode_content=False):
        file.write(block)
        advance(len(block))
        if file.tell() > limit:
            raise ValueError(f"the server sends more than {limit} bytes")


def _reason(error: Exception) -> str:
    """One short sentence out of what requests, urllib3 and pooch raise."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.exceptions.SSLError):
        return "the server's certificate is not accepted"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy does not connect"
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        return "the server cannot be reached"
    if isinstance(error, urllib3.exceptions.HTTPError):
        return "the server stopped halfway"
    if isinstance(error, ValueError) and "hash" in str(error).lower():
        return "the file has another checksum than its publisher gives"
    return str(error)


def _assembled(source: Source, work: Path, progress: Progress) -> Path:
    """The dataset as it will lie on disk: a file, a folder of files, or an archive's folder."""
    files, whole = work / "files", work / "whole"
    shutil.rmtree(whole, ignore_errors=True)  # half of it, from an interrupted call
    if source.marker is not None:
        (archive,) = source.downloads
        unpack(files / archive.name, whole, source.unpacked, progress)
        folder = find(whole, source.marker)
        if archive.md5 is None:
            require_images(source, folder)
        return folder
    if (files / source.place.name).is_file():
        return files / source.place.name
    whole.mkdir()
    for download in source.downloads:
        os.link(files / download.name, whole / download.name)
    return whole


def _replace(place: Path, whole: Path, aside: Path) -> None:
    """Put it where what was there before, if anything, stays until the very moment."""
    if not place.is_dir():
        whole.replace(place)
        return
    shutil.rmtree(aside, ignore_errors=True)
    place.rename(aside)
    try:
        whole.rename(place)
    except OSError:
        aside.rename(place)
        raise
