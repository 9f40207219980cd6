"""FedLMD: Lu et al., "Federated Learning with Label-Masking Distillation", ACM MM 2023,
arXiv:2409.13136.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.vector import Vector, Weights
from fedadb.roles import Searched


@dataclass(frozen=True)
class FedLMD(FedAvg):
    """FedAvg that distils the global model's predictions for the client's minority labels."""

    beta: Annotated[float, Ge(0), Searched(0.1, 10)] = 1.0  # β: weight of the distillation
    tau: Annotated[float, Gt(0)] = 1.0  # τ: temperature of the distillation

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights]) -> Tensor:
        z, z_global = f(w, batch.x).logits, f(ctx.sent.w, batch.x).logits
        masked = masked_distil(z, z_global, batch.y, majority(ctx.counts), self.tau)
        return F.cross_entropy(z, batch.y) + self.beta * masked


def majority(counts: Tensor) -> Tensor:
    """Maj_k: the classes with more rows than the average class."""
    return counts > counts.sum() / len(counts)


def masked_distil(z: Tensor, z_global: Tensor, y: Tensor, major: Tensor, tau: float) -> Tensor:
    """τ² KL(q ‖ s): teacher q without majority and true labels, student s without true labels."""
    true = y[:, None] == torch.arange(z.shape[1], device=y.device)
    masked = true | major
    q = (z_global / tau).masked_fill(masked, -torch.inf).softmax(1)
    # A row whose classes are all masked does not count.
    q = q.masked_fill(masked.all(1, keepdim=True), 0)
    log_s = (z / tau).masked_fill(true, -torch.inf).log_softmax(1).masked_fill(true, 0)
    return tau**2 * (torch.xlogy(q, q) - q * log_s).sum(1).mean()
