"""Memory that a process and those forked from it see alike.

It has no name, so nothing is left behind however the processes end, and no limit of /dev/shm
applies to it.
"""

import mmap
from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from fedadb.core.errors import Fault

Header = list[tuple[str, str, list[int], int]]
"""Name, type, shape and offset of each tensor: all that needs to be sent."""

ALIGNMENT = 64


def room_for(tensors: Mapping[str, Tensor]) -> int:
    """Bytes that the tensors take, one after the other."""
    return sum(tensor.nbytes + ALIGNMENT for tensor in tensors.values())


class Shared:
    """A piece of such memory, written and read as named tensors."""

    def __init__(self, size: int) -> None:
        self.size = max(size, ALIGNMENT)
        self._memory = mmap.mmap(-1, self.size)

    def write(self, tensors: Mapping[str, Tensor]) -> Header:
        """Copy the tensors in; what `read` needs to find them."""
        if room_for(tensors) > self.size:
            raise Fault(
                f"{', '.join(tensors)}: {room_for(tensors)} bytes in a place for {self.size}; what "
                "a client replies and remembers must not grow from round to round"
            )
        header: Header = []
        offset = 0
        for name, tensor in tensors.items():
            dtype, shape = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)
            header.append((name, dtype, shape, offset))
            self._view(dtype, shape, offset).copy_(tensor)
            offset += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        return header

    def read(self, header: Header) -> dict[str, Tensor]:
        """The tensors where they lie: what is written next changes them."""
        return {name: self._view(dtype, shape, at) for name, dtype, shape, at in header}

    def _view(self, dtype: str, shape: list[int], offset: int) -> Tensor:
        kind, count = getattr(torch, dtype), prod(shape)
        if not count:
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(self._memory, dtype=kind, count=count, offset=offset).view(shape)
