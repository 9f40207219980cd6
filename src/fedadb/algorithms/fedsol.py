"""FedSOL: Lee et al., "FedSOL: Stabilized Orthogonal Learning with Proximal Restrictions in
Federated Learning", CVPR 2024, arXiv:2308.12532.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context
from fedadb.core.data import Batch
from fedadb.core.losses import distil
from fedadb.core.model import Model
from fedadb.core.vector import Vector, Weights, gradient
from fedadb.roles import Searched


@dataclass(frozen=True)
class FedSOL(FedAvg):
    """FedAvg whose clients take the gradient at a point where the proximal loss is higher."""

    rho: Annotated[float, Ge(0), Searched(0.1, 10)] = 1.0  # ρ: distance of the perturbed point
    tau: Annotated[float, Gt(0)] = 3.0  # τ: temperature of the proximal loss
    adaptive: bool = True  # scale the perturbation by each weight's drift

    def gradient(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights]) -> Vector:
        teacher = f(ctx.sent.w, batch.x).logits
        scale = 1 / self.tau**2  # the proximal loss has no τ²
        g_p = gradient(lambda v: scale * distil(f(v, batch.x).logits, teacher, self.tau), w)
        perturbed = w + self.perturbation(w - ctx.sent.w, g_p)
        return gradient(lambda v: F.cross_entropy(f(v, batch.x).logits, batch.y), perturbed)

    def perturbation(self, drift: Vector, g_p: Vector) -> Vector:
        """ρ Λ ∘ g_p / ‖g_p‖, with Λ = |w − w_t| normalised along each tensor's first axis, or 1."""
        length = g_p.norm()
        step = self.rho * g_p / (length + 1e-12)
        if self.adaptive:
            return drift.abs().map(lambda t: F.normalize(t, dim=0)) * step
        # At the first step w = w_t, so g_p is rounding noise and has no direction.
        return step * torch.where(length < 1e-7, 0.0, 1.0)
