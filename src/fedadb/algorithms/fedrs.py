"""FedRS: Li and Zhan, "FedRS: Federated Learning with Restricted Softmax for Label Distribution
Non-IID Data", KDD 2021, doi:10.1145/3447548.3467254.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from torch import Tensor

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.vector import Vector, Weights
from fedadb.roles import Searched


@dataclass(frozen=True)
class FedRS(FedAvg):
    """FedAvg whose clients scale down the logits of the classes that they lack."""

    # α: scale of the logit of a class that the client lacks; 1: FedAvg
    alpha: Annotated[float, Ge(0), Le(1), Searched(0.1, 0.9, "linear")] = 0.5
    # The scale of each class. "binary": α if the client lacks it, 1 otherwise, as in the paper.
    # "soft": from α to 1, in proportion to the client's rows of the class, as in the authors' code.
    variant: Literal["binary", "soft"] = "binary"

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights]) -> Tensor:
        return F.cross_entropy(self.scale(ctx.counts) * f(w, batch.x).logits, batch.y)

    def scale(self, counts: Tensor) -> Tensor:
        """s_{k,c}: the factor of each class's logit."""
        if self.variant == "binary":
            return torch.where(counts > 0, 1.0, self.alpha)
        return self.alpha + (1 - self.alpha) * counts / counts.max()
