"""FedExP: Jhunjhunwala et al., "FedExP: Speeding up Federated Averaging via Extrapolation", ICLR
2023, arXiv:2301.09604.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor

from fedadb.core.algorithm import Algorithm, Round
from fedadb.core.replies import Mean, Reply
from fedadb.core.vector import Vector
from fedadb.roles import Searched


class FedExPState(NamedTuple):
    w: Vector
    previous: Vector  # the iterate of the round before; after round 1, w itself


@dataclass(frozen=True)
class FedExP(Algorithm[FedExPState]):
    """FedAvg with a server step that grows with the disagreement of the clients' updates."""

    # ε of the first round: the larger, the less the server extrapolates
    eps: Annotated[float, Ge(0), Searched(0.001, 0.1)] = 1e-3
    evaluate_mean: bool = True  # deploy the mean of the last two iterates, as the authors do

    own_server_step = True  # extrapolation
    needs_single_replies = True  # their norms: equal ones would make it FedAvg

    def init(self, w: Vector) -> FedExPState:
        return FedExPState(w, w)

    def aggregate(self, s: FedExPState, replies: Iterable[Reply], round: Round) -> FedExPState:
        weights, moved, m = Mean[Vector](replies), Mean[Tensor](replies), 0
        for reply in replies:
            weights.add(reply, reply.w)
            moved.add(reply, (reply.w - s.w).norm().square())
            m += 1
        mean = weights.value
        # ‖Δ‖² decreases with the square of the learning rate, so ε does too.
        step = self.step(moved.value, mean - s.w, m * self.eps * round.lr_factor**2)
        # Written around the mean, so that a step of 1 is bit-identical to FedAvg.
        w = mean + (step - 1) * (mean - s.w)
        return FedExPState(w, s.w if round.t > 1 else w)  # the authors deploy w₁ after round 1

    def step(self, moved: Tensor, mean_update: Vector, eps: float) -> Tensor:
        """η_g = max(1, ½ Σ p_k‖Δ_k‖² / (‖Σ p_k Δ_k‖² + m ε_t)); `moved` is the first sum."""
        # 0 / 0 if no client moved: there is nothing to extrapolate.
        ratio = torch.nan_to_num(0.5 * moved / (mean_update.norm().square() + eps))
        return ratio.clamp(min=1)

    def deployed(self, s: FedExPState) -> Vector:
        return (s.w + s.previous) / 2 if self.evaluate_mean else s.w
