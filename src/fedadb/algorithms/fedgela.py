"""FedGELA: Fan et al., "Federated Learning with Bilateral Curation for Partially Class-Disjoint
Data", NeurIPS 2023, arXiv:2405.18972.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import Gt
from torch import Tensor, nn

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context
from fedadb.core.data import Batch
from fedadb.core.errors import BadInput
from fedadb.core.model import Model
from fedadb.core.vector import Vector, Weights
from fedadb.roles import Searched


class SimplexETF(nn.Module):
    """A fixed classifier whose class directions are as far apart as possible."""

    def __init__(self, dim: int, classes: int, norm: str) -> None:
        super().__init__()
        if dim < classes:
            raise BadInput(
                f"fedgela needs at least {classes} features for {classes} classes; got {dim}"
            )
        q, _ = torch.linalg.qr(torch.rand(dim, classes))
        centred = torch.eye(classes) - 1 / classes
        self.register_buffer("M", math.sqrt(classes / (classes - 1)) * q @ centred)
        self.norm = nn.BatchNorm1d(dim, track_running_stats=False) if norm == "batch" else None

    def forward(self, h: Tensor) -> Tensor:
        M = self.get_buffer("M")
        # A single row has no batch statistics, unless they are frozen.
        if self.norm is None or (self.norm.running_mean is None and len(h) == 1):
            return math.sqrt(h.shape[1]) * F.normalize(h, dim=1) @ M
        logits: Tensor = self.norm(h) @ M
        return logits


@dataclass(frozen=True)
class FedGELA(FedAvg):
    """FedAvg on a fixed classifier, whose logits each client scales by its class frequencies."""

    # temperature of the loss: the smaller, the larger the logits
    temperature: Annotated[float, Gt(0), Searched(0.01, 1)] = 0.2
    # Normalisation of the features: by batch statistics, or to length √d.
    feature_norm: Literal["batch", "length"] = "batch"

    default_clip = 20.0

    def heads(self, dim: int, classes: int) -> Mapping[str, nn.Module]:
        return {"head": SimplexETF(dim, classes, self.feature_norm)}

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights]) -> Tensor:
        logits = f(w, batch.x).logits * prior_scale(ctx.counts) / self.temperature
        return F.cross_entropy(logits, batch.y)


def prior_scale(counts: Tensor) -> Tensor:
    """Φ_{k,c} = |C| n_{k,c} / n_k: 1 on average, 0 for a class that the client lacks."""
    return len(counts) * counts / counts.sum()
