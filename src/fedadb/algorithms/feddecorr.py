"""FedDecorr: Shi et al., "Towards Understanding and Mitigating Dimensional Collapse in
Heterogeneous Federated Learning", ICLR 2023, arXiv:2210.00226.
"""

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.vector import Vector, Weights
from fedadb.roles import Searched


@dataclass(frozen=True)
class FedDecorr(FedAvg):
    """FedAvg whose clients penalise correlation between the dimensions of their features."""

    # λ: weight of the penalty on correlated features; 0.05 for CIFAR-100
    lam: Annotated[float, Ge(0), Searched(0.01, 1)] = 0.1
    # Divide the penalty by (B−1)²/B, which makes it the mean squared correlation; in the authors'
    # code it grows with the batch size B.
    normalise: bool = False

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights]) -> Tensor:
        out = f(w, batch.x)
        penalty = correlation(out.features)
        if self.normalise:
            b = len(batch.y)
            penalty = penalty * b / max(b - 1, 1) ** 2
        return F.cross_entropy(out.logits, batch.y) + self.lam * penalty


def correlation(h: Tensor) -> Tensor:
    """1/B · mean over i ≠ j of (ZᵀZ)²_ij, where Z has the columns of h, standardised."""
    b, d = h.shape
    if b == 1 or d == 1:
        return 0 * h.sum()
    z = (h - h.mean(0)) / (h.var(0) + 1e-8).sqrt()
    g = z.T @ z
    off_diagonal = g.square().sum() - g.diagonal().square().sum()
    return off_diagonal / (d * (d - 1)) / b
