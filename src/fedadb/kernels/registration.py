"""How the kernels become operators of torch."""

from collections.abc import Callable
from typing import Any

import torch

_torch_library: Any = torch.library  # its functions have no types
_operators = _torch_library.Library("fedadb", "DEF")


def register(schema: str, kernel: Callable[..., Any], shapes: Callable[..., Any]) -> None:
    """Register an operator for CPUs; `shapes` returns tensors of the results' shapes."""
    name = schema.partition("(")[0]
    _operators.define(schema)
    _operators.impl(name, kernel, "CPU")
    _torch_library.register_fake(f"fedadb::{name}", shapes)


def register_gradient(
    name: str, differentiate: Callable[..., Any], keep: Callable[[Any, Any, Any], None]
) -> None:
    """Register the gradient of an operator; differentiating it again raises NotImplementedError.

    `keep` notes in the context what `differentiate` needs.
    """

    def once(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            raise NotImplementedError(
                'these kernels have no second derivatives: set engine.kernels = "torch"'
            )
        return differentiate(ctx, *gradients)

    _torch_library.register_autograd(f"fedadb::{name}", once, setup_context=keep)
