"""Memory that a process shares with the processes it forks.

It is anonymous: nothing is left behind however the processes end, and no limit of /dev/shm applies.
"""

import mmap
from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from fedadb.core.errors import BadInput

Header = list[tuple[str, str, list[int], int]]
"""Name, type, shape and offset of each tensor: all that a reader needs to find them."""

ALIGNMENT = 64


def bytes_needed(tensors: Mapping[str, Tensor]) -> int:
    """The size of a SharedMemory that holds these tensors."""
    return sum(tensor.nbytes + ALIGNMENT for tensor in tensors.values())


class SharedMemory:
    """A block of shared memory that holds named tensors."""

    def __init__(self, size: int) -> None:
        self.size = max(size, ALIGNMENT)
        self._memory = mmap.mmap(-1, self.size)

    def write(self, tensors: Mapping[str, Tensor]) -> Header:
        """Copy the tensors into the block, and return the header that `read` needs."""
        if bytes_needed(tensors) > self.size:
            raise BadInput(
                f"{', '.join(tensors)}: {bytes_needed(tensors)} bytes do not fit into "
                f"{self.size}; what a client uploads and remembers must have the same shapes in "
                "every round"
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
        """Views of the tensors: the next `write` changes them."""
        return {name: self._view(dtype, shape, at) for name, dtype, shape, at in header}

    def _view(self, dtype: str, shape: list[int], offset: int) -> Tensor:
        kind, count = getattr(torch, dtype), prod(shape)
        if not count:
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(self._memory, dtype=kind, count=count, offset=offset).view(shape)


def copy_to_shared_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors in shared memory."""
    memory = SharedMemory(bytes_needed(tensors))
    return memory.read(memory.write(tensors))
