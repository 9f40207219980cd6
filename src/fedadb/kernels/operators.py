"""The kernels as torch operators: a network of convolutions and linear layers, and its gradient.

They compute on CPUs, in float32, and first derivatives only: `Model` says when they are used.
"""

import ctypes
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedadb.kernels.library import library
from fedadb.kernels.registration import register, register_gradient

KERNELS = (0, 1, 3, 5, 7)  # 0: a linear layer
MOST_LAYERS = 32  # as in network.h
LARGEST = 2**24  # values of a layer for one image, so that 32 bits count those of a chunk


class Layer(NamedTuple):
    """A layer, and what follows it; the same struct as in network.h."""

    inputs: int  # channels, or features of a linear layer
    outputs: int
    kernel: int = 0  # 0: a linear layer
    padding: int = 0
    height: int = 1  # of the input
    width: int = 1
    relu: int = 0
    pool: int = 0  # 2×2 max-pooling with stride 2

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the result."""
        if not self.kernel:
            return self.outputs, 1, 1
        sides = (side + 2 * self.padding - self.kernel + 1 for side in (self.height, self.width))
        height, width = (side // 2 if self.pool else side for side in sides)
        return self.outputs, height, width

    @property
    def features(self) -> int:
        return math.prod(self.output_shape)

    @property
    def parameters(self) -> int:
        return self.outputs * (self.inputs * max(1, self.kernel**2) + 1)

    @property
    def input_size(self) -> int:
        """The values of its padded input, for one image."""
        return self.inputs * math.prod(s + 2 * self.padding for s in (self.height, self.width))


def _require_network(layers: Sequence[Layer]) -> None:
    """Raise ValueError for layers that the kernels do not compute."""
    linear = [layer.kernel == 0 for layer in layers]
    chained = all(
        (before.features == after.inputs)
        if after.kernel == 0
        else before.output_shape == (after.inputs, after.height, after.width)
        for before, after in itertools.pairwise(layers)
    )
    possible = all(
        layer.kernel in KERNELS
        and 0 <= layer.padding < max(1, layer.kernel)
        and min(layer.inputs, layer.outputs, *layer.output_shape) > 0
        and max(layer.features, layer.input_size) < LARGEST
        for layer in layers
    )
    # Convolutions come first, and there is at least one.
    ordered = 0 < len(layers) <= MOST_LAYERS and sorted(linear) == linear and not linear[0]
    if not (ordered and possible and chained):
        raise ValueError(f"the kernels compute no network of the layers {layers}")


@dataclass(frozen=True)
class Network:
    """Layers as an argument of the operators, and what the kernels need to know of them."""

    layers: tuple[Layer, ...]
    structs: Any
    lanes: int  # images of a block
    chunk: int  # images that pass through the linear layers together
    forward_work: int  # values of working memory
    backward_work: int

    # Every step asks for these.

    @cached_property
    def image_shape(self) -> tuple[int, int, int]:
        first = self.layers[0]
        return first.inputs, first.height, first.width

    @cached_property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @cached_property
    def saved_values(self) -> int:
        """For one image: the inputs of its layers."""
        return sum(layer.input_size for layer in self.layers)

    @cached_property
    def saved_choices(self) -> int:
        """For one image: which pixels were the largest."""
        return sum(layer.features for layer in self.layers if layer.kernel)

    @cached_property
    def padded(self) -> bool:
        return any(layer.padding for layer in self.layers)

    @cached_property
    def scratch_size(self) -> int:
        """One block at a time passes through the convolutions, and one chunk through the rest."""
        together = {True: self.lanes, False: self.chunk}
        return sum(layer.input_size * together[layer.kernel > 0] for layer in self.layers)

    def require(self, x: Tensor, weights: Tensor) -> None:
        """Raise ValueError for arguments that the kernels would read beyond the end of."""
        expected = [self.image_shape, (self.parameters,)]
        found = [tuple(x.shape[1:]), tuple(weights.shape)]
        if found != expected or {x.dtype, weights.dtype} != {torch.float32}:
            raise ValueError(
                f"the body takes images of shape {expected[0]} and {self.parameters} weights in "
                f"float32, not {found[0]} in {x.dtype} and {found[1]} in {weights.dtype}"
            )

    def require_saved(
        self,
        g: Tensor,
        y: Tensor,
        saved: Tensor,
        which: Tensor,
        weights: Tensor,
        shape: Sequence[int],
    ) -> None:
        """Raise ValueError for arguments of `backward` that are not those of `forward`."""
        images, *one = shape
        values, choices = self.saved(images)
        expected = [self.shape(images)] * 2 + [(values,), (choices,), (self.parameters,)]
        found = [tuple(tensor.shape) for tensor in (g, y, saved, which, weights)]
        if found != expected or tuple(one) != self.image_shape:
            raise ValueError(
                f"`forward` of {images} images of shape {self.image_shape} takes and returns "
                f"tensors of {expected}"
            )

    def shape(self, images: int) -> tuple[int, int]:
        """The shape of the result."""
        return images, self.layers[-1].features

    def saved(self, images: int) -> tuple[int, int]:
        """How many values and bytes the gradient needs, for whole blocks of images."""
        images = -(-images // self.lanes) * self.lanes
        return images * self.saved_values, images * self.saved_choices

    def scratch(self, x: Tensor, size: int) -> Tensor:
        """Memory for the layers' inputs, whose padding must be zero."""
        return x.new_zeros(size) if self.padded else x.new_empty(size)


def encode(layers: Sequence[Layer]) -> str:
    """The layers as text, which is what an operator can take."""
    return " ".join(str(number) for layer in layers for number in layer)


