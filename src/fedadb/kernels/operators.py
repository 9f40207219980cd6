"""The kernels as torch operators: a network of convolutions and linear layers, and its gradient.

They compute on CPUs, in float32, and first derivatives only: LanesBody says when they are used.
"""

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedadb.kernels.library import library

LANES = 16  # images of a block
CHUNK = 4 * LANES  # images that pass through the linear layers together


class Layer(NamedTuple):
    """A layer, and what follows it; the same struct as in network.cpp."""

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
    def input_size(self) -> int:
        """The values of its padded input, for one image."""
        return self.inputs * math.prod(s + 2 * self.padding for s in (self.height, self.width))


def layers_of(program: Sequence[int]) -> list[Layer]:
    size = len(Layer._fields)
    return [Layer(*program[i : i + size]) for i in range(0, len(program), size)]


@torch.library.custom_op("fedadb::evaluate", mutates_args=())
def evaluate(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], program: list[int]
) -> Tensor:
    """The network's features: one column per image, and more up to a whole number of blocks."""
    layers = layers_of(program)
    # One block at a time passes through the convolutions, and one chunk through the rest.
    size = sum(layer.input_size * (LANES if layer.kernel else CHUNK) for layer in layers)
    y, saved = x.new_empty(_shape(len(x), layers)), _scratch(x, layers, size)
    _forward(x, weights, biases, program, saved, None, y)
    return y


@torch.library.custom_op("fedadb::forward", mutates_args=())
def forward(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], program: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, and what the gradient needs: inputs of the layers, and which pixels were largest."""
    layers = layers_of(program)
    values, choices = _saved(len(x), layers)
    y, saved = x.new_empty(_shape(len(x), layers)), _scratch(x, layers, values)
    which = x.new_empty(choices, dtype=torch.uint8)
    _forward(x, weights, biases, program, saved, which, y)
    return y, saved, which


@torch.library.custom_op("fedadb::backward", mutates_args=())
def backward(
    g: Tensor,
    y: Tensor,
    shape: list[int],
    weights: list[Tensor],
    saved: Tensor,
    which: Tensor,
    program: list[int],
    of_input: bool,
) -> list[Tensor]:
    """The gradients of the weights, of the biases and, if asked for, of the input."""
    structs, count = _structs(program)
    g, weights = g.contiguous(), [w.contiguous() for w in weights]
    gw = [torch.empty_like(w) for w in weights]
    gb = [g.new_empty(layer.outputs) for layer in layers_of(program)]
    gx = [g.new_empty(shape)] if of_input else []
    work = g.new_empty(library().fedadb_backward_work(structs, count))
    library().fedadb_backward(
        structs,
        count,
        _pointer(y),
        _pointer(g),
        ctypes.c_long(shape[0]),
        _pointers(weights),
        _pointer(saved),
        _pointer(which),
        _pointer(work),
        _pointers(gw),
        _pointers(gb),
        _pointer(gx[0]) if gx else None,
    )
    return [*gw, *gb, *gx]


@evaluate.register_fake
def _(x: Tensor, weights: list[Tensor], biases: list[Tensor], program: list[int]) -> Any:
    return x.new_empty(_shape(len(x), layers_of(program)))


@forward.register_fake
def _(x: Tensor, weights: list[Tensor], biases: list[Tensor], program: list[int]) -> Any:
    layers = layers_of(program)
    values, choices = _saved(len(x), layers)
    y = x.new_empty(_shape(len(x), layers))
    return y, x.new_empty(values), x.new_empty(choices, dtype=torch.uint8)


@backward.register_fake
def _(
    g: Tensor,
    y: Tensor,
    shape: list[int],
    weights: list[Tensor],
    saved: Tensor,
    which: Tensor,
    program: list[int],
    of_input: bool,
) -> Any:
    biases = [g.new_empty(layer.outputs) for layer in layers_of(program)]
    inputs = [g.new_empty(shape)] if of_input else []
    return [*(torch.empty_like(w) for w in weights), *biases, *inputs]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, weights, _, program = inputs
    ctx.save_for_backward(*output, *weights)
    ctx.shape, ctx.program = list(x.shape), program


def _differentiate(ctx: Any, g: Tensor, *_: Any) -> Any:
    y, saved, which, *weights = ctx.saved_tensors
    of_input, n = ctx.needs_input_grad[0], len(weights)
    found = torch.ops.fedadb.backward(
        g, y, ctx.shape, weights, saved, which, ctx.program, of_input
    )
    return (found[2 * n] if of_input else None), found[:n], found[n : 2 * n], None


forward.register_autograd(_differentiate, setup_context=_keep)


def _forward(
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    program: list[int],
    saved: Tensor,
    which: Tensor | None,
    y: Tensor,
) -> None:
    structs, count = _structs(program)
    x = x.contiguous()
    weights, biases = [w.contiguous() for w in weights], [b.contiguous() for b in biases]
    work = x.new_empty(library().fedadb_forward_work(structs, count))
    library().fedadb_forward(
        structs,
        count,
        _pointer(x),
        ctypes.c_long(len(x)),
        _pointers(weights),
        _pointers(biases),
        _pointer(saved),
        None if which is None else _pointer(which),
        _pointer(work),
        _pointer(y),
    )


def _blocks(images: int) -> int:
    return -(-images // LANES)


def _shape(images: int, layers: Sequence[Layer]) -> tuple[int, int]:
    """The shape of the result: features × columns."""
    return layers[-1].features, _blocks(images) * LANES


def _saved(images: int, layers: Sequence[Layer]) -> tuple[int, int]:
    """How many values and bytes the gradient of that many images needs."""
    values = sum(layer.input_size for layer in layers)
    choices = sum(layer.features for layer in layers if layer.kernel)
    return _blocks(images) * LANES * values, _blocks(images) * LANES * choices


def _scratch(x: Tensor, layers: Sequence[Layer], size: int) -> Tensor:
    """Memory for the layers' inputs, whose padding must be zero."""
    padded = any(layer.padding for layer in layers)
    return x.new_zeros(size) if padded else x.new_empty(size)


def _structs(program: Sequence[int]) -> tuple[Any, int]:
    return (ctypes.c_int * len(program))(*program), len(program) // len(Layer._fields)


# Whoever calls these keeps the tensors until the kernels have returned.


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _pointers(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
