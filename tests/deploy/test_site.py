"""A site checks its data before it connects."""

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedadb import cli
from fedadb.deploy import keys, site
from fedadb.experiment.config import Experiment

pytestmark = pytest.mark.integration

STATED = {"evaluate": "sites", "classes": ["cat", "dog"], "shape": [1, 28, 28]}


class Connected(Exception):
    """The site has checked its data, and connects."""


def folder(path: Path, **images: int) -> str:
    """A folder with so many images per class."""
    path.mkdir()
    for name, number in images.items():
        (path / name).mkdir()
        for i in range(number):
            Image.new("L", (28, 28), i).save(path / name / f"{i}.png")
    return f"folder:{path}"


def npz(path: Path, rows: int, side: int = 28) -> str:
    x, y = np.zeros((rows, side, side), np.uint8), np.arange(rows) % 2
    np.savez(path.with_suffix(".npz"), x=x, y=y)
    return f"npz:{path.with_suffix('.npz')}"


def damaged(path: Path) -> str:
    data = folder(path, cat=5)
    (path / "cat" / "3.png").write_bytes(b"no image")
    return data


def unreadable(path: Path) -> str:
    path.write_bytes(b"no archive")
    return f"npz:{path}"


@pytest.mark.parametrize("deployment", [STATED, {}], ids=["stated", "unknown"])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (folder, "data has 0 classes; it needs at least 1"),
        (lambda path: folder(path, cat=0), "cat has no images"),
        (lambda path: npz(path, 0), "x is empty"),
        (lambda path: f"folder:{path}", "does not exist"),
        (lambda path: f"csv:{path}", "deployment.columns, which `fedadb deploy combine` writes"),
        (lambda path: f"tsv:{path}", "must be npz:PATH, folder:PATH or csv:PATH"),
        (damaged, "3.png is damaged or not an image"),
        (unreadable, "is not an .npz file"),
    ],
)
def test_a_site_without_usable_data_does_not_connect(
    make: Callable[[Path], str],
    reason: str,
    deployment: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run_site(make(tmp_path / "data"), deployment, tmp_path, monkeypatch)
    written = capsys.readouterr().err
    assert (code, reason in " ".join(written.split())) == (2, True), written
    assert "Traceback" not in written


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: folder(path, cat=5, owl=5), "has a class 'owl'; the federation's are cat"),
        (lambda path: npz(path, 20, side=32), "has images of shape (1, 32, 32)"),
        (lambda path: folder(path, cat=2), "has too few images per class to set some aside"),
    ],
)
def test_a_site_that_does_not_fit_its_own_experiment_does_not_connect(
    make: Callable[[Path], str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run_site(make(tmp_path / "data"), STATED, tmp_path, monkeypatch)
    written = capsys.readouterr().err
    assert (code, reason in " ".join(written.split())) == (2, True), written


def test_a_site_that_does_not_fit_its_own_copy_of_the_dataset_does_not_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder(tmp_path / "data", cat=5)
    assert run_site(data, {}, tmp_path, monkeypatch, dataset="digits") == 2
    written = " ".join(capsys.readouterr().err.split())
    assert "has a class 'cat'; the federation's are 0, 1, 2" in written
    assert "(dataset = 'digits' in this site's experiment)" in written


def test_a_damaged_copy_of_the_servers_dataset_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = unreadable(tmp_path / "test.npz")
    with pytest.raises(Connected):
        run_site(folder(tmp_path / "data", cat=5), {}, tmp_path, monkeypatch, dataset=dataset)


@pytest.mark.parametrize("deployment", [STATED, {}], ids=["stated", "unknown"])
def test_a_site_with_usable_data_connects(
    deployment: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Connected):
        run_site(folder(tmp_path / "data", cat=5), deployment, tmp_path, monkeypatch)


def test_a_site_waits_while_the_servers_certificate_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's operator can renew it, and the site needs no restart."""
    keys.make_server_keys(tmp_path, ["localhost"], days=3)
    keys.renew_server_certificate(tmp_path, [], days=0)
    context, lines = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), list[str]()
    context.load_cert_chain(tmp_path / keys.SERVER, tmp_path / keys.SERVER_KEY)

    def sleep(seconds: float) -> None:
        keys.renew_server_certificate(tmp_path, [], days=3)
        context.load_cert_chain(tmp_path / keys.SERVER, tmp_path / keys.SERVER_KEY)

    def answer(listening: socket.socket) -> None:
        for _ in range(2):
            plain, _ = listening.accept()
            with suppress(OSError), context.wrap_socket(plain, server_side=True) as opened:
                opened.recv(1)

    monkeypatch.setattr(site, "time", SimpleNamespace(sleep=sleep))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, args=(listening,))
        thread.start()
        port = listening.getsockname()[1]
        site._wait_for_server("127.0.0.1", port, tmp_path / keys.CA, lines.append)
        thread.join()
    (line,) = lines
    assert "whose certificate has expired: its operator can renew it" in line


def run_site(
    data: str,
    deployment: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dataset: str = "npz:/nowhere.npz",  # the server's test data are not on the site's machine
) -> int:
    """The exit code of the site's command, which raises Connected when it connects."""

    def connect(*_: object) -> None:
        raise Connected

    monkeypatch.setattr(site, "_wait_for_server", connect)
    keys.make_server_keys(tmp_path / "server", ["localhost"], days=1)
    keys.make_site_keys(tmp_path / "site")
    (tmp_path / "site" / keys.CA).write_bytes((tmp_path / "server" / keys.CA).read_bytes())
    file = tmp_path / "e.toml"
    e = Experiment.read({"dataset": dataset, "deployment": deployment})
    file.write_text(e.toml())
    words = ["deploy", "site", str(tmp_path / "site"), str(file)]
    monkeypatch.setattr("sys.argv", ["fedadb", *words, "--server", "localhost:1", "--data", data])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)
