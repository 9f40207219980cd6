"""Bodies whose 3×3 convolutions of many channels are computed by our own kernels."""

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from fedadb.core.vector import stacking
from fedadb.kernels.body import is_plain
from fedadb.kernels.winograd import CHANNELS, convolve

FEWEST_CHANNELS = 32  # with fewer, torch is almost as fast
SMALLEST_SIDE = 3  # of an image; tiles have 4 pixels


class FastConvolution(nn.Conv2d):
    """A convolution that our own kernels compute: on a CPU, in float32, and outside of torch.func.

    They have first derivatives only, and no forward-mode ones. Everything else is torch's.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self._suits(x):
            return super().forward(x)
        y = convolve(x, self.weight)
        return y if self.bias is None else y + self.bias[:, None, None]

    def _suits(self, x: Tensor) -> bool:
        return (
            x.ndim == 4
            and min(x.shape[2:]) >= SMALLEST_SIDE
            and x.shape[1] == self.in_channels
            and x.dtype == self.weight.dtype == torch.float32
            and x.device.type == self.weight.device.type == "cpu"
            and not torch.is_autocast_enabled("cpu")
            and not stacking()
            and forward_ad._current_level < 0
        )


def use_kernels(body: nn.Module) -> None:
    """From now on, our kernels compute what they are faster at.

    These are 3×3 convolutions of at least 32 channels with stride 1 and a padding of 1. The body
    itself changes: a copy's own functions could still call the modules of the original.
    """
    for module in body.modules():
        if is_fast(module):
            module.__class__ = FastConvolution


def use_torch(body: nn.Module) -> None:
    """Undo `use_kernels`."""
    for module in body.modules():
        if isinstance(module, FastConvolution):
            setattr(module, "__class__", nn.Conv2d)  # noqa: B010


def is_fast(module: nn.Module) -> bool:
    """Whether our kernels are faster than torch's at this module."""
    return (
        type(module) is nn.Conv2d
        and is_plain(module)
        and module.kernel_size == (3, 3)
        and module.stride == module.dilation == (1, 1)
        and module.padding in ((1, 1), "same")
        and module.padding_mode == "zeros"
        and module.groups == 1
        and all(
            channels >= FEWEST_CHANNELS and channels % CHANNELS == 0
            for channels in (module.in_channels, module.out_channels)
        )
    )
