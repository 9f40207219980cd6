"""Image files: opening them, and converting them to one size and colour mode."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedadb.core.errors import BadInput
from fedadb.progress import Progress

# The formats that are opened, by Pillow's names. Pillow recognises a file by its content, and some
# of its other formats start programs: PostScript, for one, is rendered by Ghostscript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
SMALLEST = 28  # pixels per side; every model needs at least as many
LARGEST = 89_478_485  # pixels; a small file can claim more than fit into memory
GREY = {"1", "L", "LA"}  # Pillow's names of pixel formats
GREY_16_BIT = {"I;16", "I;16L", "I;16B", "I;16N"}  # scanners write these
COLOUR = {"RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV"}


class ImageFormat(NamedTuple):
    """The size and colour mode that all images of a dataset are converted to."""

    width: int
    height: int
    mode: str  # "L" (grey) or "RGB"
    # The number of low bits that are dropped to make 16-bit grey 8-bit. None: as many as the
    # highest value among the images requires.
    shift: int | None = 8

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return 1 if self.mode == "L" else 3, self.height, self.width


def format_for(shape: tuple[int, ...], shift: int | None = 8) -> ImageFormat:
    """The format for a model whose inputs have these channels, height and width."""
    channels, height, width = shape
    if channels not in (1, 3):
        raise BadInput(f"the model takes {channels} channels, but image files have 1 or 3")
    return ImageFormat(width, height, "L" if channels == 1 else "RGB", shift)


def complete_format(
    format: ImageFormat | None, files: Sequence[Path], progress: Progress
) -> ImageFormat:
    """The format, with parts that are None taken from the images; None: all parts."""
    if format is not None and format.shift is not None:
        return format
    common = common_format(files, progress)
    return format._replace(shift=common.shift) if format else common


def common_format(files: Sequence[Path], progress: Progress) -> ImageFormat:
    """The most common size of the images, but at least 28×28; RGB if any image has colour."""
    sizes: Counter[tuple[int, int]] = Counter()
    modes = set()
    highest = 0  # value of 16-bit grey
    with progress("inspecting images", len(files), "images") as advance:
        for path in files:
            with open_image(path) as image:
                sizes[image.size] += 1
                modes.add(image.mode)
                if image.mode in GREY_16_BIT:
                    highest = max(highest, int(_read_16_bit(path, image).max()))
            advance(1)
    width, height = max(sizes, key=lambda size: (sizes[size], -size[0] * size[1]))
    mode = "L" if modes <= GREY | GREY_16_BIT else "RGB"
    shift = max(highest.bit_length() - 8, 0)
    return ImageFormat(max(width, SMALLEST), max(height, SMALLEST), mode, shift)


def open_image(path: Path) -> Image.Image:
    """Open the file and read its header; BadInput unless its pixels can be converted to 8 bits."""
    try:
        image = Image.open(path, formats=FORMATS)
    except UnidentifiedImageError as error:
        if Image.registered_extensions().get(path.suffix.lower(), "PNG") not in FORMATS:
            raise BadInput(f"{path} is not one of {', '.join(FORMATS)}; save it as PNG") from error
        raise BadInput(f"{path} is damaged or not an image; remove it") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadInput(_too_large(path)) from error
    except Exception as error:  # Pillow's decoders raise many kinds for a damaged file
        raise BadInput(f"{path} cannot be read as an image: {error}") from error
    if image.width * image.height > LARGEST:  # Pillow warns only, or nothing at all if it is set so
        image.close()
        raise BadInput(_too_large(path))
    if image.mode not in GREY | GREY_16_BIT | COLOUR:
        image.close()
        raise BadInput(f"{path} has pixels of type {image.mode}; save it with 8 or 16 bits")
    return image


def read_pixels(path: Path, format: ImageFormat) -> NDArray[np.uint8]:
    """One image as channels × height × width, resized (bicubic) and without transparency."""
    assert format.shift is not None, "call `complete_format` first"
    try:
        with open_image(path) as image:
            if image.mode in GREY_16_BIT:  # Pillow's own conversion would clip at 255
                high_bits = _read_16_bit(path, image) >> format.shift
                image = Image.fromarray(high_bits.astype(np.uint8))
            converted = image.convert(format.mode).resize((format.width, format.height))
    except BadInput:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds for a damaged file
        raise BadInput(f"{path} cannot be read as an image: {error}") from error
    pixels = np.asarray(converted, dtype=np.uint8).reshape(format.height, format.width, -1)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def has_image_name(path: Path) -> bool:
    """Whether the file has the name of an image in one of the formats that are opened."""
    return Image.registered_extensions().get(path.suffix.lower()) in FORMATS


def _too_large(path: Path) -> str:
    return f"{path} has more than {LARGEST:,} pixels; remove it, or save it with fewer"


def _read_16_bit(path: Path, image: Image.Image) -> NDArray[np.uint16]:
    try:
        return np.array(image)
    except Exception as error:  # Pillow's decoders raise many kinds for a damaged file
        raise BadInput(f"{path} cannot be read as an image: {error}") from error
