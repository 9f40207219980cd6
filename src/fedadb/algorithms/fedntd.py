"""FedNTD: Lee et al., "Preservation of the Global Knowledge by Not-True Distillation in Federated
Learning", NeurIPS 2022, arXiv:2106.03097.
"""

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context
from fedadb.core.data import Batch
from fedadb.core.losses import distil, drop_true
from fedadb.core.model import Model
from fedadb.core.vector import Vector, Weights
from fedadb.roles import Searched


@dataclass(frozen=True)
class FedNTD(FedAvg):
    """FedAvg that distils the global model's predictions for all classes but the true one."""

    beta: Annotated[float, Ge(0), Searched(0.1, 10)] = 1.0  # β: weight of the distillation
    tau: Annotated[float, Gt(0)] = 1.0  # τ: temperature of the distillation

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights]) -> Tensor:
        z, z_global = f(w, batch.x).logits, f(ctx.sent.w, batch.x).logits
        not_true = distil(drop_true(z, batch.y), drop_true(z_global, batch.y), self.tau)
        return F.cross_entropy(z, batch.y) + self.beta * not_true
