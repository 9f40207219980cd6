"""A body of small convolutions, computed by our own kernels."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedadb.kernels.operators import Layer, evaluate, forward

LARGEST_KERNEL = 7
MOST_CHANNELS = 64  # with more, torch's kernels are as fast
MOST_LAYERS = 32

Named = tuple[str, nn.Module]


@dataclass(frozen=True)
class LanesBody:
    """An nn.Sequential of convolutions and linear layers, as a function of its weights.

    It computes on CPUs, in float32, and first derivatives only. Whoever needs `torch.vmap`, second
    derivatives or another device uses the body itself.
    """

    names: tuple[str, ...]  # of the modules
    program: tuple[int, ...]  # the fields of each module's Layer

    def __call__(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The features of the images, one row each."""
        weights = [parameters[f"{name}.weight"] for name in self.names]
        biases = [parameters[f"{name}.bias"] for name in self.names]
        if torch.is_grad_enabled() and any(t.requires_grad for t in (x, *weights, *biases)):
            columns, _, _ = forward(x, weights, biases, list(self.program))
        else:
            columns = evaluate(x, weights, biases, list(self.program))
        return columns[:, : len(x)].t()


def fast_body(body: nn.Module, shape: tuple[int, ...], path: str) -> LanesBody | None:
    """The body as a LanesBody; None if it is not made of layers that our kernels compute.

    Its parameters' names begin with `path`.
    """
    if type(body) is not nn.Sequential or len(shape) != 3:
        return None
    modules = list(_leaves(body, path))
    trained = [module for _, module in modules if list(module.parameters())]
    if len(set(trained)) < len(trained) or not all(map(_plain, (body, *body.modules()))):
        return None
    named = [*_convolutions(modules, shape)]
    if not named:
        return None
    named += _linear_layers(modules, named[-1][1].features)
    if modules or len(named) > MOST_LAYERS:
        return None
    layers = [layer for _, layer in named]
    return LanesBody(
        tuple(name for name, _ in named), tuple(number for layer in layers for number in layer)
    )


def _plain(module: nn.Module) -> bool:
    """Whether calling the module is its class's forward, and nothing else."""
    return not (module._forward_hooks or module._forward_pre_hooks)


def _leaves(body: nn.Sequential, path: str) -> Iterator[Named]:
    for name, module in body._modules.items():  # named_children would leave out repetitions
        assert module is not None
        if type(module) is nn.Sequential and _plain(module):
            yield from _leaves(module, f"{path}{name}.")
        else:
            yield path + name, module


def _convolutions(modules: list[Named], shape: tuple[int, ...]) -> Iterator[tuple[str, Layer]]:
    """Takes the convolutions, with what follows each, off the front of the list."""
    channels, height, width = shape
    while modules and (layer := _convolution(modules[0][1], channels, height, width)):
        name, _ = modules.pop(0)
        while modules and (after := _followed(layer, modules[0][1])):
            layer = after
            modules.pop(0)
        yield name, layer
        channels, height, width = layer.output_shape


def _convolution(module: nn.Module, channels: int, height: int, width: int) -> Layer | None:
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


def _followed(layer: Layer, module: nn.Module) -> Layer | None:
    """The layer with the module after it; None if it is no ReLU or 2×2 pooling, or a second one."""
    if type(module) is nn.ReLU and not layer.relu:
        return layer._replace(relu=1)
    if type(module) is nn.MaxPool2d and not layer.pool:
        side, stride = (v if isinstance(v, tuple) else (v, v) for v in (module.kernel_size, module.stride))
        plain = module.padding in (0, (0, 0)) and module.dilation in (1, (1, 1))
        if side == stride == (2, 2) and plain and not module.ceil_mode and not module.return_indices:
            return layer._replace(pool=1)
    return None


def _linear_layers(modules: list[Named], features: int) -> Iterator[tuple[str, Layer]]:
    """Takes a Flatten, and the linear layers with their ReLUs, off the front of the list."""
    if not modules or not _flattens(modules[0][1]):
        return
    modules.pop(0)
    while modules and type(module := modules[0][1]) is nn.Linear:
        if module.bias is None or module.in_features != features:
            return
        name, _ = modules.pop(0)
        features = module.out_features
        relu = bool(modules) and type(modules[0][1]) is nn.ReLU
        if relu:
            modules.pop(0)
        yield name, Layer(module.in_features, features, relu=int(relu))


def _flattens(module: nn.Module) -> bool:
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)
