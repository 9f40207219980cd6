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
    return fast if _agrees(fast, body, shape) else None


def _agrees(fast: "FastBody", body: "nn.Module", shape: tuple[int, ...]) -> bool:
    """Whether both compute the same features: a user's module may be more than its layers."""
    import torch

    from fedadb.core.stream import Stream

    weights = torch.cat([p.detach().flatten() for p in body.parameters()])
    x = torch.rand(2, *shape, generator=Stream(0).generator()) - 0.5
    with torch.no_grad():
        expected, features = body(x), fast(weights, x)
    close = (features - expected).norm() <= 1e-3 * expected.norm()
    return features.shape == expected.shape and bool(close)


def kernels_of(f: "Model") -> str:
    """The name of the kernels that compute the model: equal names compute equal bits.

    A model that came from another process may not be computable here: that is a KernelsUnavailable.
    """
    if f.fast_body is None:
        return TORCH
    library.library()
    return f"fedadb {library.name()}"


def kernels_here() -> str:
    """What computes a model of small convolutions on this machine; compiles nothing."""
    try:
        later = "" if library.is_built() else ", compiled on first use"
        return f"fedadb {library.name()}{later}"
    except library.KernelsUnavailable as error:
        return f"{TORCH} ({error})"