@lru_cache
def decode(program: str) -> Network:
    """The network that `encode` has written."""
    numbers, size = [int(number) for number in program.split()], len(Layer._fields)
    layers = tuple(Layer(*numbers[i : i + size]) for i in range(0, len(numbers), size))
    _require_network(layers)
    structs = (ctypes.c_int * len(numbers))(*numbers)
    kernels, count = library(), len(layers)
    return Network(
        layers,
        structs,
        kernels.fedadb_lanes(),
        kernels.fedadb_chunk(),
        kernels.fedadb_forward_work(structs, count),
        kernels.fedadb_backward_work(structs, count),
    )


def evaluate(x: Tensor, weights: Tensor, program: str) -> Tensor:
    """The features of the images, one row each."""
    result: Tensor = torch.ops.fedadb.evaluate(x, weights, program)
    return result


def forward(x: Tensor, weights: Tensor, program: str) -> Tensor:
    """The same, differentiable by x and by the weights."""
    y: Tensor = torch.ops.fedadb.forward(x, weights, program)[0]
    return y


def _evaluate(x: Tensor, weights: Tensor, program: str) -> Tensor:
    net = decode(program)
    y = x.new_empty(net.shape(len(x)))
    _run_forward(net, x, weights, net.scratch(x, net.scratch_size), None, y)
    return y


def _forward(x: Tensor, weights: Tensor, program: str) -> tuple[Tensor, Tensor, Tensor]:
    """Also returns what the gradient needs: layers' inputs, and which pixels were the largest."""
    net = decode(program)
    values, choices = net.saved(len(x))
    y, saved = x.new_empty(net.shape(len(x))), net.scratch(x, values)
    which = x.new_empty(choices, dtype=torch.uint8)
    _run_forward(net, x, weights, saved, which, y)
    return y, saved, which


def _run_forward(
    net: Network, x: Tensor, weights: Tensor, saved: Tensor, which: Tensor | None, y: Tensor
) -> None:
    net.require(x, weights)
    x, weights, work = x.contiguous(), weights.contiguous(), x.new_empty(net.forward_work)
    library().fedadb_forward(
        net.structs,
        len(net.layers),
        ctypes.c_void_p(x.data_ptr()),
        ctypes.c_long(len(x)),
        ctypes.c_void_p(weights.data_ptr()),
        ctypes.c_void_p(saved.data_ptr()),
        None if which is None else ctypes.c_void_p(which.data_ptr()),
        ctypes.c_void_p(work.data_ptr()),
        ctypes.c_void_p(y.data_ptr()),
    )


def _backward(
    g: Tensor,
    y: Tensor,
    saved: Tensor,
    which: Tensor,
    weights: Tensor,
    program: str,
    shape: list[int],
    of_weights: bool,
    of_input: bool,
) -> tuple[Tensor, Tensor]:
    """The gradients of the weights and of the input; each is empty if it is not asked for."""
    net = decode(program)
    net.require_saved(g, y, saved, which, weights, shape)
    gw, gx = _backward_shapes(g, y, saved, which, weights, program, shape, of_weights, of_input)
    g, weights, work = g.contiguous(), weights.contiguous(), g.new_empty(net.backward_work)
    library().fedadb_backward(
        net.structs,
        len(net.layers),
        ctypes.c_void_p(y.data_ptr()),
        ctypes.c_void_p(g.data_ptr()),
        ctypes.c_long(shape[0]),
        ctypes.c_void_p(weights.data_ptr()),
        ctypes.c_void_p(saved.data_ptr()),
        ctypes.c_void_p(which.data_ptr()),
        ctypes.c_void_p(work.data_ptr()),
        ctypes.c_void_p(gw.data_ptr()) if of_weights else None,
        ctypes.c_void_p(gx.data_ptr()) if of_input else None,
    )
    return gw, gx


def _evaluate_shapes(x: Tensor, weights: Tensor, program: str) -> Tensor:
    return x.new_empty(decode(program).shape(len(x)))


def _forward_shapes(x: Tensor, weights: Tensor, program: str) -> tuple[Tensor, Tensor, Tensor]:
    net = decode(program)
    values, choices = net.saved(len(x))
    which = x.new_empty(choices, dtype=torch.uint8)
    return x.new_empty(net.shape(len(x))), x.new_empty(values), which


def _backward_shapes(
    g: Tensor,
    y: Tensor,
    saved: Tensor,
    which: Tensor,
    weights: Tensor,
    program: str,
    shape: list[int],
    of_weights: bool,
    of_input: bool,
) -> tuple[Tensor, Tensor]:
    return g.new_empty(len(weights) if of_weights else 0), g.new_empty(shape if of_input else 0)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, weights, program = inputs
    y, saved, which = output
    ctx.save_for_backward(y, saved, which, weights)
    ctx.mark_non_differentiable(saved, which)
    ctx.set_materialize_grads(False)  # the saved megabytes have no gradient
    ctx.shape, ctx.program = list(x.shape), program


def _differentiate(ctx: Any, g: Tensor, *_: Any) -> Any:
    of_input, of_weights, _ = ctx.needs_input_grad
    gw, gx = torch.ops.fedadb.backward(
        g, *ctx.saved_tensors, ctx.program, ctx.shape, of_weights, of_input
    )
    return gx if of_input else None, gw if of_weights else None, None


register("evaluate(Tensor x, Tensor weights, str program) -> Tensor", _evaluate, _evaluate_shapes)
register(
    "forward(Tensor x, Tensor weights, str program) -> (Tensor, Tensor, Tensor)",
    _forward,
    _forward_shapes,
)
register(
    "backward(Tensor g, Tensor y, Tensor saved, Tensor which, Tensor weights, str program, "
    "int[] shape, bool of_weights, bool of_input) -> (Tensor, Tensor)",
    _backward,
    _backward_shapes,
)
register_gradient("forward", _differentiate, _keep)
