"""One client's round: the same code in simulation and at a real site."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor
from typing_extensions import TypeVar

from fedadb.core.algorithm import Algorithm, B, C, Context, Round, S
from fedadb.core.data import Examples, LocalPlan, Shard
from fedadb.core.errors import BadInput
from fedadb.core.filter import Filter, check_filters, send_through
from fedadb.core.model import Model
from fedadb.core.replies import Reply, U
from fedadb.core.stream import Stream
from fedadb.core.transform import AsIs
from fedadb.core.vector import Vector, clip

M = TypeVar("M", default=tuple[()])  # what a client keeps for the filters


class ClientMemory(NamedTuple, Generic[C, M]):
    """What a client keeps between its rounds: for the algorithm, and for each filter."""

    algorithm: C
    filters: M


def memory_tensors(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a stored ClientMemory; earlier versions stored the algorithm's part alone."""
    if any(name.startswith(("algorithm/", "filters/")) for name in stored):
        return dict(stored)
    return {f"algorithm/{name}": tensor for name, tensor in stored.items()}


@dataclass
class Training(Generic[B, C]):
    """A client in the middle of its round."""

    data: Shard
    ctx: Context[B, C]
    filter_memories: Any  # what the client keeps for each filter
    w: Vector
    optimizer_states: Sequence[Any]  # for the model's weights, and for what else it trains
    batches: Iterator[Any]
    batch: Any  # the next one; None at the end
    measured: Mapping[str, Tensor]
    rng: Stream


