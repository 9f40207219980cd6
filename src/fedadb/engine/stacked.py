"""Trains clients side by side in one computation, for devices that one small model leaves idle."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from fedadb.core.algorithm import Context, Round
from fedadb.core.replies import Replies, Reply
from fedadb.core.vector import Vector
from fedadb.engine.cohorts import OneByOne, naming_client
from fedadb.engine.local import Training


@dataclass(frozen=True)
class Stacked(OneByOne[Any, Any, Any, Any]):
    """Takes the steps of all clients whose next batches have equal shapes in one computation.

    The mathematics is that of one by one, but sums have another order: results agree up to
    rounding and are not bit-identical. All clients of a round are in memory at the same time.

    ```python
    replies = list(fedadb.Stacked(learner, shards, rng)(sent, clients=[0, 3], round=round))
    ```
    """

    def __call__(self, sent: Any, clients: Sequence[int], round: Round) -> Replies[Reply[Any]]:
        rows = [len(self.shards[k]) for k in clients]
        return Replies(self._train_together(sent, clients, round), rows)

    def _train_together(
        self, sent: Any, clients: Sequence[int], round: Round
    ) -> Iterator[Reply[Any]]:
        active = {k: self._begin(sent, k, round) for k in clients}
        while True:
            groups: dict[tuple[torch.Size, ...], dict[int, Training[Any, Any]]] = {}
            for k, training in active.items():
                if training.batch is not None:
                    shapes = tuple(leaf.shape for leaf in tree_leaves(training.batch))
                    groups.setdefault(shapes, {})[k] = training
            if not groups:
                break
            for group in groups.values():
                self._step(group, sent, round)
        for k, training in active.items():
            with naming_client(k, round):
                reply, self.memories[k] = self.learner.end(training)
            yield reply

    def _begin(self, sent: Any, k: int, round: Round) -> Training[Any, Any]:
        rng = self.rng.at("client", round.t, k)
        with naming_client(k, round):
            return self.learner.begin(self.shards[k], sent, self.memories.get(k), round, rng)

    def _step(self, group: Mapping[int, Training[Any, Any]], sent: Any, round: Round) -> None:
        """One step of each client in the group, by one gradient over a new first dimension."""
        algorithm, f, plan = self.learner.algorithm, self.learner.f, self.learner.plan

        def gradient(w: Vector, batch: Any, counts: Tensor, memory: Any, steps: Tensor) -> Vector:
            ctx = Context(sent, memory, counts, round, plan, steps)
            return algorithm.gradient(f, w, batch, ctx)

        stacked = tree_map(
            lambda *leaves: torch.stack(leaves),
            *((t.w, t.batch, t.ctx.counts, t.ctx.memory, t.ctx.steps) for t in group.values()),
        )
        with naming_client(", ".join(map(str, group)), round):
            g = torch.vmap(gradient)(*stacked)
        for (k, training), flat in zip(group.items(), g.flat, strict=True):
            self.learner.step(training, Vector(flat.contiguous(), g.layout))
            with naming_client(k, round):
                training.batch = next(training.batches, None)
