"""Downloads from a server on loopback, which works or fails as each test needs."""

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
from fedadb.datasets import DATASETS
from fedadb.datasets import fetch as module
from fedadb.datasets.fetch import fetch_dataset
from fedadb.datasets.source import Download, Source
from fedadb.datasets.verify import read_origin, verify
from fedadb.progress import no_progress
from fedadb.storage.files import locked
from tests.datasets.official import (
    write_cifar10,
    write_cinic,
    write_medmnist,
    write_mnist,
    write_pacs,
    write_svhn,
)


@dataclass
class WebServer:
    """The files of a server, how it behaves, and the requests it received."""

    folder: Path
    address: str = ""
    stop_after: int | None = None  # bytes of an answer, after which it drops the connection
    ranges: bool = True
    html: bool = False
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range

    def handler(server) -> type[BaseHTTPRequestHandler]:  # `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                wanted = self.headers["Range"]
                server.requests.append((self.path, wanted))
                path = server.folder / self.path.lstrip("/")
                if not path.is_file():
                    self.send_error(404)
                    return
                content = path.read_bytes()
                start = int(wanted[6:-1]) if wanted and server.ranges else 0
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(content) - start))
                self.send_header("Content-Type", "text/html" if server.html else "application/zip")
                self.end_headers()
                self.wfile.write(content[start:][: server.stop_after])

        return Handler


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    folder = tmp_path / "served"
    folder.mkdir()
    server = WebServer(folder)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), server.handler())
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    server.address = f"http://127.0.0.1:{listening.server_address[1]}"
    yield server
    listening.shutdown()
    thread.join()
    listening.server_close()


def served(source: Source, server: WebServer, **changes: Any) -> Source:
    """The source with this server's addresses, and the checksums of its files."""

    def moved(download: Download) -> Download:
        file = server.folder / download.name
        md5 = download.md5 and hashlib.md5(file.read_bytes()).hexdigest()
        return replace(
            download, urls=(f"{server.address}/{download.name}",), md5=md5, size=file.stat().st_size
        )

    return replace(source, downloads=tuple(moved(d) for d in source.downloads), **changes)


def pack(folder: Path, archive: Path, inside: str) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, inside)
    shutil.rmtree(folder)


@pytest.fixture
def organs(server: WebServer) -> Source:
    write_medmnist(server.folder / "organamnist.npz", 11)
    return served(DATASETS["organamnist"], server)


@pytest.fixture
def cifar(server: WebServer) -> Source:
    write_cifar10(server.folder / "made")
    archive = server.folder / "cifar-10-binary.tar.gz"
    pack(server.folder / "made", archive, "cifar-10-batches-bin")
    return served(DATASETS["cifar10"], server)


def files_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_file_is_installed(organs: Source, no_data: Path, server: WebServer) -> None:
    assert fetch_dataset(organs, no_progress) == no_data / "medmnist/organamnist.npz"
    assert len(datasets.load("organamnist").test.y) == 20
    origin = read_origin(organs)
    assert origin is not None
    assert origin.urls == [f"{server.address}/organamnist.npz"]
    assert files_in(no_data) == [".organamnist.npz.origin.json", "medmnist/organamnist.npz"]


def test_an_archive_is_unpacked(cifar: Source, no_data: Path) -> None:
    fetch_dataset(cifar, no_progress)
    assert len(datasets.load("cifar10").train.y) == 100
    assert not list(no_data.glob(".fetching*"))


def test_every_layout_is_installed(server: WebServer, no_data: Path) -> None:
    write_svhn(server.folder / "svhn")
    write_mnist(server.folder / "mnist")
    for folder in ("svhn", "mnist"):
        for path in (server.folder / folder).iterdir():
            path.rename(server.folder / path.name)
        fetch_dataset(served(DATASETS[folder], server), no_progress)
    assert len(datasets.load("svhn").train.y) == len(datasets.load("mnist").train.y) == 30
    write_cinic(server.folder / "made")
    pack(server.folder / "made", server.folder / "CINIC-10.tar.gz", ".")
    fetch_dataset(served(DATASETS["cinic10"], server), no_progress)
    assert len(datasets.load("cinic10").train.y) == 30


