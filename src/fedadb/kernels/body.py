"""A body of small convolutions, computed by our own kernels."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedadb.kernels.operators import Layer, convolutions

LARGEST_KERNEL = 7
MOST_CHANNELS = 64  # with more, torch's kernels are as fast


@dataclass(frozen=True)
class LanesBody:
    """An nn.Sequential of convolutions, and then of linear layers, as a function of its weights.

    Images lie side by side in memory: a row of a matrix has one value of every image. So the linear
    layers multiply from the left, and nothing is transposed on the way.

    It computes one call at a time on a CPU, in float32, and first derivatives only. Whoever needs
    `torch.vmap`, second derivatives or another device uses the body itself.
    """

    program: tuple[int, ...]  # the fields of each convolution's Layer
    convolutions: tuple[str, ...]  # names of the modules
    rest: tuple[str | None, ...]  # names of the linear layers that follow; None: ReLU

    def __call__(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The features of the images, one row each."""
        weights = [parameters[f"{name}.weight"] for name in self.convolutions]
        biases = [parameters[f"{name}.bias"] for name in self.convolutions]
        columns, _, _ = convolutions(x, weights, biases, list(self.program))
        h = columns[:, : len(x)]
        for name in self.rest:
            if name is None:
                h = torch.relu(h)
            else:
                h = torch.addmm(parameters[f"{name}.bias"][:, None], parameters[f"{name}.weight"], h)
        return h.t()


def fast_body(body: nn.Module, shape: tuple[int, ...], path: str) -> LanesBody | None:
    """The body as a LanesBody; None if it is not made of layers that our kernels compute.

    Its parameters' names begin with `path`.
    """
    if not isinstance(body, nn.Sequential) or len(shape) != 3:
        return None
    modules = list(_leaves(body, path))
    layers: list[Layer] = []
    names: list[str] = []
    channels, height, width = shape
    while modules and (layer := _layer(modules[0][1], channels, height, width)):
        names.append(modules.pop(0)[0])
        while modules and (after := _after(layer, modules[0][1])):
            layer = after
            modules.pop(0)
        layers.append(layer)
        channels, height, width = layer.output_shape
        if height < 1 or width < 1:
            return None
    rest = _linear_layers(modules)
    if not layers or rest is None:
        return None
    return LanesBody(tuple(number for layer in layers for number in layer), tuple(names), rest)


def _leaves(body: nn.Sequential, path: str) -> Iterator[tuple[str, nn.Module]]:
    for name, module in body.named_children():
        if isinstance(module, nn.Sequential):
            yield from _leaves(module, f"{path}{name}.")
        else:
            yield path + name, module


def _layer(module: nn.Module, channels: int, height: int, width: int) -> Layer | None:
    """The convolution as a Layer; None if our kernels do not compute it."""
    if type(module) is not nn.Conv2d or module.bias is None:
        return None
    kernel = module.kernel_size[0]
    padding = (kernel // 2,) * 2 if module.padding == "same" else module.padding
    fits = (
        module.kernel_size == (kernel, kernel)
        and kernel % 2
        and kernel <= LARGEST_KERNEL
        and module.stride == module.dilation == (1, 1)
        and module.groups == 1
        and module.padding_mode == "zeros"
        and isinstance(padding, tuple)
        and padding[0] == padding[1] < kernel
        and module.in_channels == channels
        and max(channels, module.out_channels) <= MOST_CHANNELS
    )
    if not fits:
        return None
    return Layer(channels, module.out_channels, kernel, int(padding[0]), height, width, 0, 0)


def _after(layer: Layer, module: nn.Module) -> Layer | None:
    """The layer with the module after it; None if it is no ReLU or 2×2 pooling, or a second one."""
    if type(module) is nn.ReLU and not layer.relu:
        return layer._replace(relu=1)
    if type(module) is nn.MaxPool2d and not layer.pool:
        side, stride = (v if isinstance(v, tuple) else (v, v) for v in (module.kernel_size, module.stride))
        plain = module.padding in (0, (0, 0)) and module.dilation in (1, (1, 1))
        if side == stride == (2, 2) and plain and not module.ceil_mode and not module.return_indices:
            return layer._replace(pool=1)
    return None


def _linear_layers(modules: list[tuple[str, nn.Module]]) -> tuple[str | None, ...] | None:
    """The names of the linear layers after a Flatten, None for ReLU; None if others are there."""
    if not modules or type(modules[0][1]) is not nn.Flatten:
        return None
    if (modules[0][1].start_dim, modules[0][1].end_dim) != (1, -1):
        return None
    rest: list[str | None] = []
    for name, module in modules[1:]:
        if type(module) is nn.ReLU:
            rest.append(None)
        elif type(module) is nn.Linear and module.bias is not None:
            rest.append(name)
        else:
            return None
    return tuple(rest)
