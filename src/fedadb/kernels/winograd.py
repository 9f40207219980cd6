"""3×3 convolutions of many channels as torch operators: stride 1, and a padding of 1.

They compute on CPUs, in float32, and first derivatives only: `FastConvolution` says when they are
used. Images in channels-last memory format are read where they are.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from fedadb.kernels.library import library
from fedadb.kernels.registration import register, register_gradient

CHANNELS = 16  # channel counts are multiples of it: whole vectors on every processor


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """The convolution of the images, differentiable by both arguments."""
    y: Tensor = torch.ops.fedadb.convolve(x, weight)
    return y


def _convolve(x: Tensor, weight: Tensor) -> Tensor:
    y = _convolve_shapes(x, weight)
    _run_convolution(x, weight, y, flipped=0)
    return y


def _input_gradient(g: Tensor, weight: Tensor) -> Tensor:
    gx = _input_gradient_shapes(g, weight)
    _run_convolution(g, weight, gx, flipped=1)
    return gx


def _run_convolution(x: Tensor, weight: Tensor, y: Tensor, flipped: int) -> None:
    x, weight = x.contiguous(memory_format=torch.channels_last), weight.contiguous()
    convolution = _struct(x, y)
    work = x.new_empty(library().fedadb_convolve_work(convolution))
    library().fedadb_convolve(
        convolution,
        ctypes.c_void_p(x.data_ptr()),
        ctypes.c_void_p(weight.data_ptr()),
        flipped,
        ctypes.c_void_p(work.data_ptr()),
        ctypes.c_void_p(y.data_ptr()),
    )


def _weight_gradient(g: Tensor, x: Tensor) -> Tensor:
    gw = _weight_gradient_shapes(g, x)
    g, x = (images.contiguous(memory_format=torch.channels_last) for images in (g, x))
    convolution = _struct(x, g)
    work = x.new_empty(library().fedadb_weight_gradient_work(convolution))
    library().fedadb_weight_gradient(
        convolution,
        ctypes.c_void_p(x.data_ptr()),
        ctypes.c_void_p(g.data_ptr()),
        ctypes.c_void_p(work.data_ptr()),
        ctypes.c_void_p(gw.data_ptr()),
    )
    return gw


def _struct(x: Tensor, y: Tensor) -> Any:
    """The same struct as in winograd.h."""
    images, inputs, height, width = x.shape
    return (ctypes.c_long * 5)(images, height, width, inputs, y.shape[1])


def _convolve_shapes(x: Tensor, weight: Tensor) -> Tensor:
    _require(x, weight, images=x.ndim == weight.ndim == 4 and x.shape[1] == weight.shape[1])
    return _images_like(x, weight.shape[0])


def _input_gradient_shapes(g: Tensor, weight: Tensor) -> Tensor:
    _require(g, weight, images=g.ndim == weight.ndim == 4 and g.shape[1] == weight.shape[0])
    return _images_like(g, weight.shape[1])


def _weight_gradient_shapes(g: Tensor, x: Tensor) -> Tensor:
    same = g.ndim == x.ndim == 4 and (len(g), *g.shape[2:]) == (len(x), *x.shape[2:])
    shape = (g.shape[1], x.shape[1], 3, 3) if same else (0, 0, 3, 3)
    gw = x.new_empty(shape)
    _require(g, gw, images=same)
    return gw


def _images_like(x: Tensor, channels: int) -> Tensor:
    shape = (len(x), channels, *x.shape[2:])
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


def _require(x: Tensor, weight: Tensor, images: bool) -> None:
    """Raise ValueError for arguments that the kernels would read beyond the end of."""
    fits = images and weight.shape[2:] == (3, 3)
    whole = all(channels > 0 and channels % CHANNELS == 0 for channels in weight.shape[:2])
    if not (fits and whole and x.dtype == weight.dtype == torch.float32):
        raise ValueError(
            f"the convolution takes images and 3×3 kernels in float32 whose channels agree and are "
            f"multiples of {CHANNELS}, not {tuple(x.shape)} in {x.dtype} and "
            f"{tuple(weight.shape)} in {weight.dtype}"
        )


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, g: Tensor) -> Any:
    x, weight = ctx.saved_tensors
    of_input, of_weight = ctx.needs_input_grad
    return (
        torch.ops.fedadb.input_gradient(g, weight) if of_input else None,
        torch.ops.fedadb.weight_gradient(g, x) if of_weight else None,
    )


register("convolve(Tensor x, Tensor weight) -> Tensor", _convolve, _convolve_shapes)
register(
    "input_gradient(Tensor g, Tensor weight) -> Tensor", _input_gradient, _input_gradient_shapes
)
register("weight_gradient(Tensor g, Tensor x) -> Tensor", _weight_gradient, _weight_gradient_shapes)
register_gradient("convolve", _differentiate, _keep)
