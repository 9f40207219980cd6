"""FedCurv: Shoham et al., "Overcoming Forgetting in Federated Learning on Non-IID Data", NeurIPS
workshop 2019, arXiv:1910.07796.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor

from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import Batch, Shard
from fedadb.core.model import Model
from fedadb.core.replies import Mean, Reply, Sum
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, gradient
from fedadb.roles import Searched


class Curvature(NamedTuple):
    w: Vector
    u: Vector  # Σ u_j over all clients' last reports, or the change of a client's u_k
    v: Vector  # likewise of v_j


class Report(NamedTuple):
    u: Vector  # u_k: the diagonal of the Fisher information at w_k
    v: Vector  # v_k = u_k ∘ w_k


Ctx = Context[Curvature, Report]


@dataclass(frozen=True)
class FedCurv(Algorithm[Curvature, Curvature, Report, Curvature]):
    """Clients penalise moving weights that matter to other clients away from theirs."""

    # λ: weight of the penalty for moving weights that matter to others
    lam: Annotated[float, Ge(0), Searched(0.1, 10)] = 1.0
    # Rows for the estimate of the Fisher information: it takes whole batches until they have more
    # than so many.
    size: Annotated[int, Ge(1)] = 500
    # How the Fisher information is estimated. "batch": by squared gradients of batches, as in the
    # code that the FedADB paper builds on. "sample": of single rows, which is exact and larger.
    fisher: Literal["batch", "sample"] = "batch"

    measures = ("largest_fisher",)
    spread: ClassVar[Mapping[str, float]] = {"u": 2, "v": 2}  # squares of gradients

    def init(self, w: Vector) -> Curvature:
        return Curvature(w, w.zeros(), w.zeros())

    def broadcast(self, s: Curvature, f: Model, rng: Stream) -> Curvature:
        return s

    def memory(self, w: Vector) -> Report:
        return Report(w.zeros(), w.zeros())

    def others(self, ctx: Ctx) -> Report:
        """Σ u_j and Σ v_j over all clients but this one."""
        u = ctx.sent.u - ctx.memory.u
        # The sums round, and a penalty with a negative curvature has no minimum.
        return Report(Vector(u.flat.clamp(min=0), u.layout), ctx.sent.v - ctx.memory.v)

    def measure(self, f: Model, batch: Batch, ctx: Ctx) -> Mapping[str, Tensor]:
        return {"largest_fisher": self.others(ctx).u.flat.max()}

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Ctx) -> Tensor:
        risk = super().loss(f, w, batch, ctx)
        return risk if self.lam == 0 else risk + self.lam * self.penalty(w, ctx)

    def penalty(self, w: Vector, ctx: Ctx) -> Tensor:
        """Σ_{j≠k} (w − w_j)ᵀ diag(u_j) (w − w_j), but for a constant."""
        u, v = self.others(ctx)
        return (u * w) @ w - 2 * (v @ w)

    def upload(self, f: Model, w: Vector, data: Shard, ctx: Ctx) -> Curvature:
        if self.lam == 0:
            return self.init(w)
        u = self.fisher_diagonal(f, w, data, ctx.plan.batch_size)
        return Curvature(w, u - ctx.memory.u, u * w - ctx.memory.v)

    def fisher_diagonal(self, f: Model, w: Vector, data: Shard, batch_size: int) -> Vector:
        """u_k: the mean over batches of the squared gradient of the client's loss."""
        b = batch_size if self.fisher == "batch" else 1
        # `upload` has no random stream: a fixed order that mixes the classes.
        order = torch.randperm(len(data), generator=Stream(0).at("fisher").generator())
        batches = torch.split(order[: (self.size // b + 1) * b], b)
        total = Sum[Vector]()
        for which in batches:
            x, y = data.examples.rows(data.rows[which.to(data.rows.device)])
            total.add(1 / len(batches), squared_gradient(f, w, data.transform.normalise(x), y))
        return total.total

    def remember(self, w: Vector, upload: Curvature, ctx: Ctx) -> Report:
        # As the server adds it: rounded alike, so that a single client has no others.
        return Report(ctx.memory.u + upload.u, ctx.memory.v + upload.v)

    def aggregate(
        self, s: Curvature, replies: Iterable[Reply[Curvature]], round: Round
    ) -> Curvature:
        mean, u, v = Mean[Vector](replies), Sum[Vector](), Sum[Vector]()
        for reply in replies:
            mean.add(reply, reply.w)
            u.add(1.0, reply.upload.u)
            v.add(1.0, reply.upload.v)
        return Curvature(mean.value, s.u + u.total, s.v + v.total)


def squared_gradient(f: Model, w: Vector, x: Tensor, y: Tensor) -> Vector:
    g = gradient(lambda v: F.cross_entropy(f(v, x).logits, y), w)
    return g * g
