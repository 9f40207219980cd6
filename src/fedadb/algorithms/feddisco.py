"""FedDisco: Ye et al., "FedDisco: Federated Learning with Discrepancy-Aware Collaboration", ICML
2023, arXiv:2305.19229.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor

from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import Shard
from fedadb.core.model import Model
from fedadb.core.replies import Reply, Sum
from fedadb.core.vector import Vector, Weights
from fedadb.roles import Searched


class FedDiscoUpload(NamedTuple):
    w: Vector
    kl: Tensor  # KL_k: how far the client's class distribution is from the uniform one


@dataclass(frozen=True)
class FedDisco(Algorithm[Weights, Weights, tuple[()], FedDiscoUpload]):
    """FedAvg that gives clients with a skewed class distribution less weight in the mean."""

    # how much a client with skewed classes loses weight in the mean
    a: Annotated[float, Ge(0), Searched(0.1, 1, "linear")] = 0.5
    b: Annotated[float, Ge(0), Searched(0.01, 1)] = 0.1  # added to every client's weight

    needs_single_replies = True  # each has a weight of its own
    # 0 for balanced clients, log C for those with one class
    spread: ClassVar[Mapping[str, float]] = {"kl": inf}

    def upload(self, f: Model, w: Vector, data: Shard, ctx: Context[Weights]) -> FedDiscoUpload:
        return FedDiscoUpload(w, discrepancy(ctx.counts))

    def aggregate(
        self, s: Weights, replies: Iterable[Reply[FedDiscoUpload]], round: Round
    ) -> Weights:
        if self.a == 0 and self.b == 0:
            return super().aggregate(s, replies, round)
        kept = list(replies)  # the first one's weight depends on the last one's KL
        rows = [int(reply.examples) for reply in kept]
        weights = self.weights(rows, [float(reply.upload.kl) for reply in kept])
        mean = Sum[Vector]()
        for weight, reply in zip(weights, kept, strict=True):
            mean.add(weight, reply.w)
        return Weights(mean.total)

    def weights(self, rows: Sequence[int], kl: Sequence[float]) -> list[float]:
        """ReLU(p_k − a d_k + b), divided by their sum; p_k if all are 0."""
        p = [n / sum(rows) for n in rows]
        kl = [max(one, 0.0) for one in kl]  # whatever a site claims
        total = sum(kl)
        d = [one / total if total > 0 else 0.0 for one in kl]
        raw = [max(p_k - self.a * d_k + self.b, 0.0) for p_k, d_k in zip(p, d, strict=True)]
        return [one / sum(raw) for one in raw] if sum(raw) > 0 else p


def discrepancy(counts: Tensor) -> Tensor:
    """KL_k = Σ π_c log(C π_c), with π_c = n_{k,c} / n_k and 0 log 0 = 0: exactly 0 if balanced."""
    n = counts.sum()
    return (torch.xlogy(counts, counts * len(counts) / n) / n).sum().clamp(min=0)
