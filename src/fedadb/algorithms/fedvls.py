"""FedVLS: Guo et al., "Exploring Vacant Classes in Label-Skewed Federated Learning", AAAI 2025,
arXiv:2401.02329.
"""

import math
from dataclasses import dataclass
from typing import Annotated

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

EPS = 1e-9  # keeps the logarithm of a vacant class's share finite


@dataclass(frozen=True)
class FedVLS(FedAvg):
    """FedAvg with balanced classes that distils vacant classes and suppresses other logits.

    A class is vacant if the client has no row of it.
    """

    lam: Annotated[float, Ge(0), Searched(0.01, 1)] = 0.1  # λ: weight of the distillation
    beta: Annotated[float, Ge(0)] = 0.005  # β: weight of the suppression

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights]) -> Tensor:
        z = f(w, batch.x).logits
        pi = ctx.counts / ctx.counts.sum()  # π_c = n_{k,c} / n_k
        balanced = F.cross_entropy(z + (pi + EPS).log(), batch.y)  # L_b
        if self.lam > 0:
            z_global = f(ctx.sent.w, batch.x).logits
            balanced = balanced + self.lam * vacant_distil(z, z_global, ctx.counts == 0)  # L_d
        return balanced + self.beta * suppression(z, batch.y, pi)


def vacant_distil(z: Tensor, z_global: Tensor, vacant: Tensor) -> Tensor:
    """KL(softmax_V(z^g) ‖ softmax_V(z)), averaged over the batch; V are the vacant classes."""
    some = vacant.any()
    shown = vacant | ~some  # with nothing to mask, the term is computed and multiplied by 0
    lowest = torch.finfo(z.dtype).min  # −∞ would give 0 · (−∞ + ∞)
    log_q = z_global.masked_fill(~shown, lowest).log_softmax(1)
    log_s = z.masked_fill(~shown, lowest).log_softmax(1)
    terms = torch.where(shown, log_q.exp() * (log_q - log_s), 0)
    return some * terms.sum(1).mean()


def suppression(z: Tensor, y: Tensor, pi: Tensor) -> Tensor:
    """L_s = Σ_c π_c (log Σ_i exp u_ic − log B), with u_ic = 0 where c is the label of row i."""
    rows, classes = z.shape
    other = y[:, None] != torch.arange(classes, device=y.device)
    u = (z - (pi + EPS).log() + math.log(1 / classes + EPS)) * other
    return pi @ (u.logsumexp(0) - math.log(rows))
