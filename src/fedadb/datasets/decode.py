"""Decodes image files in parallel into one array of pixels, which is cached on disk."""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from numpy.lib.format import open_memmap, write_array_header_1_0
from numpy.typing import NDArray
from torch import Tensor

from fedadb.datasets.images import ImageFormat, complete_format, read_pixels
from fedadb.progress import Progress
from fedadb.storage.cache import cache_directory, make_directory

VERSION = 1  # of the decoding; a new version invalidates the cache
BLOCK = 64  # files that one thread decodes at a time


def decode(
    root: Path, files: Sequence[Path], format: ImageFormat | None, progress: Progress
) -> Tensor:
    """The images as uint8, N × channels × height × width, mapped from a file in the cache.

    A changed name, size or modification time of any file invalidates the cached array. If the
    cache cannot be written, the pixels stay in memory.

    Args:
        root: The folder that contains all files.
        files: The image files, in the order of the result.
        format: What to convert the images to; None: their most common size.
        progress: Reports the inspection and the decoding of the files.
    """
    cache = cache_directory() / "decoded"
    prefix = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:16]
    path = cache / f"{prefix}-{_fingerprint(root, files, format)}.npy"
    with suppress(OSError, ValueError, EOFError):  # missing or damaged
        return _map(path)
    format = complete_format(format, files, progress)
    try:
        make_directory(cache)
        # A unique name: another process may be decoding the same folder.
        file = tempfile.NamedTemporaryFile(dir=cache, prefix=f".{prefix}-", delete=False)  # noqa: SIM115
    except OSError:
        return _in_memory(files, format, progress)
    partial = Path(file.name)
    try:
        # Not written through a memory map, where a full disk would kill the process.
        with file:
            shape = (len(files), *format.shape)
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            write_array_header_1_0(file, header)
            for block in _decode_blocks(files, format, progress):
                file.write(block.tobytes())
        partial.replace(path)
    except OSError:
        return _in_memory(files, format, progress)
    finally:
        partial.unlink(missing_ok=True)
    for outdated in cache.glob(f"{prefix}-*"):
        if outdated != path:
            outdated.unlink(missing_ok=True)
    return _map(path)


def _map(path: Path) -> Tensor:
    """The array of an .npy file; writing to it changes memory only."""
    return torch.from_numpy(open_memmap(path, mode="c"))


def _in_memory(files: Sequence[Path], format: ImageFormat, progress: Progress) -> Tensor:
    return torch.from_numpy(np.concatenate(list(_decode_blocks(files, format, progress))))


def _fingerprint(root: Path, files: Sequence[Path], format: ImageFormat | None) -> str:
    digest = hashlib.sha256(f"{VERSION} {format}".encode())
    for path in files:
        status = path.stat()
        digest.update(os.fsencode(path.relative_to(root)))
        digest.update(f"\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _decode_blocks(
    files: Sequence[Path], format: ImageFormat, progress: Progress
) -> Iterator[NDArray[np.uint8]]:
    """The images in order, one block after the other, decoded by one thread per core."""
    groups = [files[i : i + BLOCK] for i in range(0, len(files), BLOCK)]

    def decode_block(group: Sequence[Path]) -> NDArray[np.uint8]:
        return np.stack([read_pixels(path, format) for path in group])

    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        progress("decoding images", len(files), "images") as advance,
    ):
        try:
            for block in pool.map(decode_block, groups):
                yield block
                advance(len(block))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
