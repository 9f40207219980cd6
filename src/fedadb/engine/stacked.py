"""Trains clients side by side in one computation, for devices that one small model leaves idle."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from fedadb.core.algorithm import Context, Reply, Round
from fedadb.core.vector import Vector
from fedadb.engine.cohorts import OneByOne, naming_client


@dataclass
class ActiveClient:
    """A client in the middle of its round."""

    k: int
    ctx: Context[Any, Any]
    w: Vector
    velocity: Vector
    batches: Iterator[Any]
    batch: Any  # the next one; None at the end
    measured: Mapping[str, Tensor]


@dataclass(frozen=True)
class Stacked(OneByOne[Any, Any, Any]):
    """Takes the steps of all clients whose next batches have equal shapes in one computation.

    The mathematics is that of one by one, but sums have another order: results agree up to
    rounding and are not bit-identical.

    ```python
    replies = list(fedadb.Stacked(learner, shards, rng)(sent, clients=[0, 3], round=round))
    ```
    """

    def __call__(self, sent: Any, clients: Sequence[int], round: Round) -> list[Reply]:
        active = [self._begin(sent, k, round) for k in clients]
        while unfinished := [client for client in active if client.batch is not None]:
            groups: dict[tuple[torch.Size, ...], list[ActiveClient]] = {}
            for client in unfinished:
                shapes = tuple(leaf.shape for leaf in tree_leaves(client.batch))
                groups.setdefault(shapes, []).append(client)
            for group in groups.values():
                self._step(group, sent, round)
        return [self._end(client, round) for client in active]

    def _begin(self, sent: Any, k: int, round: Round) -> ActiveClient:
        algorithm, f = self.learner.algorithm, self.learner.f
        data, memory = self.shards[k], self.memories.get(k)
        with naming_client(k, round):
            self.learner.require_usable(data)
            if memory is None:
                memory = algorithm.memory(sent.w)
            ctx = Context(sent, memory, data.counts, round)
            rng = self.rng.at("client", round.t, k)
            batches = algorithm.batches(f, sent, data, self.learner.plan, rng)
            first = next(batches)
            with torch.no_grad():
                measured = algorithm.measure(f, first, ctx)
        return ActiveClient(k, ctx, sent.w.clone(), sent.w.zeros(), batches, first, measured)

    def _step(self, group: list[ActiveClient], sent: Any, round: Round) -> None:
        """One step of each client in the group, by one gradient over a new first dimension."""
        algorithm, f = self.learner.algorithm, self.learner.f

        def gradient(w: Vector, batch: Any, counts: Tensor, memory: Any) -> Vector:
            return algorithm.gradient(f, w, batch, Context(sent, memory, counts, round))

        stacked = tree_map(
            lambda *leaves: torch.stack(leaves),
            *((one.w, one.batch, one.ctx.counts, one.ctx.memory) for one in group),
        )
        with naming_client(", ".join(str(client.k) for client in group), round):
            g = torch.vmap(gradient)(*stacked)
        for client, flat in zip(group, g.flat, strict=True):
            g_k = Vector(flat.contiguous(), g.layout)
            self.learner.step(client.w, g_k, client.velocity, round)
            with naming_client(client.k, round):
                client.batch = next(client.batches, None)

    def _end(self, client: ActiveClient, round: Round) -> Reply:
        with naming_client(client.k, round):
            self.memories[client.k] = self.learner.algorithm.remember(client.w, client.ctx)
        return Reply(client.w, client.ctx.counts.sum().cpu(), client.measured)
