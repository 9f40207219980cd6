"""Image files as tensors of one size."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fedadb.core.errors import BadInput

SMALLEST = 28  # what the smallest model takes
GREY = {"1", "L", "LA"}
DEEP = {"I;16", "I;16L", "I;16B", "I;16N"}  # 16-bit grey, as scanners write it
COLOUR = {"RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV"}


def decode(files: list[Path]) -> Iterator[Tensor]:
    """The images in one size, the most common among them; in colour if any is."""
    sizes: Counter[tuple[int, int]] = Counter()
    modes = set()
    for path in files:
        with _opened(path) as image:
            sizes[image.size] += 1
            modes.add(image.mode)
        if image.mode not in GREY | DEEP | COLOUR:
            raise BadInput(f"{path} has pixels of kind {image.mode}: save it with 8 or 16 bits")
    width, height = max(sizes, key=lambda size: (sizes[size], -size[0] * size[1]))
    size = max(width, SMALLEST), max(height, SMALLEST)
    mode = "L" if modes <= GREY | DEEP else "RGB"
    for path in files:
        try:
            with _opened(path) as image:
                pixels = np.array(_eight_bits(image).convert(mode).resize(size))
        except Exception as error:  # whatever a damaged file makes its decoder raise
            raise BadInput(f"{path} cannot be read as an image: {error}") from error
        yield torch.from_numpy(pixels).view(size[1], size[0], -1).permute(2, 0, 1)


def _opened(path: Path) -> Image.Image:
    try:
        return Image.open(path)
    except Exception as error:  # whatever a damaged file makes its decoder raise
        raise BadInput(f"{path} cannot be read as an image: {error}") from error


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey scaled down; converting would cut it off at 255."""
    if image.mode not in DEEP:
        return image
    return Image.fromarray((np.array(image) >> 8).astype(np.uint8))
