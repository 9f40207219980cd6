"""The kernels as torch operators: a stack of convolutions, and its gradient.

Second derivatives, `torch.vmap` and other devices are not supported: `FastBody` says when these
operators are used.
"""

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedadb.kernels.library import library

LANES = 16  # images of a block


class Layer(NamedTuple):
    """A convolution, and what follows it; the same struct as in lanes.cpp."""

    inputs: int  # channels
    outputs: int
    kernel: int
    padding: int
    height: int  # of the input
    width: int
    relu: int
    pool: int  # 2×2 max-pooling with stride 2

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the result."""
        sides = (side + 2 * self.padding - self.kernel + 1 for side in (self.height, self.width))
        height, width = (side // 2 if self.pool else side for side in sides)
        return self.outputs, height, width

    @property
    def saved_values(self) -> int:
        """The values of its padded input, for a block of images."""
        sides = (side + 2 * self.padding for side in (self.height, self.width))
        return self.inputs * math.prod(sides) * LANES


def layers_of(program: Sequence[int]) -> list[Layer]:
    size = len(Layer._fields)
    return [Layer(*program[i : i + size]) for i in range(0, len(program), size)]


@torch.library.custom_op("fedadb::convolutions", mutates_args=())
def convolutions(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], program: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """The stack's features, one column per image and rounded up to whole blocks of images.

    Also returns what the gradient needs: the input of each layer, and which pixels were the largest.
    """
    layers = layers_of(program)
    structs, count, blocks = _structs(program), len(layers), -(-len(x) // LANES)
    # Padding and lanes without an image are zero; without them, every value is written.
    full = len(x) % LANES == 0 and not any(layer.padding for layer in layers)
    allocate = x.new_empty if full else x.new_zeros
    saved = allocate(blocks * library().fedadb_saved_values(structs, count))
    which = x.new_empty(
        blocks * library().fedadb_saved_bytes(structs, count), dtype=torch.uint8
    )
    work = x.new_empty(library().fedadb_work(structs, count))
    channels, height, width = layers[-1].output_shape
    y = x.new_empty(channels * height * width, blocks * LANES)
    library().fedadb_forward(
        structs,
        count,
        _pointer(x.contiguous()),
        ctypes.c_long(len(x)),
        _pointers(weights),
        _pointers(biases),
        _pointer(saved),
        _pointer(which),
        _pointer(work),
        _pointer(y),
    )
    return y, saved, which


@torch.library.custom_op("fedadb::convolutions_backward", mutates_args=())
def convolutions_backward(
    g: Tensor,
    shape: list[int],
    weights: list[Tensor],
    saved: Tensor,
    which: Tensor,
    program: list[int],
    of_input: bool,
) -> list[Tensor]:
    """The gradients of the weights, of the biases and, if asked for, of the input."""
    layers = layers_of(program)
    structs, count = _structs(program), len(layers)
    gw = [torch.zeros_like(w) for w in weights]
    gb = [g.new_zeros(layer.outputs) for layer in layers]
    gx = [g.new_empty(shape)] if of_input else []
    work = g.new_empty(library().fedadb_work(structs, count))
    library().fedadb_backward(
        structs,
        count,
        _pointer(g.contiguous()),
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


@convolutions.register_fake
def _(x: Tensor, weights: list[Tensor], biases: list[Tensor], program: list[int]) -> Any:
    layers, blocks = layers_of(program), -(-len(x) // LANES)
    saved = sum(layer.saved_values for layer in layers)
    which = sum(math.prod(layer.output_shape) for layer in layers) * LANES
    return (
        x.new_empty(math.prod(layers[-1].output_shape), blocks * LANES),
        x.new_empty(blocks * saved),
        x.new_empty(blocks * which, dtype=torch.uint8),
    )


@convolutions_backward.register_fake
def _(
    g: Tensor,
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
    _, saved, which = output
    ctx.save_for_backward(saved, which, *weights)
    ctx.shape, ctx.program = list(x.shape), program


def _differentiate(ctx: Any, g: Tensor, *_: Any) -> Any:
    saved, which, *weights = ctx.saved_tensors
    of_input, n = ctx.needs_input_grad[0], len(weights)
    found = torch.ops.fedadb.convolutions_backward(
        g, ctx.shape, weights, saved, which, ctx.program, of_input
    )
    return (found[2 * n] if of_input else None), found[:n], found[n : 2 * n], None


convolutions.register_autograd(_differentiate, setup_context=_keep)


def _structs(program: Sequence[int]) -> Any:
    return (ctypes.c_int * len(program))(*program)


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _pointers(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
