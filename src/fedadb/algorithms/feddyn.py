"""FedDyn: Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021,
arXiv:2111.04263.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor

from fedadb.core.algorithm import Algorithm, Context, Reply, Round, Weights, average
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, clip, combine, gradient


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

    alpha: Annotated[float, Ge(0)] = 0.1  # α; 0.01 in the authors' example
    # "reference": as in the code that the FedADB paper builds on (the FedNTD and FedSOL
    # repositories). "official": as in the authors' own code, where α scales with a client's share
    # of the rows, the mean is uniform, gradients are clipped and the mean is deployed, not w.
    variant: Literal["reference", "official"] = "reference"
    # Largest gradient norm; None: 10 in the official variant, no clipping in the reference one.
    clip: Annotated[float, Gt(0)] | None = None

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
            g = gradient(lambda v: self.loss(f, v, batch, ctx), w)
            return g if self.clip is None else clip(g, self.clip)
        # In the authors' code the quadratic term is part of the weight decay, which is not clipped.
        alpha = self.client_alpha(ctx)
        g = gradient(lambda v: F.cross_entropy(f(v, batch.x).logits, batch.y), w)
        return clip(g - ctx.memory.g - alpha * ctx.sent.w, self.clip or 10.0) + alpha * w

    def remember(self, w: Vector, ctx: Context[Weights, FedDynMemory]) -> FedDynMemory:
        return FedDynMemory(ctx.memory.g - self.client_alpha(ctx) * (w - ctx.sent.w))

    def aggregate(self, s: FedDynState, replies: Sequence[Reply], round: Round) -> FedDynState:
        mean = average(replies, weighted=self.variant == "reference")
        if self.alpha == 0:
            return FedDynState(mean, s.h, mean)
        moved = combine([1.0] * len(replies), (r.w - s.w for r in replies))
        h = s.h - self.alpha / round.clients * moved
        return FedDynState(mean - h / self.alpha, h, mean)

    def deployed(self, s: FedDynState) -> Vector:
        return s.w if self.variant == "reference" else s.mean
