"""Bodies of small convolutions, computed by our own kernels."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedadb.kernels.operators import (
    KERNELS,
    LARGEST,
    MOST_LAYERS,
    Layer,
    encode,
    evaluate,
    forward,
)

MOST_CHANNELS = 32  # with more, torch is as fast


@dataclass(frozen=True)
class LanesBody:
    """An nn.Sequential of convolutions and linear layers, as a function of its weights.

    It computes on CPUs, in float32, and first derivatives only.
    """

    layers: tuple[Layer, ...]

    @cached_property
    def _program(self) -> str:
        return encode(self.layers)

    @property
    def size(self) -> int:
        """The number of its weights."""
        return sum(layer.parameters for layer in self.layers)

    def __call__(self, weights: Tensor, x: Tensor) -> Tensor:
        """The features of the images, one row each; the weights are those of the body in order."""
        differentiable = torch.is_grad_enabled() and (x.requires_grad or weights.requires_grad)
        return (forward if differentiable else evaluate)(x, weights, self._program)


def fast_body(
    body: nn.Module, shape: tuple[int, ...], most_channels: int = MOST_CHANNELS
) -> LanesBody | None:
    """The body for images of that shape; None if our kernels do not compute it as it is.

    They compute convolutions with odd kernels, stride 1 and few channels, each with ReLU and 2×2
    max-pooling or without; then a Flatten, and linear layers, each with ReLU or without.
    """
    parameters = list(body.parameters())
    plain = all(map(is_plain, body.modules()))
    trained = all(p.requires_grad and p.dtype == torch.float32 for p in parameters)
    if len(shape) != 3 or not plain or not trained:
        return None
    modules = _leaves(body)
    layers = _take_convolutions(modules, shape, most_channels)
    if not layers or not modules or not _flattens(modules.pop(0)):
        return None
    layers += _take_linear_layers(modules, layers[-1].features)
    small = max(max(layer.features, layer.input_size) for layer in layers) < LARGEST
    if modules or len(layers) > MOST_LAYERS or not small:
        return None
    fast = LanesBody(tuple(layers))
    # The weights of a module that occurs twice are there once.
    return fast if fast.size == sum(p.numel() for p in parameters) else None


def _leaves(module: nn.Module) -> list[nn.Module]:
    """The modules in the order of their calls."""
    if type(module) is not nn.Sequential:
        return [module]
    return [leaf for part in module for leaf in _leaves(part)]


def is_plain(module: nn.Module) -> bool:
    """Whether a call of the module is its class's forward, and nothing else."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return not any(hooks) and "forward" not in vars(module)


def _take_convolutions(
    modules: list[nn.Module], shape: tuple[int, ...], most_channels: int
) -> list[Layer]:
    """Take the convolutions, with what follows each, off the front of the list."""
    layers: list[Layer] = []
    channels, height, width = shape
    while modules and (layer := _convolution(modules[0], channels, height, width)):
        modules.pop(0)
        while modules and (after := _followed(layer, modules[0])):
            layer = after
            modules.pop(0)
        if max(layer.inputs, layer.outputs) > most_channels:
            return []
        layers.append(layer)
        channels, height, width = layer.output_shape
    return layers


def _convolution(module: nn.Module, channels: int, height: int, width: int) -> Layer | None:
    if type(module) is not nn.Conv2d or module.bias is None:
        return None
    kernel = module.kernel_size[0]
    padding = (kernel // 2,) * 2 if module.padding == "same" else module.padding
    fits = (
        module.kernel_size == (kernel, kernel)
        and kernel in KERNELS
        and module.stride == module.dilation == (1, 1)
        and module.groups == 1
        and module.padding_mode == "zeros"
        and isinstance(padding, tuple)
        and padding[0] == padding[1] < kernel
    )
    if not fits:
        return None
    return Layer(channels, module.out_channels, kernel, int(padding[0]), height, width)


def _followed(layer: Layer, module: nn.Module) -> Layer | None:
    """The layer with that module after it; None if it is no ReLU or pooling, or a second one."""
    if type(module) is nn.ReLU and not layer.relu:
        return layer._replace(relu=1)
    if type(module) is nn.MaxPool2d and not layer.pool:
        sides = (module.kernel_size, module.stride, module.padding, module.dilation)
        plain = [side if isinstance(side, int) else set(side) for side in sides]
        fits = all(side in (n, {n}) for side, n in zip(plain, (2, 2, 0, 1), strict=True))
        if fits and not (module.ceil_mode or module.return_indices):
            return layer._replace(pool=1)
    return None


def _flattens(module: nn.Module) -> bool:
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)


def _take_linear_layers(modules: list[nn.Module], features: int) -> list[Layer]:
    """Take the linear layers, each with its ReLU, off the front of the list."""
    layers: list[Layer] = []
    while modules:
        module = modules[0]
        if type(module) is nn.ReLU and layers and not layers[-1].relu:
            layers[-1] = layers[-1]._replace(relu=1)
        elif type(module) is nn.Linear and module.bias is not None:
            layers.append(Layer(features, module.out_features))
            features = module.out_features
        else:
            break
        modules.pop(0)
    return layers