@dataclass(frozen=True)
class Learner(Generic[S, B, C, U]):
    """Trains clients: an algorithm, a model, a plan, and the filters of what clients send.

    ```python
    learner = fedadb.Learner(fedadb.FedAvg(), f, fedadb.LocalPlan(epochs=1))
    sent = fedadb.Weights(f.weights())
    round = fedadb.Round(t=1, total=10, clients=8, examples=2000)
    reply, memory = learner.train(shard, sent, None, round, fedadb.Stream(0))
    ```
    """

    algorithm: Algorithm[S, B, C, U]
    f: Model
    plan: LocalPlan
    filters: Sequence[Filter] = ()

    def __post_init__(self) -> None:
        self.algorithm.check_plan(self.plan)
        check_filters(self.filters, self.algorithm)

    def train(
        self, data: Shard, sent: B, memory: ClientMemory[C, Any] | None, round: Round, rng: Stream
    ) -> tuple[Reply[U], ClientMemory[C, Any]]:
        """Train a client for one round; the optimiser's state starts at zero.

        `memory` is None if the client has not taken part before. Returns its reply and its new
        memory.
        """
        return self.end(self.fit(data, sent, memory, round, rng))

    def fit(
        self, data: Shard, sent: B, memory: ClientMemory[C, Any] | None, round: Round, rng: Stream
    ) -> Training[B, C]:
        """A client after its last step."""
        training = self.begin(data, sent, memory, round, rng)
        while training.batch is not None:
            g = self.algorithm.gradient(self.f, training.w, training.batch, training.ctx)
            self.step(training, g)
            training.batch = next(training.batches, None)
        return training

    def begin(
        self, data: Shard, sent: B, memory: ClientMemory[C, Any] | None, round: Round, rng: Stream
    ) -> Training[B, C]:
        """A client before its first step."""
        self.require_usable(data)
        memory = self.first_memory(sent.w) if memory is None else memory
        ctx = self._context(data, sent, memory, round)
        w = self.algorithm.start(ctx).clone()
        batches = self.algorithm.batches(self.f, data, ctx, rng)
        first = next(batches)
        with torch.no_grad():
            measured = self.algorithm.measure(self.f, first, ctx)
        states = [self.plan.optimizer.start(part) for part in _parts(w, sent.w)]
        return Training(data, ctx, memory.filters, w, states, batches, first, measured, rng)

    def step(self, training: Training[B, C], g: Vector) -> None:
        """One step of the local optimiser along the gradient g, which it may modify.

        What a client trains beyond the model takes a step of its own, so the model's weights do not
        depend on it, not even by rounding.
        """
        ctx, states = training.ctx, training.optimizer_states
        parts = zip(_parts(training.w, ctx.sent.w), _parts(g, ctx.sent.w), states, strict=True)
        for w, direction, state in parts:
            if self.clip is not None:
                direction = clip(direction, self.clip)
            if (decay := self.algorithm.decay(ctx)) is not None:
                direction = direction + decay * w
            self.plan.optimizer.step(w, direction, state, ctx.lr, self.plan.weight_decay)

    def end(self, training: Training[B, C]) -> tuple[Reply[U], ClientMemory[C, Any]]:
        """The client's reply and its new memory, after its last step."""
        data, ctx, w = training.data, training.ctx, training.w
        upload = self._upload(w, data, ctx)
        kept = self.algorithm.remember(w, upload, ctx)
        reply, filters = send_through(
            self.filters,
            Reply(upload, torch.tensor(len(data)), training.measured),
            training.filter_memories,
            ctx.sent.w,
            ctx.round,
            training.rng,
        )
        return reply, ClientMemory(kept, filters)

    @cached_property
    def clip(self) -> float | None:
        """The largest gradient norm; None: any."""
        return self.algorithm.default_clip if self.plan.clip == "auto" else self.plan.clip

    def first_memory(self, w: Vector) -> ClientMemory[C, Any]:
        """A client's memory before its first round, in which it receives the weights w."""
        filters = tuple(one.memory(w) for one in self.filters)
        return ClientMemory(self.algorithm.memory(w), filters)

    def example_reply(self, sent: B, round: Round) -> Reply[U]:
        """A reply with the types and shapes of all replies.

        It is that of an untrained client with one row of zeros per class.
        """
        device = sent.w.flat.device
        x = torch.zeros(self.f.classes, *self.f.domain.shape, device=device)
        y = torch.arange(self.f.classes, device=device)
        data, memory = Shard(Examples(x, y), y, self.f.classes, AsIs()), self.first_memory(sent.w)
        ctx = self._context(data, sent, memory, round)
        upload = self._upload(self.algorithm.start(ctx), data, ctx)
        reply = Reply(upload, torch.tensor(len(data)))
        return send_through(self.filters, reply, memory.filters, sent.w, round, Stream(0))[0]

    def _upload(self, w: Vector, data: Shard, ctx: Context[B, C]) -> U:
        upload = self.algorithm.upload(self.f, w, data, ctx)
        if not (hasattr(upload, "_fields") and isinstance(getattr(upload, "w", None), Vector)):
            raise BadInput(
                f"{type(self.algorithm).__name__}.upload must return a NamedTuple with the Vector w"
            )
        if upload.w.layout != ctx.sent.w.layout:
            raise BadInput(
                f"{type(self.algorithm).__name__}.upload must return weights of the model alone: "
                "w.split(f.layout) separates them from what else a client trains"
            )
        return upload

    def _context(
        self, data: Shard, sent: B, memory: ClientMemory[C, Any], round: Round
    ) -> Context[B, C]:
        steps = torch.tensor(self.plan.steps(len(data)))
        return Context(sent, memory.algorithm, data.counts, round, self.plan, steps)

    def require_usable(self, data: Shard) -> None:
        """Raise BadInput if the client cannot train on its rows."""
        if not len(data):
            raise BadInput("it has no rows to train on")
        if len(data.counts) > self.f.classes:
            raise BadInput(
                f"it has a row of class {len(data.counts) - 1}; the model's classes are "
                f"0 to {self.f.classes - 1}"
            )


def _parts(v: Vector, model: Vector) -> tuple[Vector, ...]:
    """Views of the parts that the model has, and of those after them if there are any."""
    return (v,) if v.layout == model.layout else v.split(model.layout)
