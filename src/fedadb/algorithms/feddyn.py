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


class Server(NamedTuple):
    w: Vector
    h: Vector  # the mean of the clients' g, all having the same α
    mean: Vector  # of the last replies


class Client(NamedTuple):
    g: Vector  # the gradient of L_k at the client's last iterate


@dataclass(frozen=True)
class FedDyn(Algorithm[Server, Weights, Client]):
    """A linear and a proximal term that make the clients' stationary points agree.

    At α = 0 there are no terms and no h: the lineage's variant is FedAvg then.
    """

    alpha: Annotated[float, Ge(0)] = 0.1  # α; 0.01 in the authors' example
    # The code that the paper builds on, or the authors': α scaled to each client's share of the
    # rows, a uniform mean, gradients clipped, and the mean evaluated in place of w.
    variant: Literal["lineage", "official"] = "lineage"
    # The largest norm of a gradient; None: 10 in the official variant, none in the lineage's.
    clip: Annotated[float, Gt(0)] | None = None

    def init(self, w: Vector) -> Server:
        return Server(w, w.zeros(), w)

    def memory(self, w: Vector) -> Client:
        return Client(w.zeros())

    def broadcast(self, s: Server, f: Model, rng: Stream) -> Weights:
        return Weights(s.w)

    def client_alpha(self, ctx: Context[Weights, Client]) -> Tensor | float:
        """α_k = α · (mean n) / n_k in the official variant."""
        if self.variant == "lineage":
            return self.alpha
        return self.alpha * ctx.round.examples / ctx.round.clients / ctx.counts.sum()

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights, Client]) -> Tensor:
        drift = w - ctx.sent.w
        risk = F.cross_entropy(f(w, batch.x).logits, batch.y)
        return risk - ctx.memory.g @ w + self.client_alpha(ctx) / 2 * (drift @ drift)

    def gradient(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights, Client]) -> Vector:
        if self.variant == "lineage":
            g = gradient(lambda v: self.loss(f, v, batch, ctx), w)
            return g if self.clip is None else clip(g, self.clip)
        # There the quadratic term is weight decay, which is not clipped.
        alpha = self.client_alpha(ctx)
        g = gradient(lambda v: F.cross_entropy(f(v, batch.x).logits, batch.y), w)
        return clip(g - ctx.memory.g - alpha * ctx.sent.w, self.clip or 10.0) + alpha * w

    def remember(self, w: Vector, ctx: Context[Weights, Client]) -> Client:
        return Client(ctx.memory.g - self.client_alpha(ctx) * (w - ctx.sent.w))

    def aggregate(self, s: Server, replies: Sequence[Reply], round: Round) -> Server:
        mean = average(replies, weighted=self.variant == "lineage")
        if self.alpha == 0:
            return Server(mean, s.h, mean)
        moved = combine([1.0] * len(replies), (r.w - s.w for r in replies))
        h = s.h - self.alpha / round.clients * moved
        return Server(mean - h / self.alpha, h, mean)

    def deployed(self, s: Server) -> Vector:
        return s.w if self.variant == "lineage" else s.mean
