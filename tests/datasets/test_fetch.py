"""Fetching from a server on loopback: one that behaves, and one that does not."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fedadb import datasets
from fedadb.core.errors import BadInput, Fault
from fedadb.progress import no_progress
from fedadb.datasets import SOURCES
from fedadb.datasets import fetch as module
from fedadb.datasets.fetch import fetch
from fedadb.datasets.source import Download, Source
from fedadb.datasets.verify import origin, verify
from tests.datasets.official import (
    write_cifar10,
    write_cinic,
    write_medmnist,
    write_mnist,
    write_pacs,
    write_svhn,
)


@dataclass
class Site:
    """What a server has, how it behaves, and what it was asked."""

    folder: Path
    address: str = ""
    stop_after: int | None = None  # bytes of an answer, then the connection is dropped
    ranges: bool = True
    html: bool = False
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range

    def handler(site) -> type[BaseHTTPRequestHandler]:  # two selves
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                wanted = self.headers["Range"]
                site.asked.append((self.path, wanted))
                path = site.folder / self.path.lstrip("/")
                if not path.is_file():
                    self.send_error(404)
                    return
                whole = path.read_bytes()
                start = int(wanted[6:-1]) if wanted and site.ranges else 0
                if start >= len(whole):
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(whole) - start))
                self.send_header("Content-Type", "text/html" if site.html else "application/zip")
                self.end_headers()
                self.wfile.write(whole[start:][: site.stop_after])

        return Handler


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "served"
    folder.mkdir()
    site = Site(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), site.handler())
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    site.address = f"http://127.0.0.1:{server.server_address[1]}"
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


def served(source: Source, site: Site, **changes: Any) -> Source:
    """The source as this site has it, with the checksums of its files."""

    def here(download: Download) -> Download:
        file = site.folder / download.name
        md5 = download.md5 and hashlib.md5(file.read_bytes()).hexdigest()
        return replace(
            download, urls=(f"{site.address}/{download.name}",), md5=md5, size=file.stat().st_size
        )

    return replace(source, downloads=tuple(here(d) for d in source.downloads), **changes)


def pack_up(folder: Path, archive: Path, inside: str) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, inside)
    shutil.rmtree(folder)


@pytest.fixture
def organs(site: Site) -> Source:
    write_medmnist(site.folder / "organamnist.npz", 11)
    return served(SOURCES["organamnist"], site)


@pytest.fixture
def cifar(site: Site) -> Source:
    write_cifar10(site.folder / "made")
    archive = site.folder / "cifar-10-binary.tar.gz"
    pack_up(site.folder / "made", archive, "cifar-10-batches-bin")
    return served(SOURCES["cifar10"], site)


def left_over(place: Path) -> list[str]:
    return sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file())


def test_a_file_comes_to_its_place(organs: Source, no_data: Path, site: Site) -> None:
    assert fetch(organs, no_progress) == no_data / "medmnist/organamnist.npz"
    assert len(datasets.load("organamnist").test.y) == 20
    known = origin(organs)
    assert known is not None
    assert known.urls == [f"{site.address}/organamnist.npz"]
    assert left_over(no_data) == [".organamnist.npz.origin.json", "medmnist/organamnist.npz"]


def test_an_archive_comes_unpacked(cifar: Source, no_data: Path) -> None:
    fetch(cifar, no_progress)
    assert len(datasets.load("cifar10").train.y) == 100
    assert not list(no_data.glob(".fetching*"))


def test_every_layout_comes(site: Site, no_data: Path) -> None:
    write_svhn(site.folder / "svhn")
    write_mnist(site.folder / "mnist")
    for folder in ("svhn", "mnist"):
        for path in (site.folder / folder).iterdir():
            path.rename(site.folder / path.name)
        fetch(served(SOURCES[folder], site), no_progress)
    assert len(datasets.load("svhn").train.y) == len(datasets.load("mnist").train.y) == 30
    write_cinic(site.folder / "made")
    pack_up(site.folder / "made", site.folder / "CINIC-10.tar.gz", ".")
    fetch(served(SOURCES["cinic10"], site), no_progress)
    assert len(datasets.load("cinic10").train.y) == 30


def test_what_has_no_checksum_is_counted(site: Site, no_data: Path) -> None:
    write_pacs(site.folder / "made", n=5)
    with zipfile.ZipFile(site.folder / "PACS.zip", "w") as archive:
        for path in sorted((site.folder / "made").rglob("*.jpg")):
            archive.write(path, f"kfold/{path.relative_to(site.folder / 'made')}")
    source = served(SOURCES["pacs"], site)
    with pytest.raises(Fault, match="PACS has 140 images where 9991 is right"):
        fetch(source, no_progress)
    assert left_over(no_data) == []
    fetch(replace(source, rows=(112, 28)), no_progress)
    assert len(datasets.load("pacs").test.y) == 28


def test_a_fetch_goes_on_where_it_stopped(organs: Source, no_data: Path, site: Site) -> None:
    site.stop_after = 9_000
    with pytest.raises(Fault, match="stopped halfway; the same command goes on"):
        fetch(organs, no_progress)
    assert not organs.here()
    site.stop_after = None
    fetch(organs, no_progress)
    assert [wanted for _, wanted in site.asked] == [None, "bytes=9000-"]
    assert all(finding.right for finding in verify("organamnist", organs, no_progress)[:1])


def test_a_server_without_ranges_starts_over(organs: Source, no_data: Path, site: Site) -> None:
    site.stop_after, site.ranges = 9_000, False
    with pytest.raises(Fault, match="stopped halfway"):
        fetch(organs, no_progress)
    site.stop_after = None
    fetch(organs, no_progress)
    assert organs.here()


def test_a_part_that_is_whole_or_too_long_is_recognised(
    organs: Source, no_data: Path, site: Site
) -> None:
    part = no_data / ".fetching-organamnist.npz/files/organamnist.npz.part"
    whole = (site.folder / "organamnist.npz").read_bytes()
    part.parent.mkdir(parents=True)
    part.write_bytes(whole)
    fetch(organs, no_progress)
    assert organs.here()
    organs.place.unlink()
    part.parent.mkdir(parents=True)
    part.write_bytes(whole + b"more")
    with pytest.raises(Fault, match="another checksum than its publisher gives"):
        fetch(organs, no_progress)
    fetch(organs, no_progress)  # from the beginning
    assert organs.here()


def test_a_mirror_stands_in_and_goes_on_with_what_has_come(
    organs: Source, no_data: Path, site: Site
) -> None:
    (download,) = organs.downloads
    site.stop_after = 9_000
    with pytest.raises(Fault):
        fetch(organs, no_progress)
    site.stop_after = None
    moved = (f"{site.address}/gone.npz", *download.urls)
    fetch(replace(organs, downloads=(replace(download, urls=moved),)), no_progress)
    asked = [("/organamnist.npz", None), ("/gone.npz", "bytes=9000-")]
    assert site.asked == [*asked, ("/organamnist.npz", "bytes=9000-")]
    assert organs.here()


def test_a_server_that_never_ends_is_left(organs: Source, no_data: Path, site: Site) -> None:
    with (site.folder / "organamnist.npz").open("ab") as file:
        file.write(bytes(4 << 20))
    with pytest.raises(Fault, match="sends more than"):
        fetch(organs, no_progress)
    assert left_over(no_data) == [".fetching-organamnist.npz/.lock"]


def test_a_moment_of_failure_brings_earlier_data_back(
    cifar: Source, no_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar10(no_data / "cifar-10-batches-bin", rows=3)
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path.name == "cifar-10-batches-bin" and "whole" in path.parts:
            raise OSError(5, "Input/output error", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(Fault, match="Input/output error"):
        fetch(cifar, no_progress)
    assert len(datasets.load("cifar10").train.y) == 15


def test_what_a_server_may_do_wrong(organs: Source, no_data: Path, site: Site) -> None:
    (download,) = organs.downloads

    def fails(message: str, **changes: Any) -> None:
        with pytest.raises(Fault, match=message):
            fetch(replace(organs, downloads=(replace(download, **changes),)), no_progress)
        assert not organs.here()

    fails("the server answers 404 Not Found", urls=(f"{site.address}/nothing.npz",))
    fails("the server cannot be reached", urls=("http://127.0.0.1:9/organamnist.npz",))
    fails("another checksum than its publisher gives", md5="0" * 32)
    site.html = True
    fails("answers with a web page")
    assert left_over(no_data) == [".fetching-organamnist.npz/.lock"]


def test_an_archive_that_means_harm_leaves_nothing(
    cifar: Source, no_data: Path, site: Site
) -> None:
    with pytest.raises(Fault, match="unpacks to more than 10000 bytes"):
        fetch(replace(cifar, unpacked=10_000), no_progress)
    with tarfile.open(site.folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(site.folder, "../../outside", recursive=False)
        archive.add(Path(__file__), "../../outside/test.py")
    with pytest.raises(Fault, match="would land outside"):
        fetch(served(SOURCES["cifar10"], site), no_progress)
    assert left_over(no_data) == []


def test_earlier_data_stay_until_the_new_are_whole(
    cifar: Source, no_data: Path, site: Site
) -> None:
    write_cifar10(no_data / "cifar-10-batches-bin", rows=3)
    site.stop_after = 100
    with pytest.raises(Fault):
        fetch(cifar, no_progress)
    assert len(datasets.load("cifar10").train.y) == 15
    site.stop_after = None
    fetch(cifar, no_progress)
    assert len(datasets.load("cifar10").train.y) == 100


def test_too_little_space_is_told_before_anything_is_sent(
    organs: Source, no_data: Path, site: Site
) -> None:
    with pytest.raises(Fault, match=r"MB free, and organamnist\.npz takes"):
        fetch(replace(organs, unpacked=10**18), no_progress)
    assert site.asked == []


def test_a_disk_that_fills_up_is_told(
    organs: Source, no_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_copy", full)
    with pytest.raises(Fault, match="has no space left; nothing was installed"):
        fetch(organs, no_progress)
    assert not organs.here()


def test_a_directory_that_cannot_be_written_is_named(
    organs: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDADB_DATA", str(tmp_path / "file"))
    with pytest.raises(Fault, match=r"file.*(exists|Not a directory)"):
        fetch(organs, no_progress)


def test_two_at_once_are_kept_apart(organs: Source, no_data: Path) -> None:
    from fedadb.storage.files import locked

    work = no_data / ".fetching-organamnist.npz"
    work.mkdir()
    with locked(work), pytest.raises(BadInput, match="another process is at work"):
        fetch(organs, no_progress)


def test_damage_after_fetching_is_found(cifar: Source, no_data: Path) -> None:
    source = replace(cifar, rows=(100, 20))
    fetch(source, no_progress)
    assert all(finding.right for finding in verify("cifar10", source, no_progress))
    path = no_data / "cifar-10-batches-bin/data_batch_3.bin"
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    wrong = [f.what for f in verify("cifar10", source, no_progress) if not f.right]
    assert wrong == ["SHA-256 of all files"]
    path.write_bytes(content[:-5])
    wrong = [f.what for f in verify("cifar10", source, no_progress) if not f.right]
    assert wrong == ["SHA-256 of all files", "contents"]


@pytest.mark.integration
def test_a_killed_fetch_leaves_nothing_that_looks_whole(
    organs: Source, no_data: Path, site: Site
) -> None:
    """A process of its own, killed while the server keeps it waiting."""
    code = (
        "import sys, time; from dataclasses import replace;"
        "from fedadb.progress import no_progress; from fedadb.datasets import SOURCES;"
        "from fedadb.datasets import fetch as m; slow = m._copy;"
        "m._copy = lambda *a, **k: (slow(*a, **k), time.sleep(60));"
        "s = SOURCES['organamnist']; d = replace(s.downloads[0], urls=(sys.argv[1],));"
        "m.fetch(replace(s, downloads=(d,)), no_progress)"
    )
    url = f"{site.address}/organamnist.npz"
    process = subprocess.Popen([sys.executable, "-c", code, url], env=os.environ)
    work = no_data / ".fetching-organamnist.npz/files/organamnist.npz.part"
    while not work.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not organs.here()
    fetch(organs, no_progress)
    assert organs.here()
