"""Whether our own kernels compute a model, or torch's."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedadb.kernels import library
from fedadb.kernels.notice import warn_of_torch
from fedadb.progress import Progress, no_progress

if TYPE_CHECKING:  # these import torch, and the command line shows versions without it
    from torch import Tensor, nn

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
    import torch

    from fedadb.kernels.body import fast_body

    fast = fast_body(body, shape)
    if fast is None or not _is_usable(progress):
        return None
    weights = torch.cat([p.detach().flatten() for p in body.parameters()])
    x = _images(shape)
    return fast if _agree(_computed(fast, weights, x), _computed(body, x)) else None


def select_convolutions(
    body: "nn.Module", shape: tuple[int, ...], progress: Progress = no_progress
) -> None:
    """Let our own kernels compute the body's convolutions of many channels.

    The body stays as it is if it has no such convolutions, or if the kernels cannot be used here.
    """
    from fedadb.kernels.convolutions import is_fast, use_kernels, use_torch

    if not any(map(is_fast, body.modules())) or not _is_usable(progress):
        return
    x = _images(shape)
    expected = _computed(body, x)
    use_kernels(body)
    if not _agree(_computed(body, x), expected):
        use_torch(body)


def _is_usable(progress: Progress) -> bool:
    """Whether the kernels are compiled and loaded now; if not, one sentence says why."""
    try:
        library.build(progress)
        library.library()
    except library.KernelsUnavailable as error:
        warn_of_torch(str(error))
        return False
    return True


def _images(shape: tuple[int, ...]) -> "Tensor":
    """Two random images."""
    import torch

    from fedadb.core.stream import Stream

    return torch.randn(2, *shape, generator=Stream(0).generator())


def _computed(function: "Callable[..., Tensor]", *arguments: "Tensor") -> "Tensor":
    import torch

    with torch.no_grad():
        return function(*arguments)


def _agree(ours: "Tensor", torchs: "Tensor") -> bool:
    """Whether the features are the same: a compiler may be wrong, and a sentence says so."""
    same = ours.shape == torchs.shape
    agree = same and bool((ours - torchs).norm() <= 1e-3 * torchs.norm())
    if not agree:
        warn_of_torch("the compiled kernels compute other features than torch")
    return agree


def kernels_of(f: "Model") -> str:
    """The name of the kernels that compute the model: equal names compute bit-identical results.

    A model that came from another process may not be computable here: that is a KernelsUnavailable.
    """
    from fedadb.kernels.convolutions import FastConvolution

    if f.fast_body is None and not any(isinstance(m, FastConvolution) for m in f.module.modules()):
        return TORCH
    library.library()
    return _own_kernels()


def kernels_here() -> str:
    """The kernels for convolutions on this machine, as far as one knows without loading them.

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
