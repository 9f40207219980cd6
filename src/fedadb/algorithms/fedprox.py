"""FedProx: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020,
arXiv:1812.06127.
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
class FedProx(FedAvg):
    """FedAvg whose clients stay close to the weights they received."""

    mu: Annotated[float, Ge(0), Searched(0.001, 1)] = 0.01  # μ: weight of the proximal term

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights]) -> Tensor:
        drift = w - ctx.sent.w
        risk = F.cross_entropy(f(w, batch.x).logits, batch.y)
        return risk + self.mu / 2 * (drift @ drift)