def test_the_images_of_a_dataset_without_checksum_are_counted(
    server: WebServer, no_data: Path
) -> None:
    write_pacs(server.folder / "made", n=5)
    with zipfile.ZipFile(server.folder / "PACS.zip", "w") as archive:
        for path in sorted((server.folder / "made").rglob("*.jpg")):
            archive.write(path, f"kfold/{path.relative_to(server.folder / 'made')}")
    source = served(DATASETS["pacs"], server)
    with pytest.raises(Fault, match="PACS has 140 images; it must have 9991"):
        fetch_dataset(source, no_progress)
    assert files_in(no_data) == []
    fetch_dataset(replace(source, rows=(112, 28)), no_progress)
    assert len(datasets.load("pacs").test.y) == 28


def test_an_interrupted_download_resumes(organs: Source, no_data: Path, server: WebServer) -> None:
    server.stop_after = 9_000
    with pytest.raises(
        Fault, match="the connection broke off; the same command resumes the download"
    ):
        fetch_dataset(organs, no_progress)
    assert not organs.present()
    server.stop_after = None
    fetch_dataset(organs, no_progress)
    assert [wanted for _, wanted in server.requests] == [None, "bytes=9000-"]
    assert all(finding.equal for finding in verify("organamnist", organs, no_progress)[:1])


def test_a_server_without_ranges_sends_the_file_again(
    organs: Source, no_data: Path, server: WebServer
) -> None:
    server.stop_after, server.ranges = 9_000, False
    with pytest.raises(Fault, match="the connection broke off"):
        fetch_dataset(organs, no_progress)
    server.stop_after = None
    fetch_dataset(organs, no_progress)
    assert organs.present()


def test_a_part_that_is_complete_or_too_long_is_recognised(
    organs: Source, no_data: Path, server: WebServer
) -> None:
    part = no_data / ".fetching-organamnist.npz/files/organamnist.npz.part"
    content = (server.folder / "organamnist.npz").read_bytes()
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    fetch_dataset(organs, no_progress)
    assert organs.present()
    organs.location.unlink()
    part.parent.mkdir(parents=True)
    part.write_bytes(content + b"more")
    with pytest.raises(Fault, match="the file's checksum differs from the published one"):
        fetch_dataset(organs, no_progress)
    fetch_dataset(organs, no_progress)  # from the beginning
    assert organs.present()


def test_a_mirror_resumes_an_interrupted_download(
    organs: Source, no_data: Path, server: WebServer
) -> None:
    (download,) = organs.downloads
    server.stop_after = 9_000
    with pytest.raises(Fault):
        fetch_dataset(organs, no_progress)
    server.stop_after = None
    moved = (f"{server.address}/gone.npz", *download.urls)
    fetch_dataset(replace(organs, downloads=(replace(download, urls=moved),)), no_progress)
    before = [("/organamnist.npz", None), ("/gone.npz", "bytes=9000-")]
    assert server.requests == [*before, ("/organamnist.npz", "bytes=9000-")]
    assert organs.present()


def test_a_server_that_sends_too_much_is_stopped(
    organs: Source, no_data: Path, server: WebServer
) -> None:
    with (server.folder / "organamnist.npz").open("ab") as file:
        file.write(bytes(4 << 20))
    with pytest.raises(Fault, match="the server sent more than"):
        fetch_dataset(organs, no_progress)
    assert files_in(no_data) == [".fetching-organamnist.npz/.lock"]


