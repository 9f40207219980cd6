"""Whether our own kernels compute a model, or torch's."""

from typing import TYPE_CHECKING

from fedadb.kernels import library
from fedadb.kernels.notice import warn_of_torch
from fedadb.progress import Progress, no_progress

if TYPE_CHECKING:  # these import torch, and the command line shows versions without it
    from torch import nn

    from fedadb.core.model import FastBody, Model

TORCH = "torch"


def select_body(
    body: "nn.Module", shape: tuple[int, ...], progress: Progress = no_progress
) -> "FastBody | None":
    """The body as our own kernels compute it, compiled and loaded; None: torch computes it.

    Args:
        body: The model's body.
        shape: The shape of one input.
        progress: Reports the compilation.
    """
    from fedadb.kernels.body import fast_body

    fast = fast_body(body, shape)
    if fast is None:
        return None
    try:
        library.build(progress)
        library.library()
    except library.KernelsUnavailable as error:
        warn_of_torch(str(error))
        return None
    if not _agrees(fast, body, shape):
        warn_of_torch("the compiled kernels compute other features than torch")
        return None
    return fast


def _agrees(fast: "FastBody", body: "nn.Module", shape: tuple[int, ...]) -> bool:
    """Whether both compute the same features: a compiler may be wrong."""
    import torch

    from fedadb.core.stream import Stream

    weights = torch.cat([p.detach().flatten() for p in body.parameters()])
    x = torch.randn(2, *shape, generator=Stream(0).generator())
    with torch.no_grad():
        expected, features = body(x), fast(weights, x)
    if features.shape != expected.shape:
        return False
    return bool((features - expected).norm() <= 1e-3 * expected.norm())


def kernels_of(f: "Model") -> str:
    """The name of the kernels that compute the model: equal names compute bit-identical results.

    A model that came from another process may not be computable here: that is a KernelsUnavailable.
    """
    if f.fast_body is None:
        return TORCH
    library.library()
    return _own_kernels()


def kernels_here() -> str:
    """The kernels for small convolutions on this machine, as far as one knows without loading them.

    Nothing is compiled.
    """
    try:
        state = "compiled" if library.is_built() else "compiled on first use"
        return f"{_own_kernels()} ({state})"
    except library.KernelsUnavailable as error:
        return f"{TORCH} ({error})"


def expected_kernels() -> str:
    """The name of the kernels that `kernels_here` describes."""
    try:
        library.is_built()
        return _own_kernels()
    except library.KernelsUnavailable:
        return TORCH


def _own_kernels() -> str:
    return f"fedadb {library.name()}"
