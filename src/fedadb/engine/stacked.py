"""Clients side by side in one computation, for devices that one small model leaves idle."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from fedadb.core.algorithm import Context, Reply, Round
from fedadb.core.vector import Vector
from fedadb.engine.cohorts import OneByOne


@dataclass
class Running:
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
    """Steps of all clients whose next batches have the same shapes are taken at once.

    The mathematics of one by one, but sums in another order: not the same bits.
    """

    def __call__(self, sent: Any, clients: Sequence[int], round: Round) -> list[Reply]:
        running = [self._begin(sent, k, round) for k in clients]
        while going := [one for one in running if one.batch is not None]:
            groups: dict[tuple[torch.Size, ...], list[Running]] = {}
            for one in going:
                shapes = tuple(leaf.shape for leaf in tree_leaves(one.batch))
                groups.setdefault(shapes, []).append(one)
            for group in groups.values():
                self._step(group, sent, round)
        return [self._end(one) for one in running]

    def _begin(self, sent: Any, k: int, round: Round) -> Running:
        algorithm, f = self.learner.algorithm, self.learner.f
        data, known = self.shards[k], self.memories.get(k)
        self.learner.require_usable(data)
        memory = algorithm.memory(sent.w) if known is None else known
        ctx = Context(sent, memory, data.counts, round)
        rng = self.rng.at("client", round.t, k)
        batches = algorithm.batches(f, sent, data, self.learner.plan, rng)
        first = next(batches)
        with torch.no_grad():
            measured = algorithm.measure(f, first, ctx)
        return Running(k, ctx, sent.w.clone(), sent.w.zeros(), batches, first, measured)

    def _step(self, group: list[Running], sent: Any, round: Round) -> None:
        """One step of each, by one gradient over a new first dimension."""
        algorithm, f = self.learner.algorithm, self.learner.f

        def gradient(w: Vector, batch: Any, counts: Tensor, memory: Any) -> Vector:
            return algorithm.gradient(f, w, batch, Context(sent, memory, counts, round))

        stacked = tree_map(
            lambda *leaves: torch.stack(leaves),
            *((one.w, one.batch, one.ctx.counts, one.ctx.memory) for one in group),
        )
        g = torch.vmap(gradient)(*stacked)
        for one, flat in zip(group, g.flat, strict=True):
            self.learner.step(one.w, Vector(flat.contiguous(), g.layout), one.velocity, round)
            one.batch = next(one.batches, None)

    def _end(self, one: Running) -> Reply:
        self.memories[one.k] = self.learner.algorithm.remember(one.w, one.ctx)
        return Reply(one.w, one.ctx.counts.sum().cpu(), one.measured)
