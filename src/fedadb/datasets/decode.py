"""Image files as one array of pixels, decoded once and kept."""

import hashlib
import io
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from fedadb.core.errors import BadInput
from fedadb.progress import Progress
from fedadb.datasets.source import cache

SMALLEST = 28  # what the smallest model takes
GREY = {"1", "L", "LA"}
DEEP = {"I;16", "I;16L", "I;16B", "I;16N"}  # 16-bit grey, as scanners write it
COLOUR = {"RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV"}
VERSION = 1  # of how pixels are made: another one makes what is kept anew
AT_ONCE = 64  # files that a thread decodes before it hands them over


class Look(NamedTuple):
    """What all images are made to look like."""

    width: int
    height: int
    mode: str  # "L" or "RGB"
    shift: int = 8  # bits that 16-bit grey loses; fewer if its highest value needs fewer

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1 if self.mode == "L" else 3, self.height, self.width


def decode(root: Path, files: Sequence[Path], look: Look | None, progress: Progress) -> Tensor:
    """The images as uint8, N × channels × height × width, mapped from a file of the user's cache.

    That file is made anew whenever a name, a size or a time of the files below the root has
    changed. Where it cannot be written the pixels are held in memory.
    """
    kept = cache() / "decoded"
    prefix = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:16]
    path = kept / f"{prefix}-{_fingerprint(root, files, look)}.npy"
    with suppress(OSError, ValueError, EOFError):  # not there, or damaged
        return _mapped(path)
    look = look or common_look(files, progress)
    try:
        kept.mkdir(parents=True, exist_ok=True)
        # A name of its own: another process may be decoding the same folder.
        file = tempfile.NamedTemporaryFile(dir=kept, prefix=f".{prefix}-", delete=False)  # noqa: SIM115
    except OSError:
        return torch.from_numpy(np.concatenate(list(_blocks(files, look, progress))))
    partial = Path(file.name)
    try:
        with file:
            file.write(_header((len(files), *look.shape)))
            for block in _blocks(files, look, progress):
                file.write(block.tobytes())
        partial.replace(path)
    except OSError:
        return torch.from_numpy(np.concatenate(list(_blocks(files, look, progress))))
    finally:
        partial.unlink(missing_ok=True)
    for old in kept.glob(f"{prefix}-*"):
        if old != path:
            old.unlink(missing_ok=True)
    return _mapped(path)


def _mapped(path: Path) -> Tensor:
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


def common_look(files: Sequence[Path], progress: Progress) -> Look:
    """The most common size among the images, at least the smallest; in colour if any is."""
    sizes: Counter[tuple[int, int]] = Counter()
    modes = set()
    highest = 0  # of 16-bit grey
    with progress("looking at images", len(files), "images") as advance:
        for path in files:
            with opened(path) as image:
                sizes[image.size] += 1
                modes.add(image.mode)
                if image.mode in DEEP:
                    highest = max(highest, int(_deep(path, image).max()))
            advance(1)
    width, height = max(sizes, key=lambda size: (sizes[size], -size[0] * size[1]))
    mode = "L" if modes <= GREY | DEEP else "RGB"
    shift = max(highest.bit_length() - 8, 0)
    return Look(max(width, SMALLEST), max(height, SMALLEST), mode, shift)


def _fingerprint(root: Path, files: Sequence[Path], look: Look | None) -> str:
    digest = hashlib.sha256(f"{VERSION} {look}".encode())
    for path in files:
        about = path.stat()
        digest.update(os.fsencode(path.relative_to(root)))
        digest.update(f"\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _header(shape: tuple[int, ...]) -> bytes:
    """The beginning of an .npy file of bytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    return header.getvalue()


def _blocks(files: Sequence[Path], look: Look, progress: Progress) -> Iterator[NDArray[np.uint8]]:
    """The images in their order, some at a time, decoded by a thread a core."""
    groups = [files[i : i + AT_ONCE] for i in range(0, len(files), AT_ONCE)]

    def block_of(group: Sequence[Path]) -> NDArray[np.uint8]:
        return np.stack([pixels_of(path, look) for path in group])

    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        progress("decoding images", len(files), "images") as advance,
    ):
        try:
            for block in pool.map(block_of, groups):
                yield block
                advance(len(block))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def pixels_of(path: Path, look: Look) -> NDArray[np.uint8]:
    """One image, channels × height × width: stretched to the size (bicubic), alpha dropped."""
    try:
        with opened(path) as image:
            if image.mode in DEEP:  # scaled down; converting would cut it off at 255
                image = Image.fromarray((_deep(path, image) >> look.shift).astype(np.uint8))
            plain = image.convert(look.mode).resize((look.width, look.height))
    except BadInput:
        raise
    except Exception as error:  # whatever a damaged file makes its decoder raise
        raise BadInput(f"{path} cannot be read as an image: {error}") from error
    pixels = np.asarray(plain, dtype=np.uint8).reshape(look.height, look.width, -1)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def opened(path: Path) -> Image.Image:
    """The image, of pixels that can be made 8 bits; only its header has been read yet."""
    try:
        image = Image.open(path)
    except UnidentifiedImageError as error:
        raise BadInput(f"{path} is not an image, or damaged: move it away") from error
    except Exception as error:  # whatever a damaged file makes its decoder raise
        raise BadInput(f"{path} cannot be read as an image: {error}") from error
    if image.mode not in GREY | DEEP | COLOUR:
        image.close()
        raise BadInput(f"{path} has pixels of kind {image.mode}: save it with 8 or 16 bits")
    return image


def _deep(path: Path, image: Image.Image) -> NDArray[np.uint16]:
    try:
        return np.array(image)
    except Exception as error:  # whatever a damaged file makes its decoder raise
        raise BadInput(f"{path} cannot be read as an image: {error}") from error
