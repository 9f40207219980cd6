"""What a model sees of an image: scaling, and the random changes made in training."""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from fedadb.core.model import Domain


@dataclass(frozen=True)
class Transform:
    """How uint8 images become inputs: (x/255 − mean) / std, and the augmentation in training.

    Augmentation happens in this order: a crop after padding, a horizontal flip, normalisation,
    a square cut out (which then has the value of the mean).
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: int = 0  # pixels added on each side before a random crop of the old size
    pad_mode: str = "constant"  # "constant" pads with black, "reflect" mirrors the border
    flip: bool = False
    cutout: int = 0  # side of the square that is cut out

    @cached_property
    def _scale(self) -> Tensor:
        return (1 / (255 * torch.tensor(self.std))).view(-1, 1, 1)

    @cached_property
    def _shift(self) -> Tensor:
        return (-torch.tensor(self.mean) / torch.tensor(self.std)).view(-1, 1, 1)

    def domain(self, shape: tuple[int, ...]) -> Domain:
        """The normalised images whose pixels lie in [0, 1]."""
        return Domain(shape, self._shift, 255 * self._scale + self._shift)

    def plain(self, images: Tensor) -> Tensor:
        """For evaluation: normalised, nothing else."""
        scale, shift = self._scale.to(images.device), self._shift.to(images.device)
        return torch.addcmul(shift, images.float(), scale)

    def augmented(self, images: Tensor, rng: Generator) -> Tensor:
        """For training."""
        if self.pad:
            images = crop(images, self.pad, self.pad_mode, rng)
        if self.flip:
            images = flip(images, rng)
        x = self.plain(images)
        return cut_out(x, self.cutout, rng) if self.cutout else x


@dataclass(frozen=True)
class AsIs:
    """Tensors that are the model's inputs already."""

    def plain(self, x: Tensor) -> Tensor:
        return x

    def augmented(self, x: Tensor, rng: Generator) -> Tensor:
        return x


def crop(images: Tensor, pad: int, mode: str, rng: Generator) -> Tensor:
    """A random window of the old size out of each padded image."""
    n, _, height, width = images.shape
    # Reflection padding exists for floating point only; bytes are exact in it.
    padded = F.pad(images.float(), [pad] * 4, mode=mode).to(images.dtype)
    top, left = torch.randint(2 * pad + 1, (2, n), generator=rng).to(images.device)
    rows = (top[:, None] + torch.arange(height, device=images.device))[:, :, None]
    columns = (left[:, None] + torch.arange(width, device=images.device))[:, None, :]
    which = torch.arange(n, device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[which, rows, columns].permute(0, 3, 1, 2)


def flip(images: Tensor, rng: Generator) -> Tensor:
    """Half of the images, mirrored left to right."""
    chosen = (torch.rand(len(images), generator=rng) < 0.5).to(images.device)
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)


def cut_out(x: Tensor, side: int, rng: Generator) -> Tensor:
    """Zero in a square whose centre is any pixel; what falls outside of the image is lost."""
    n, _, height, width = x.shape
    y0 = torch.randint(height, (n, 1), generator=rng).to(x.device) - side // 2
    x0 = torch.randint(width, (n, 1), generator=rng).to(x.device) - side // 2
    rows, columns = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    in_rows = (rows >= y0) & (rows < y0 + side)
    in_columns = (columns >= x0) & (columns < x0 + side)
    inside = in_rows[:, None, :, None] & in_columns[:, None, None, :]
    return x.masked_fill(inside, 0)
