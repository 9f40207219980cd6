"""FedLC: Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration",
ICML 2022, arXiv:2209.00189.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
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
class FedLC(FedAvg):
    """FedAvg whose clients subtract a margin from each logit, larger for rarer classes."""

    # τ: strength of the margins; 0: plain cross entropy
    tau: Annotated[float, Ge(0), Searched(0.1, 1)] = 0.1
    # A class without rows: "exclude" leaves it out of the softmax, "one" counts one row.
    missing: Literal["exclude", "one"] = "exclude"

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights]) -> Tensor:
        z = f(w, batch.x).logits
        if self.tau == 0:  # 0 · ∞ is not 0
            return F.cross_entropy(z, batch.y)
        return F.cross_entropy(z - self.tau * self.margins(ctx.counts), batch.y)

    def margins(self, counts: Tensor) -> Tensor:
        """n_{k,c}^(−1/4); ∞ for an excluded class, whose logit then has the gradient 0."""
        margins = counts.clamp(min=1) ** -0.25
        if self.missing == "one":
            return margins
        return torch.where(counts > 0, margins, torch.inf)
