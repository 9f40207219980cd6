"""From stored data to model inputs: three kinds of preprocessing.

`Transform` is for images, `Bounded` for vectors and other tensors whose range is known, and `AsIs`
for tensors of any range.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from fedadb.core.model import Domain


@dataclass(frozen=True)
class Transform:
    """Normalises images of pixels from 0 to 255 to (x/255 − mean) / std; augments them in training.

    Augmentation applies, in this order: a random zoom, a random crop after padding, a random
    horizontal flip, normalisation, and cutout (whose square then has the value of the mean).
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    zoom: float = 1.0  # smallest share of the image's area that a random zoom shows; 1: no zoom
    pad: int = 0  # pixels added on each side before a random crop to the original size
    pad_mode: str = "constant"  # "constant" pads with black, "reflect" mirrors the border
    flip: bool = False
    cutout: int = 0  # side of the square; 0: no cutout

    @cached_property
    def _scale(self) -> Tensor:
        return (1 / (255 * torch.tensor(self.std))).view(-1, 1, 1)

    @cached_property
    def _shift(self) -> Tensor:
        return (-torch.tensor(self.mean) / torch.tensor(self.std)).view(-1, 1, 1)

    def domain(self, shape: tuple[int, ...]) -> Domain:
        """The inputs of that shape: normalised images whose pixels were in [0, 1]."""
        return Domain(shape, self._shift, 255 * self._scale + self._shift)

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise only, as for evaluation."""
        # At the size of an image, they are combined with its pixels in a third of the time.
        height, width = images.shape[-2:]
        scale, shift = (
            factor.to(images.device).expand(-1, height, width).contiguous()
            for factor in (self._scale, self._shift)
        )
        return torch.addcmul(shift, images.float(), scale)

    def without_augmentation(self) -> "Transform":
        """The same normalisation, in training too."""
        return Transform(self.mean, self.std)

    def augment(self, images: Tensor, rng: Generator) -> Tensor:
        """Augment and normalise, as for training."""
        if self.zoom < 1:
            images = zoom_in(images, self.zoom, rng)
        if self.pad:
            images = crop(images, self.pad, self.pad_mode, rng)
        if self.flip:
            images = flip(images, rng)
        x = self.normalise(images)
        return cut_out(x, self.cutout, rng) if self.cutout else x


@dataclass(frozen=True)
class Bounded:
    """For tensors that already are the model's inputs, with the range of each of their values.

    The range is that of the training data. It is the domain in which FedADB's anchors lie.

    ```python
    transform = fedadb.Bounded.around(x)  # x is a batch of inputs
    assert transform.domain((10,)).low.shape == (10,)
    ```
    """

    low: tuple[float, ...]  # of each value of an input, in the order of the flattened input
    high: tuple[float, ...]

    @staticmethod
    def around(x: Tensor) -> "Bounded":
        """The range of each value over all rows."""
        low, high = torch.aminmax(x.flatten(1), dim=0)
        return Bounded(tuple(low.tolist()), tuple(high.tolist()))

    def domain(self, shape: tuple[int, ...]) -> Domain:
        """The inputs of that shape whose values are in the range."""
        return Domain(shape, *(torch.tensor(end).view(shape) for end in (self.low, self.high)))

    def normalise(self, x: Tensor) -> Tensor:
        return x

    def augment(self, x: Tensor, rng: Generator) -> Tensor:
        return x


@dataclass(frozen=True)
class AsIs:
    """For tensors of any range that already are the model's inputs.

    Nothing is normalised or augmented. FedADB needs the range: use `Bounded`.
    """

    def domain(self, shape: tuple[int, ...]) -> Domain:
        return Domain.unbounded(shape)

    def normalise(self, x: Tensor) -> Tensor:
        return x

    def augment(self, x: Tensor, rng: Generator) -> Tensor:
        return x


Preprocessing = Transform | Bounded | AsIs


def zoom_in(images: Tensor, smallest: float, rng: Generator) -> Tensor:
    """A random window of each image, stretched to the original size.

    The window has at least the `smallest` share of the area and an aspect ratio between 3:4 and
    4:3; a side that would exceed the image is cut to its length.
    """
    area, ratio, x, y = torch.rand(4, len(images), generator=rng).to(images.device)
    area = smallest + (1 - smallest) * area
    ratio = (4 / 3) ** (2 * ratio - 1)
    width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    # An affine map from the square [−1, 1]² to the window: scale, then shift within the image.
    zero = torch.zeros_like(width)
    across = torch.stack([width, zero, (2 * x - 1) * (1 - width)], dim=1)
    down = torch.stack([zero, height, (2 * y - 1) * (1 - height)], dim=1)
    grid = F.affine_grid(
        torch.stack([across, down], dim=1), list(images.shape), align_corners=False
    )
    return F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)


def crop(images: Tensor, pad: int, mode: str, rng: Generator) -> Tensor:
    """A random window of the original size from each padded image."""
    n, channels, height, width = images.shape
    if not n:  # a balanced batch may have anchors alone, and `unfold` needs a run of pixels
        return images
    if mode == "reflect":  # torch mirrors floats only; they represent bytes exactly
        padded = F.pad(images.float(), [pad] * 4, mode=mode).to(images.dtype)
    else:
        padded = F.pad(images, [pad] * 4)
    top, left = torch.randint(2 * pad + 1, (2, n), generator=rng).to(images.device)
    # A window is many runs of pixels, which are copied whole; indexing would copy single pixels.
    padded_height, padded_width = padded.shape[-2:]
    image, channel, row = (
        torch.arange(size, device=images.device) for size in (n, channels, height)
    )
    plane = (image[:, None] * channels + channel)[..., None]
    line = plane * padded_height + top[:, None, None] + row
    starts = line * padded_width + left[:, None, None]  # the place of each run among all pixels
    runs = padded.flatten().unfold(0, width, 1)  # every run of `width` pixels, as a view
    return runs.index_select(0, starts.flatten()).view(images.shape)


def flip(images: Tensor, rng: Generator) -> Tensor:
    """Mirror each image left to right with probability ½."""
    n = len(images)
    chosen = (torch.rand(n, generator=rng) < 0.5).to(images.device)
    # To select whole images takes a fifth of the time of torch.where, which selects each pixel.
    which = torch.arange(n, device=images.device) + n * chosen
    return torch.cat([images, images.flip(-1)]).index_select(0, which)


def cut_out(x: Tensor, side: int, rng: Generator) -> Tensor:
    """Set a square to zero; its centre is a random pixel, so it may extend beyond the image."""
    n, _, height, width = x.shape
    y0 = torch.randint(height, (n, 1), generator=rng).to(x.device) - side // 2
    x0 = torch.randint(width, (n, 1), generator=rng).to(x.device) - side // 2
    rows, columns = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    # As numbers, because torch combines truth values one by one, which takes four times as long.
    beside_rows = ((rows < y0) | (rows >= y0 + side)).to(x.dtype)
    beside_columns = ((columns < x0) | (columns >= x0 + side)).to(x.dtype)
    outside = torch.maximum(beside_rows[:, None, :, None], beside_columns[:, None, None, :])
    return torch.addcmul(x.new_zeros(()), x, outside)  # the sum with 0 leaves no −0
