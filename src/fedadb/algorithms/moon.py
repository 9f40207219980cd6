"""MOON: Li, He and Song, "Model-Contrastive Federated Learning", CVPR 2021, arXiv:2103.16257."""

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor

from fedadb.core.algorithm import Algorithm, Context, PreviousModel
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.vector import Vector, Weights
from fedadb.roles import Searched

Ctx = Context[Weights, PreviousModel]


@dataclass(frozen=True)
class MOON(Algorithm[Weights, Weights, PreviousModel]):
    """A contrastive term pulls features to the global model's, away from the client's last ones."""

    # μ: weight of the contrastive term; 1 in the authors' code
    mu: Annotated[float, Ge(0), Searched(0.001, 10)] = 0.1
    tau: Annotated[float, Gt(0)] = 0.5  # τ: temperature of the contrastive term

    def memory(self, w: Vector) -> PreviousModel:
        return PreviousModel(w)

    def remember(self, w: Vector, upload: Weights, ctx: Ctx) -> PreviousModel:
        return PreviousModel(w.clone())  # the reply holds w itself, and is released on its own

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Ctx) -> Tensor:
        if self.mu == 0:
            return super().loss(f, w, batch, ctx)
        z, logits = f(w, batch.x)
        z_global, z_previous = (f(v, batch.x).features for v in (ctx.sent.w, ctx.memory.w))
        risk = F.cross_entropy(logits, batch.y)
        return risk + self.mu * contrast(z, z_global, z_previous, self.tau)


def contrast(z: Tensor, z_global: Tensor, z_previous: Tensor, tau: float) -> Tensor:
    """−log(e^{cos(z, z_global)/τ} / (e^{cos(z, z_global)/τ} + e^{cos(z, z_previous)/τ})), averaged.

    Features that are 0 have the cosine 0 with all others.
    """
    z, z_global, z_previous = (F.normalize(h, eps=1e-8) for h in (z, z_global, z_previous))
    # One product with the difference, and not a difference of two: if both models are the same,
    # as in a client's first round, the gradient is then exactly 0.
    return F.softplus((z * (z_previous - z_global)).sum(-1) / tau).mean()
