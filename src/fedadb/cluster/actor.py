"""What a Ray actor is: a process that holds data, model and method, and trains clients."""

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
from fedadb.core.packing import unpack
from fedadb.core.stream import Stream
from fedadb.engine.answers import in_words, pack_answer
from fedadb.engine.cohorts import train_client
from fedadb.engine.local import Learner
from fedadb.engine.process import keep_memory

Arrays = dict[str, np.ndarray[Any, Any]]


class Trainer:
    """It holds what all clients need, and trains those that it is given."""

    def __init__(
        self,
        learner: Learner[Any, Any, Any],
        shards: Sequence[Shard],
        rng: Stream,
        sent_kind: type[Any],
        memory_kind: type[Any],
    ) -> None:
        torch.set_num_threads(1)
        keep_memory()
        self.learner = learner
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of memory that is not to be written to: nobody does
            self.shards = each(shards, torch.from_numpy)
        self.rng = rng
        self.sent_kind = sent_kind
        self.memory_kind = memory_kind

    def versions(self) -> str:
        return versions()

    def train(
        self, sent: Arrays, k: int, memory: Arrays | None, round: Round
    ) -> Arrays | tuple[str, str]:
        """The client's answer, or what went wrong, in words."""
        layout = self.learner.f.layout
        try:
            reply, remembered = train_client(
                self.learner,
                self.shards[k],
                unpack(self.sent_kind, tensors(sent), layout),
                k,
                None if memory is None else unpack(self.memory_kind, tensors(memory), layout),
                round,
                self.rng,
            )
            return arrays(pack_answer(reply, remembered))
        except Exception as error:
            return in_words(error)


def versions() -> str:
    """What must be the same everywhere for bits to be."""
    return f"fedadb {version('fedadb')} and torch {torch.__version__}"


def arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def tensors(arrays: Arrays) -> dict[str, Tensor]:
    """Copies: the store's own cannot be written to, and would stay there as long as they are."""
    return {name: torch.tensor(array) for name, array in arrays.items()}


def each(shards: Sequence[Shard], convert: Callable[[Any], Any]) -> list[Shard]:
    """The shards with their tensors as something else; examples that they share stay shared."""
    once: dict[int, Examples] = {}
    for shard in shards:
        if id(shard.examples) not in once:
            once[id(shard.examples)] = Examples(*map(convert, shard.examples))
    return [replace(s, examples=once[id(s.examples)], rows=convert(s.rows)) for s in shards]