def test_a_failed_rename_restores_the_earlier_dataset(
    cifar: Source, no_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar10(no_data / "cifar-10-batches-bin", rows=3)
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path.name == "cifar-10-batches-bin" and "complete" in path.parts:
            raise OSError(5, "Input/output error", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(Fault, match="Input/output error"):
        fetch_dataset(cifar, no_progress)
    assert len(datasets.load("cifar10").train.y) == 15


def test_failures_of_a_server_are_faults(organs: Source, no_data: Path, server: WebServer) -> None:
    (download,) = organs.downloads

    def fails(message: str, **changes: Any) -> None:
        with pytest.raises(Fault, match=message):
            fetch_dataset(replace(organs, downloads=(replace(download, **changes),)), no_progress)
        assert not organs.present()

    fails("the server answered 404 Not Found", urls=(f"{server.address}/nothing.npz",))
    fails("the server cannot be reached", urls=("http://127.0.0.1:9/organamnist.npz",))
    fails("the file's checksum differs from the published one", md5="0" * 32)
    server.html = True
    fails("the server sent a web page")
    assert files_in(no_data) == [".fetching-organamnist.npz/.lock"]


def test_a_malicious_archive_leaves_no_files(
    cifar: Source, no_data: Path, server: WebServer
) -> None:
    with pytest.raises(Fault, match="unpacks to more than 10000 bytes"):
        fetch_dataset(replace(cifar, unpacked=10_000), no_progress)
    with tarfile.open(server.folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(server.folder, "../../outside", recursive=False)
        archive.add(Path(__file__), "../../outside/test.py")
    with pytest.raises(Fault, match="leads outside of its folder"):
        fetch_dataset(served(DATASETS["cifar10"], server), no_progress)
    assert files_in(no_data) == []


def test_the_earlier_dataset_stays_until_the_new_one_is_complete(
    cifar: Source, no_data: Path, server: WebServer
) -> None:
    write_cifar10(no_data / "cifar-10-batches-bin", rows=3)
    server.stop_after = 100
    with pytest.raises(Fault):
        fetch_dataset(cifar, no_progress)
    assert len(datasets.load("cifar10").train.y) == 15
    server.stop_after = None
    fetch_dataset(cifar, no_progress)
    assert len(datasets.load("cifar10").train.y) == 100


def test_too_little_space_is_a_fault_before_the_download(
    organs: Source, no_data: Path, server: WebServer
) -> None:
    with pytest.raises(Fault, match=r"MB free, but organamnist\.npz needs"):
        fetch_dataset(replace(organs, unpacked=10**18), no_progress)
    assert server.requests == []


def test_a_full_disk_is_a_fault(
    organs: Source, no_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_copy", full)
    with pytest.raises(Fault, match="has no space left; nothing was installed"):
        fetch_dataset(organs, no_progress)
    assert not organs.present()


def test_the_fault_names_a_directory_that_cannot_be_written(
    organs: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDADB_DATA", str(tmp_path / "file"))
    with pytest.raises(Fault, match=r"file.*(exists|Not a directory)"):
        fetch_dataset(organs, no_progress)


def test_two_downloads_of_one_dataset_exclude_each_other(organs: Source, no_data: Path) -> None:
    work = no_data / ".fetching-organamnist.npz"
    work.mkdir()
    with locked(work), pytest.raises(BadInput, match="another process is using"):
        fetch_dataset(organs, no_progress)


def test_verify_detects_damage(cifar: Source, no_data: Path) -> None:
    source = replace(cifar, rows=(100, 20))
    fetch_dataset(source, no_progress)
    assert all(finding.equal for finding in verify("cifar10", source, no_progress))
    path = no_data / "cifar-10-batches-bin/data_batch_3.bin"
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    wrong = [f.what for f in verify("cifar10", source, no_progress) if not f.equal]
    assert wrong == ["SHA-256 of all files"]
    path.write_bytes(content[:-5])
    wrong = [f.what for f in verify("cifar10", source, no_progress) if not f.equal]
    assert wrong == ["SHA-256 of all files", "contents"]


@pytest.mark.integration
def test_a_killed_download_leaves_nothing_that_looks_complete(
    organs: Source, no_data: Path, server: WebServer
) -> None:
    """The download runs in another process, which is killed in the middle of it."""
    code = (
        "import sys, time; from dataclasses import replace;"
        "from fedadb.progress import no_progress; from fedadb.datasets import DATASETS;"
        "from fedadb.datasets import fetch as m; slow = m._copy;"
        "m._copy = lambda *a, **k: (slow(*a, **k), time.sleep(60));"
        "s = DATASETS['organamnist']; d = replace(s.downloads[0], urls=(sys.argv[1],));"
        "m.fetch_dataset(replace(s, downloads=(d,)), no_progress)"
    )
    url = f"{server.address}/organamnist.npz"
    process = subprocess.Popen([sys.executable, "-c", code, url], env=os.environ)
    work = no_data / ".fetching-organamnist.npz/files/organamnist.npz.part"
    while not work.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not organs.present()
    fetch_dataset(organs, no_progress)
    assert organs.present()
