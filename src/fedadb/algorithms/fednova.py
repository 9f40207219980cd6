"""FedNova: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization", NeurIPS 2020, arXiv:2007.07481.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.model import Model
from fedadb.core.optimizers import weight_of_steps
from fedadb.core.replies import Mean, Reply
from fedadb.core.vector import Vector, Weights


class WeightedSteps(NamedTuple):
    w: Vector
    a: Tensor  # a_k: the weight of the client's steps; without momentum, their number


@dataclass(frozen=True)
class FedNova(Algorithm[Weights, Weights, tuple[()], WeightedSteps]):
    """FedAvg in which a client's update is divided by the weight of its steps.

    So clients with more steps do not tilt the objective.
    """

    needs_single_replies = True  # the multipliers of equal updates would not sum to 1
    spread: ClassVar[Mapping[str, float]] = {"a": inf}  # it is known from the number of rows

    def check_plan(self, plan: LocalPlan) -> None:
        weight_of_steps(plan.optimizer, 1)

    def upload(self, f: Model, w: Vector, data: Shard, ctx: Context[Weights]) -> WeightedSteps:
        a = weight_of_steps(ctx.plan.optimizer, int(ctx.steps))
        return WeightedSteps(w, torch.tensor(a, device=w.flat.device))

    def implied(self, plan: LocalPlan, rows: int) -> Mapping[str, float]:
        return {"a": weight_of_steps(plan.optimizer, plan.steps(rows))}

    def aggregate(
        self, s: Weights, replies: Iterable[Reply[WeightedSteps]], round: Round
    ) -> Weights:
        """The weights w + τ_eff Σ p_k (w_k − w) / a_k, where τ_eff = Σ p_k a_k."""
        mean, normalised = Mean[Vector](replies), Mean[Vector](replies)
        tau_eff, different = Mean[Tensor](replies), set()
        for reply in replies:
            a = reply.upload.a.clamp(min=1)  # one step weighs 1
            mean.add(reply, reply.w)
            normalised.add(reply, (reply.w - s.w) / a)
            tau_eff.add(reply, a)
            different.add(float(a))
        if len(different) == 1:  # the formula is the mean, but for rounding
            return Weights(mean.value)
        return Weights(s.w + tau_eff.value * normalised.value)
