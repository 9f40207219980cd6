"""FedASAM: Caldarola et al., "Improving Generalization in Federated Learning by Seeking Flat
Minima", ECCV 2022, arXiv:2203.11834.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.vector import Vector, Weights, gradient
from fedadb.roles import Searched


@dataclass(frozen=True)
class FedASAM(FedAvg):
    """FedAvg whose clients take the gradient at the worst nearby point, scaled by the weights."""

    # ρ: distance of the point at which the gradient is taken; 0.7 in the authors' code
    rho: Annotated[float, Ge(0), Searched(0.05, 5)] = 0.5
    # η: added to |w| in the scale of the perturbation; 0.2 in the authors' code
    eta: Annotated[float, Ge(0)] = 0.0
    # The parameters whose perturbation scales with |w|: all, or as in the authors' code only
    # those whose name contains "weight".
    scope: Literal["all", "weights"] = "all"

    def gradient(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights]) -> Vector:
        g = gradient(lambda v: self.loss(f, v, batch, ctx), w)
        ascent = self.rho * self.perturbation(w, g)
        return gradient(lambda v: self.loss(f, v, batch, ctx), w + ascent)

    def perturbation(self, w: Vector, g: Vector) -> Vector:
        """T² g / ‖T g‖, with T = |w| + η."""
        scale = Vector(w.flat.abs() + self.eta, w.layout)
        if self.scope == "weights":
            ones = torch.ones_like
            parts = {n: t if "weight" in n else ones(t) for n, t in scale.views().items()}
            scale = Vector.of(parts)
        tg = scale * g
        return scale * tg / (tg.norm() + 1e-12)
