"""Which image files are opened, and which are refused."""

import os
import struct
import zlib
from pathlib import Path

import pytest
from PIL import EpsImagePlugin, Image

from fedadb.core.errors import BadInput
from fedadb.datasets.images import FORMATS, LARGEST, format_for, open_image, read_pixels

GREY = format_for((1, 28, 28))


@pytest.fixture
def ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called gs, which creates this file when it is started."""
    started = tmp_path / "started"
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {started}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # so that Pillow searches again
    return started


@pytest.mark.parametrize("name", ["x.png", "x.eps"])
def test_postscript_is_not_rendered_whatever_its_name(
    name: str, ghostscript: Path, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 40\n%%EndComments\nshowpage\n")
    with pytest.raises(BadInput, match=r"is damaged or not an image|is not one of BMP, GIF, JPEG"):
        read_pixels(path, GREY)
    assert not ghostscript.exists()


@pytest.mark.parametrize("kind", FORMATS)
def test_all_formats_that_are_named_can_be_opened(kind: str, tmp_path: Path) -> None:
    Image.new("L", (30, 40), 200).save(tmp_path / "x", format=kind)
    assert abs(int(read_pixels(tmp_path / "x", GREY).mean()) - 200) <= 1


def claiming(width: int, height: int) -> bytes:
    """A small PNG file that claims this size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + header + rows + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore")  # as for users: Pillow's warning is no error for them
@pytest.mark.parametrize("height", [20_000, 60_000])  # Pillow warns of one and refuses the other
def test_an_image_that_claims_too_many_pixels_is_refused(height: int, tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(claiming(6_000, height))
    with pytest.raises(BadInput, match=f"bomb.png has more than {LARGEST:,} pixels"):
        open_image(path)
