"""The user's own nn.Module as the body of a classifier."""

import copy
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from fedadb.core.errors import BadInput
from fedadb.core.model import require_sizes
from fedadb.storage.tensorfile import raw_bytes


@dataclass(frozen=True)
class MadeBody:
    """A body that is made anew for each experiment, so its weights follow from the seed."""

    make: Callable[..., nn.Module]  # an nn.Module class, or a function that returns an nn.Module
    settings: Mapping[str, Any]
    name: str  # `module:Name`

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        settings = dict(self.settings)
        if "shape" in inspect.signature(self.make).parameters:
            settings.setdefault("shape", shape)
        try:
            body = self.make(**settings)
        except Exception as error:  # the user's own code may raise anything
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise BadInput(f"model = {self.name!r}: cannot be made: {reason}") from error
        if not isinstance(body, nn.Module):
            kind = type(body).__name__
            raise BadInput(f"model = {self.name!r}: must return an nn.Module, not {kind}")
        return body


class GivenBody:
    """A body that exists already: a copy of the user's module. Training starts from its weights."""

    def __init__(self, module: nn.Module) -> None:
        require_sizes(module)
        self._module = copy.deepcopy(module).cpu()

    @property
    def kinds(self) -> list[type[nn.Module]]:
        """The class of the module, and those of all its parts."""
        return list(dict.fromkeys(type(part) for part in self._module.modules()))

    @cached_property
    def digest(self) -> str:
        """Of the module's text, of its parts' plain attributes, and of all tensors."""
        digest = hashlib.sha256(repr(self._module).encode())
        for name, part in self._module.named_modules():
            digest.update(repr((name, _plain_attributes(part))).encode())
        for name, tensor in [*self._module.named_parameters(), *self._module.named_buffers()]:
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(raw_bytes(tensor))
        return digest.hexdigest()

    def body(self, shape: tuple[int, ...]) -> nn.Module:
        return copy.deepcopy(self._module)


def _plain_attributes(part: nn.Module) -> dict[str, Any]:
    """What a part's `forward` may depend on besides its tensors: values, and names of functions."""
    public = {name: value for name, value in sorted(vars(part).items()) if name[0] != "_"}
    functions = {name: value.__name__ for name, value in public.items() if inspect.isroutine(value)}
    return {name: value for name, value in public.items() if _is_plain(value)} | functions


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))
