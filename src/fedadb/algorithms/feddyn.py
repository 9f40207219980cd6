"""FedDyn: Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021,
arXiv:2111.04263.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor

from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.replies import Mean, Reply, Sum
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights, gradient
from fedadb.roles import Searched


class FedDynState(NamedTuple):
    w: Vector
    h: Vector  # the mean of the clients' g, if all have the same α
    mean: Vector  # of the last round's replies


class FedDynMemory(NamedTuple):
    g: Vector  # the gradient of L_k at the client's last iterate


@dataclass(frozen=True)
class FedDyn(Algorithm[FedDynState, Weights, FedDynMemory]):
    """A linear and a proximal term align the clients' stationary points with the server's.

    With α = 0 both terms and h vanish, and the reference variant is FedAvg.
    """

    # α: weight of the dynamic regulariser; 0.01 in the authors' example
    alpha: Annotated[float, Ge(0), Searched(0.001, 0.1)] = 0.1
    # Whose version. "reference": as in the code that the FedADB paper builds on (the FedNTD and
    # FedSOL repositories). "official": as in the authors' own code, where α scales with a client's
    # share of the rows, the mean is uniform, gradients are clipped and the mean is deployed, not w.
    variant: Literal["reference", "official"] = "reference"

    own_server_step = True  # −h/α
    remembers_updates = True  # h is the mean of the clients' g

    @property
    def default_clip(self) -> float | None:
        return None if self.variant == "reference" else 10.0

    @property
    def mean_weights(self) -> Literal["uniform"] | None:
        """H needs the sum of all updates, which is not the mean by rows."""
        return None if self.variant == "reference" else "uniform"

    def init(self, w: Vector) -> FedDynState:
        return FedDynState(w, w.zeros(), w)

    def memory(self, w: Vector) -> FedDynMemory:
        return FedDynMemory(w.zeros())

    def broadcast(self, s: FedDynState, f: Model, rng: Stream) -> Weights:
        return Weights(s.w)

    def client_alpha(self, ctx: Context[Weights, FedDynMemory]) -> Tensor | float:
        """α_k = α · (mean n) / n_k in the official variant."""
        if self.variant == "reference":
            return self.alpha
        return self.alpha * ctx.round.examples / ctx.round.clients / ctx.counts.sum()

    def loss(
        self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights, FedDynMemory]
    ) -> Tensor:
        drift = w - ctx.sent.w
        risk = F.cross_entropy(f(w, batch.x).logits, batch.y)
        return risk - ctx.memory.g @ w + self.client_alpha(ctx) / 2 * (drift @ drift)

    def gradient(
        self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights, FedDynMemory]
    ) -> Vector:
        if self.variant == "reference":
            return super().gradient(f, w, batch, ctx)
        g = gradient(lambda v: F.cross_entropy(f(v, batch.x).logits, batch.y), w)
        return g - ctx.memory.g - self.client_alpha(ctx) * ctx.sent.w

    def decay(self, ctx: Context[Weights, FedDynMemory]) -> Tensor | float | None:
        """In the authors' code the quadratic term is part of the weight decay."""
        return None if self.variant == "reference" else self.client_alpha(ctx)

    def remember(
        self, w: Vector, upload: Weights, ctx: Context[Weights, FedDynMemory]
    ) -> FedDynMemory:
        return FedDynMemory(ctx.memory.g - self.client_alpha(ctx) * (w - ctx.sent.w))

    def aggregate(self, s: FedDynState, replies: Iterable[Reply], round: Round) -> FedDynState:
        mean, moved = Mean[Vector](replies, weighted=self.variant == "reference"), Sum[Vector]()
        for reply in replies:
            mean.add(reply, reply.w)
            moved.add(1.0, reply.w - s.w)
        if self.alpha == 0:
            return FedDynState(mean.value, s.h, mean.value)
        h = s.h - self.alpha / round.clients * moved.total
        return FedDynState(mean.value - h / self.alpha, h, mean.value)

    def deployed(self, s: FedDynState) -> Vector:
        return s.w if self.variant == "reference" else s.mean
