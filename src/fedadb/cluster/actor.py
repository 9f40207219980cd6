"""The Ray actor: a process that holds data, model and algorithm, and trains clients."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.data import Examples, Shard
from fedadb.core.model import Model
from fedadb.core.packing import unpack
from fedadb.core.stream import Stream
from fedadb.engine.cohorts import train_client
from fedadb.engine.local import Learner
from fedadb.engine.process import keep_freed_memory
from fedadb.engine.scheduling import RemoteError, pack_result
from fedadb.kernels.library import KernelsUnavailable
from fedadb.kernels.selection import kernels_of

Arrays = dict[str, np.ndarray[Any, Any]]


class ClientTrainer:
    """Holds what all clients need, and trains one client per call."""

    def __init__(
        self,
        learner: Learner[Any, Any, Any, Any],
        shards: Sequence[Shard],
        rng: Stream,
        sent_kind: Any,
        memory_kind: Any,
    ) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        self.learner = learner
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of read-only memory; we only read it
            self.shards = convert_shards(shards, torch.from_numpy)
        self.rng = rng
        self.sent_kind = sent_kind
        self.memory_kind = memory_kind

    def versions(self) -> str:
        return versions(self.learner.f)

    def train(
        self, sent: Arrays, k: int, memory: Arrays | None, round: Round
    ) -> Arrays | tuple[str, str]:
        """Client k's packed result, or a RemoteError as a plain tuple."""
        layout = self.learner.f.layout
        try:
            reply, new_memory = train_client(
                self.learner,
                self.shards[k],
                unpack(self.sent_kind, to_tensors(sent), layout),
                k,
                None if memory is None else unpack(self.memory_kind, to_tensors(memory), layout),
                round,
                self.rng,
            )
            return to_arrays(pack_result(reply, new_memory))
        except Exception as error:
            kind, text = RemoteError.of(error)
            return kind, text


def versions(f: Model) -> str:
    """What must be equal on all machines for bit-identical results."""
    packages = f"fedadb {version('fedadb')}, torch {torch.__version__}"
    try:
        return f"{packages} and the kernels {kernels_of(f)}"
    except KernelsUnavailable as error:
        return f"{packages} and no kernels ({error})"


def to_arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def to_tensors(arrays: Arrays) -> dict[str, Tensor]:
    """Copies: arrays of Ray's object store are read-only, and stay there while in use."""
    return {name: torch.tensor(array) for name, array in arrays.items()}


def convert_shards(shards: Sequence[Shard], convert: Callable[[Any], Any]) -> list[Shard]:
    """The shards with each tensor converted; examples that shards share stay shared."""
    converted: dict[int, Examples] = {}
    for shard in shards:
        if id(shard.examples) not in converted:
            converted[id(shard.examples)] = Examples(*map(convert, shard.examples))
    return [replace(s, examples=converted[id(s.examples)], rows=convert(s.rows)) for s in shards]
