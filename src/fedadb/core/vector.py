"""Weights as one flat tensor, so that code reads like the equations."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import register_pytree_node

from fedadb.core.errors import BadInput


@dataclass(frozen=True)
class Layout:
    """The names and shapes of the tensors that a flat tensor consists of, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(tensors: Mapping[str, Tensor]) -> "Layout":
        return Layout(tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()))

    @cached_property
    def sizes(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes]

    @cached_property
    def slots(self) -> dict[str, tuple[int, int, tuple[int, ...]]]:
        """Each name's offset, size and shape."""
        offsets = itertools.accumulate(self.sizes, initial=0)
        return {
            name: (offset, size, shape)
            for name, offset, size, shape in zip(
                self.names, offsets, self.sizes, self.shapes, strict=False
            )
        }


class Vector:
    """A point in parameter space: one contiguous tensor, and the layout of its named parts.

    Arithmetic is element by element; `u @ v` is the inner product, `v.norm()` the Euclidean norm,
    and `v["body.0.weight"]` a view of one part. A Vector is a pytree node, so `torch.func.vmap`
    and `torch.func.grad` work on functions of Vectors.

    ```python
    w = fedadb.Vector.of({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    drift = w - 0.9 * w
    penalty = 0.5 * (drift @ drift)
    w["bias"]  # a tensor of shape (2,)
    ```
    """

    __slots__ = ("flat", "layout")

    def __init__(self, flat: Tensor, layout: Layout) -> None:
        self.flat: Tensor = flat
        self.layout: Layout = layout

    @staticmethod
    def of(tensors: Mapping[str, Tensor]) -> "Vector":
        """Copy the tensors into one Vector."""
        flat = torch.cat([t.detach().reshape(-1) for t in tensors.values()])
        return Vector(flat, Layout.of(tensors))

    def _with(self, flat: Tensor) -> "Vector":
        return Vector(flat, self.layout)

    def _other(self, other: Any) -> Any:
        """The right-hand side of an operation as torch needs it, checked for its layout."""
        if not isinstance(other, Vector):
            return other
        if other.layout is not self.layout and other.layout != self.layout:
            raise ValueError(
                "the two Vectors belong to different models: "
                f"{len(self.layout.names)} parts and {len(other.layout.names)}"
            )
        return other.flat

    def __add__(self, other: "Vector") -> "Vector":
        return self._with(self.flat + self._other(other))

    def __sub__(self, other: "Vector") -> "Vector":
        return self._with(self.flat - self._other(other))

    def __mul__(self, other: "Vector | Tensor | float") -> "Vector":
        return self._with(self.flat * self._other(other))

    __rmul__ = __mul__

    def __truediv__(self, other: "Vector | Tensor | float") -> "Vector":
        return self._with(self.flat / self._other(other))

    def __neg__(self) -> "Vector":
        return self._with(-self.flat)

    def __matmul__(self, other: "Vector") -> Tensor:
        product: Tensor = torch.dot(self.flat, self._other(other))
        return product

    def add_(self, other: "Vector", factor: float) -> None:
        """Add factor · other to this Vector, in place."""
        self.flat.add_(self._other(other), alpha=factor)

    def norm(self) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(self.flat)
        return length

    def abs(self) -> "Vector":
        return self._with(self.flat.abs())

    def split(self, layout: Layout) -> tuple["Vector", "Vector"]:
        """Views of its first parts, which have that layout, and of the parts after them."""
        names, shapes = self.layout.names, self.layout.shapes
        n = len(layout.names)
        if (names[:n], shapes[:n]) != (layout.names, layout.shapes):
            raise ValueError("the Vector does not begin with the parts of that layout")
        size = sum(layout.sizes)
        first, rest = torch.split(self.flat, [size, self.flat.numel() - size])
        return Vector(first, layout), Vector(rest, Layout(names[n:], shapes[n:]))

    def zeros(self) -> "Vector":
        return self._with(torch.zeros_like(self.flat))

    def clone(self) -> "Vector":
        return self._with(self.flat.clone())

    def map(self, function: Callable[[Tensor], Tensor]) -> "Vector":
        """Apply a function that keeps shapes to each named tensor."""
        parts = [function(t).reshape(-1) for t in self.views().values()]
        return self._with(torch.cat(parts))

    def __getitem__(self, name: str) -> Tensor:
        offset, size, shape = self.layout.slots[name]
        return self.flat.narrow(0, offset, size).view(shape)

    def views(self) -> dict[str, Tensor]:
        """All named tensors as views; made by one split, whose backward is one concatenation."""
        parts = torch.split(self.flat, self.layout.sizes)
        return {
            name: part.view(shape)
            for name, shape, part in zip(self.layout.names, self.layout.shapes, parts, strict=True)
        }

    def __repr__(self) -> str:
        return f"Vector({self.flat.numel()} numbers in {len(self.layout.names)} parts)"


register_pytree_node(
    Vector,
    lambda v: ([v.flat], v.layout),
    lambda leaves, layout: Vector(next(iter(leaves)), layout),
)


class HasWeights(Protocol):
    """Server states, broadcasts and uploads: NamedTuples with the weights `w` in a field."""

    @property
    def w(self) -> Vector: ...


class Weights(NamedTuple):
    """The simplest server state, broadcast and upload: weights alone."""

    w: Vector


def clip(v: Vector, longest: float) -> Vector:
    """The vector, scaled down to the norm `longest` if its own is larger."""
    return v * (longest / (v.norm() + 1e-6)).clamp(max=1)


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite, found without a mask as large as the tensor.

    Such masks, one per reply, fragment the heap.
    """
    if not tensor.numel() or not tensor.is_floating_point():
        return True
    low, high = torch.aminmax(tensor)  # nan if one of the numbers is
    return math.isfinite(low) and math.isfinite(high)


def stacking() -> bool:
    """Whether this code runs inside `torch.vmap`."""
    return torch._C._functorch.maybe_current_level() is not None


def gradient(function: Callable[[Vector], Tensor], w: Vector) -> Vector:
    """∇ function at w: a new Vector that the caller may modify."""
    if stacking():  # torch.autograd does not work inside vmap; elsewhere it is faster
        inner: Vector = torch.func.grad(function)(w)
        return inner
    at = w.flat.detach().requires_grad_()
    value = function(Vector(at, w.layout))
    if value.ndim:
        raise BadInput(f"the loss must be one number; it has shape {tuple(value.shape)}")
    (g,) = torch.autograd.grad(value, at)
    return Vector(g, w.layout)
