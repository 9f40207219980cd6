"""Unpacking archives: good ones, malicious ones and damaged ones."""

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fedadb.core.errors import Fault
from fedadb.datasets.archive import find_marker, unpack_archive
from fedadb.progress import no_progress


def tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zipped(path: Path, name: str, content: bytes, attributes: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = attributes
        archive.writestr(info, content)
    return path


def test_regular_files_are_unpacked(tmp_path: Path) -> None:
    tar(
        tmp_path / "a.tar.gz",
        (member("./data", tarfile.DIRTYPE), b""),
        (member("./data/deep/one.bin"), b"1" * 5000),
        (member("two.bin"), b""),
    )
    unpack_archive(tmp_path / "a.tar.gz", tmp_path / "a", 5000, no_progress)
    assert (tmp_path / "a/data/deep/one.bin").read_bytes() == b"1" * 5000
    assert (tmp_path / "a/two.bin").read_bytes() == b""
    unpack_archive(zipped(tmp_path / "b.zip", "x/y.txt", b"hello"), tmp_path / "b", 5, no_progress)
    assert (tmp_path / "b/x/y.txt").read_text() == "hello"
    assert find_marker(tmp_path / "b", "y.txt") == tmp_path / "b/x"
    with pytest.raises(Fault, match=r"contains no z\.txt"):
        find_marker(tmp_path / "b", "z.txt")


Maker = Callable[[Path], Path]
MALICIOUS: list[tuple[str, Maker, str]] = [
    ("up", lambda p: tar(p, (member("../evil"), b"x")), "leads outside of its folder, ../evil"),
    ("up inside", lambda p: tar(p, (member("a/../../evil"), b"x")), "leads outside of its folder"),
    (
        "absolute",
        lambda p: tar(p, (member("/etc/evil"), b"x")),
        "leads outside of its folder, /etc/evil",
    ),
    ("link", lambda p: tar(p, (member("a", tarfile.SYMTYPE, "/etc"), b"")), "contains a link, a"),
    ("hard", lambda p: tar(p, (member("a", tarfile.LNKTYPE, "b"), b"")), "contains a link, a"),
    ("device", lambda p: tar(p, (member("a", tarfile.CHRTYPE), b"")), "contains a special file, a"),
    ("pipe", lambda p: tar(p, (member("a", tarfile.FIFOTYPE), b"")), "contains a special file, a"),
    ("large", lambda p: tar(p, (member("a"), b"0" * 100_001)), "unpacks to more than 100000 bytes"),
    ("twice", lambda p: tar(p, (member("a"), b"1"), (member("./a"), b"2")), "twice"),
    ("both", lambda p: tar(p, (member("a"), b"1"), (member("a/b"), b"2")), "contains .*a.* twice"),
    ("zip up", lambda p: zipped(p, "../evil", b"x"), "leads outside of its folder, ../evil"),
    ("zip back", lambda p: zipped(p, "..\\evil", b"x"), "leads outside of its folder"),
    ("zip drive", lambda p: zipped(p, "C:/evil", b"x"), "leads outside of its folder"),
    ("zip link", lambda p: zipped(p, "a", b"/etc", 0o120777 << 16), "contains a link, a"),
    ("zip bomb", lambda p: zipped(p, "a", b"0" * 50_000_000), "unpacks to more than 100000 bytes"),
]


@pytest.mark.parametrize(
    ("make", "message"), [h[1:] for h in MALICIOUS], ids=[h[0] for h in MALICIOUS]
)
def test_malicious_archives_are_refused(make: Maker, message: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(Fault, match=message):
        unpack_archive(make(inside / "archive"), inside / "out", 100_000, no_progress)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != ".cache") == ["inside"]
    assert sorted(p.name for p in inside.iterdir()) == ["archive", "out"]
    assert sum(p.stat().st_size for p in (inside / "out").rglob("*")) <= 100_000 + 2**20


def test_damaged_archives_are_faults(tmp_path: Path) -> None:
    complete = tar(tmp_path / "a.tar.gz", (member("a"), bytes(range(256)) * 400)).read_bytes()
    as_zip = zipped(tmp_path / "a.zip", "a", bytes(range(256)) * 400).read_bytes()
    broken = bytearray(as_zip)
    broken[60:80] = bytes(20)
    for i, content in enumerate((complete[:-100], complete[:50], b"", b"text", bytes(broken))):
        (tmp_path / "damaged").write_bytes(content)
        with pytest.raises(Fault, match="damaged is damaged: "):
            unpack_archive(tmp_path / "damaged", tmp_path / str(i), 10**6, no_progress)
