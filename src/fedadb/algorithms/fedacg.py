"""FedACG: Kim et al., "Communication-Efficient Federated Learning with Accelerated Client
Gradient", CVPR 2024, arXiv:2201.03172.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch.nn.functional as F
from annotated_types import Ge, Lt
from torch import Tensor

from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import Batch
from fedadb.core.model import Model
from fedadb.core.replies import Reply, average
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.roles import Searched


class FedACGState(NamedTuple):
    w: Vector
    m: Vector  # momentum


@dataclass(frozen=True)
class FedACG(Algorithm[FedACGState]):
    """The server sends a point that momentum has moved ahead; clients stay close to it.

    The authors' code also clips gradients to the norm 10: `local.clip = 10`.
    """

    lam: Annotated[float, Ge(0), Lt(1), Searched(0.5, 0.95, "linear")] = 0.85  # λ: server momentum
    # β: weight of the penalty ‖w − u‖²; no ½, as in the authors' code
    beta: Annotated[float, Ge(0), Searched(1e-4, 1e-2)] = 1e-3
    weighted: bool = True  # weigh clients by their rows; in the authors' code all weigh the same

    own_server_step = True  # momentum

    @property
    def mean_weights(self) -> Literal["rows", "uniform"]:
        return "rows" if self.weighted else "uniform"

    def init(self, w: Vector) -> FedACGState:
        return FedACGState(w, w.zeros())

    def broadcast(self, s: FedACGState, f: Model, rng: Stream) -> Weights:
        return Weights(self.ahead(s))

    def ahead(self, s: FedACGState) -> Vector:
        """The point u = w + λm at which clients start."""
        return s.w + self.lam * s.m

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Context[Weights]) -> Tensor:
        drift = w - ctx.sent.w
        return F.cross_entropy(f(w, batch.x).logits, batch.y) + self.beta * (drift @ drift)

    def aggregate(self, s: FedACGState, replies: Iterable[Reply], round: Round) -> FedACGState:
        mean = average(replies, weighted=self.weighted)
        return FedACGState(mean, self.lam * s.m + (mean - self.ahead(s)))
