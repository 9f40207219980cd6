"""Changes of FedADB that might improve it: see experiments/studies/better.toml.

They are not part of the package. One that holds becomes an option there, with its evidence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Le
from torch import Tensor

from fedadb.algorithms.fedadb import (
    Anchors,
    BalancedBatch,
    DualBatch,
    FedADB,
    FedADBBroadcast,
    missing_rate,
)
from fedadb.algorithms.fedvls import vacant_distil
from fedadb.core.algorithm import Context
from fedadb.core.data import Shard
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector

Ctx = Context[FedADBBroadcast]


@dataclass(frozen=True)
class OnePass(FedADB):
    """Trains both heads on one batch: local rows as they come, and an anchor per missing class.

    A balanced softmax takes the place of balanced batches. The anchors of a missing class have the
    weight 1/C, as a class of a balanced batch has, and the rows share the rest. `anchors_for`,
    `anchor_weight` and `balanced_epoch` change nothing.
    """

    def batches(self, f: Model, data: Shard, ctx: Ctx, rng: Stream) -> Iterator[DualBatch]:
        c = ctx.sent.anchors.c
        missing = data.counts[c] == 0
        anchors = Anchors(
            f.domain.dequantise(ctx.sent.anchors.x)[missing],
            c[missing],
            ctx.sent.anchors.confidence[missing],
        )
        of_rows = 1 - missing_rate(data.counts)
        each = 1 / (self.anchors_per_class * len(data.counts))
        for local in ctx.plan.batches(data, rng):
            x, y = torch.cat([local.x, anchors.x]), torch.cat([local.y, anchors.c])
            anchor = torch.arange(len(y), device=y.device) >= len(local.y)
            weight = torch.where(anchor, each, of_rows / len(local.y))
            yield DualBatch(BalancedBatch(x, y, weight, anchor), local)

    def loss(self, f: Model, w: Vector, batch: DualBatch, ctx: Ctx) -> Tensor:
        out = f(w, batch.balanced.x, "A")
        agb = self.balanced_loss(f, out.logits, batch.balanced, ctx)
        h = out.features[: len(batch.local.y)]
        z_local = F.linear(h, w["heads.L.weight"], w["heads.L.bias"])
        return agb + self.local_weight(ctx) * F.cross_entropy(z_local, batch.local.y)

    def balanced_loss(self, f: Model, z: Tensor, batch: BalancedBatch, ctx: Ctx) -> Tensor:
        """Cross entropy of z + log p, where p is how often the batches show each class."""
        adjusted = z + shown_share(ctx.counts).log()
        return batch.weight @ F.cross_entropy(adjusted, batch.y, reduction="none")


def shown_share(counts: Tensor) -> Tensor:
    """The weight of each class in the batches of `OnePass`: 1/C if the client has no row of it."""
    of_rows = (1 - missing_rate(counts)) * counts / counts.sum()
    return torch.where(counts == 0, 1 / len(counts), of_rows)


@dataclass(frozen=True)
class SoftAnchors(FedADB):
    """Anchors carry the global model's whole prediction in place of their class."""

    def balanced_loss(self, f: Model, z: Tensor, batch: BalancedBatch, ctx: Ctx) -> Tensor:
        """Rows: cross entropy. Anchors: KL(global ‖ local), which is 0 at the received weights."""
        log_q = f(ctx.sent.w, batch.x, "A").logits.log_softmax(1)
        divergence = (log_q.exp() * (log_q - z.log_softmax(1))).sum(1)
        rows = F.cross_entropy(z, batch.y, reduction="none")
        return batch.weight @ torch.where(batch.anchor, divergence, rows)


@dataclass(frozen=True)
class VacantDistillation(FedADB):
    """Also distils the missing classes on the balanced batch, as FedVLS does on local rows."""

    distil: Annotated[float, Ge(0)] = 0.1  # weight of FedVLS's term

    def balanced_loss(self, f: Model, z: Tensor, batch: BalancedBatch, ctx: Ctx) -> Tensor:
        z_global = f(ctx.sent.w, batch.x, "A").logits
        agb = super().balanced_loss(f, z, batch, ctx)
        return agb + self.distil * vacant_distil(z, z_global, ctx.counts == 0)


@dataclass(frozen=True)
class SmallerBeta(FedADB):
    """The weight of the local branch is halved."""

    scale: Annotated[float, Gt(0), Le(1)] = 0.5  # of β

    def local_weight(self, ctx: Ctx) -> Tensor:
        return self.scale * super().local_weight(ctx)


@dataclass(frozen=True)
class OwnClasses(FedADB):
    """A real row is compared with the client's own classes only; anchors with all.

    So no row lowers the logit of a class that the client lacks, and anchors keep it in place.
    """

    def balanced_loss(self, f: Model, z: Tensor, batch: BalancedBatch, ctx: Ctx) -> Tensor:
        hidden = (ctx.counts == 0) & ~batch.anchor[:, None]
        seen = z.masked_fill(hidden, torch.finfo(z.dtype).min)
        return batch.weight @ F.cross_entropy(seen, batch.y, reduction="none")


@dataclass(frozen=True)
class OwnOnePass(OnePass):
    """`OnePass` whose rows are compared with the client's own classes only."""

    def balanced_loss(self, f: Model, z: Tensor, batch: BalancedBatch, ctx: Ctx) -> Tensor:
        adjusted = torch.where(batch.anchor[:, None], z, z + own_share(ctx.counts).log())
        return batch.weight @ F.cross_entropy(adjusted, batch.y, reduction="none")


def own_share(counts: Tensor) -> Tensor:
    """The share of each class in the client's rows: 0 if it has none, which hides the class."""
    return counts / counts.sum()


@dataclass(frozen=True)
class AnchoredSoftmax(OnePass):
    """`OwnOnePass` with light anchors, and a local branch that trains its head alone.

    Rows have their full weight. The local branch sends no gradient to the features.
    """

    anchor_share: Annotated[float, Ge(0)] = 0.1  # the anchors of a class weigh this over C

    def loss(self, f: Model, w: Vector, batch: DualBatch, ctx: Ctx) -> Tensor:
        n = len(batch.local.y)
        h, z = f(w, batch.balanced.x, "A")
        rows = F.cross_entropy(z[:n] + own_share(ctx.counts).log(), batch.local.y)
        anchors = F.cross_entropy(z[n:], batch.balanced.y[n:], reduction="sum")
        weight = self.anchor_share / (self.anchors_per_class * len(ctx.counts))
        z_local = F.linear(h[:n].detach(), w["heads.L.weight"], w["heads.L.bias"])
        lcb = F.cross_entropy(z_local, batch.local.y)
        return rows + weight * anchors + self.local_weight(ctx) * lcb
