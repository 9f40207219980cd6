"""One client's round: the same code in simulation and at a real site."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from fedadb.core.algorithm import Algorithm, B, C, Context, Reply, Round, S
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.errors import BadInput
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector


@dataclass(frozen=True)
class Learner(Generic[S, B, C]):
    """Trains clients: an algorithm, a model and a plan.

    ```python
    learner = fedadb.Learner(fedadb.FedAvg(), f, fedadb.LocalPlan(epochs=1))
    sent = fedadb.Weights(f.weights())
    round = fedadb.Round(t=1, total=10, clients=8, examples=2000)
    reply, memory = learner.train(shard, sent, (), round, fedadb.Stream(0))
    ```
    """

    algorithm: Algorithm[S, B, C]
    f: Model
    plan: LocalPlan

    def train(self, data: Shard, sent: B, memory: C, round: Round, rng: Stream) -> tuple[Reply, C]:
        """SGD from the received weights; momentum starts at zero in each round.

        Returns the client's reply and its new memory.
        """
        self.require_usable(data)
        ctx = Context(sent, memory, data.counts, round)
        w, velocity = sent.w.clone(), sent.w.zeros()
        measured: Mapping[str, Tensor] = {}
        for step, batch in enumerate(self.algorithm.batches(self.f, sent, data, self.plan, rng)):
            if step == 0:
                with torch.no_grad():
                    measured = self.algorithm.measure(self.f, batch, ctx)
            g = self.algorithm.gradient(self.f, w, batch, ctx)
            self.step(w, g, velocity, round)
        return Reply(w, torch.tensor(len(data)), measured), self.algorithm.remember(w, ctx)

    def require_usable(self, data: Shard) -> None:
        """Raise BadInput if the client cannot train on its rows."""
        if not len(data):
            raise BadInput("it has no rows to train on")
        if len(data.counts) > self.f.classes:
            raise BadInput(
                f"it has a row of class {len(data.counts) - 1}; the model's classes are "
                f"0 to {self.f.classes - 1}"
            )

    def step(self, w: Vector, g: Vector, velocity: Vector, round: Round) -> None:
        """SGD with momentum and weight decay, in place: one pass over the flat tensors."""
        sgd(
            [w.flat],
            [g.flat],
            [velocity.flat],
            weight_decay=self.plan.weight_decay,
            momentum=self.plan.momentum,
            lr=self.plan.lr_at(round.t),
            dampening=0,
            nesterov=False,
            maximize=False,
            fused=True,
        )
