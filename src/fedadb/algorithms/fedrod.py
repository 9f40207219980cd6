"""FedRoD: Chen and Chao, "On Bridging Generic and Personalized Federated Learning for Image
Classification", ICLR 2022, arXiv:2107.00778.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor

from fedadb.core.algorithm import Algorithm, Context
from fedadb.core.data import Batch, Shard
from fedadb.core.model import Model
from fedadb.core.vector import Vector, Weights


class PersonalHead(NamedTuple):
    """ψ_P: a linear head that never leaves its client."""

    weight: Tensor
    bias: Tensor


Ctx = Context[Weights, PersonalHead]


@dataclass(frozen=True)
class FedRoD(Algorithm[Weights, Weights, PersonalHead]):
    """A generic head, trained as if classes were balanced, and a personal head at each client.

    A client trains the model's weights, followed by those of its personal head. It uploads the
    former and remembers the latter.
    """

    gamma: Annotated[float, Ge(0)] = 1.0  # γ: how much the generic loss balances the classes

    def memory(self, w: Vector) -> PersonalHead:
        """A head of zeros: its client predicts what the generic head does."""
        weight, bias = w["heads.head.weight"], w["heads.head.bias"]
        return PersonalHead(torch.zeros_like(weight), torch.zeros_like(bias))

    def start(self, ctx: Ctx) -> Vector:
        head = {"personal.weight": ctx.memory.weight, "personal.bias": ctx.memory.bias}
        return Vector.of({**ctx.sent.w.views(), **head})

    def logits(self, f: Model, w: Vector, x: Tensor) -> tuple[Tensor, Tensor]:
        """z_G of the generic head, and z_P, of which no gradient reaches the features."""
        model, head = w.split(f.layout)
        h, z_generic = f(model, x)
        return z_generic, F.linear(h.detach(), head["personal.weight"], head["personal.bias"])

    def loss(self, f: Model, w: Vector, batch: Batch, ctx: Ctx) -> Tensor:
        """CE(z_G + γ log n_k) + CE(z_G + z_P), where the second term trains ψ_P alone."""
        z_generic, z_personal = self.logits(f, w, batch.x)
        personal = F.cross_entropy(z_generic.detach() + z_personal, batch.y)
        if self.gamma > 0:  # 0 · log 0 is not a number
            z_generic = z_generic + self.gamma * ctx.counts.log()
        return F.cross_entropy(z_generic, batch.y) + personal

    def upload(self, f: Model, w: Vector, data: Shard, ctx: Ctx) -> Weights:
        model, _ = w.split(f.layout)
        return Weights(model.clone())  # a view would share its memory with the personal head

    def remember(self, w: Vector, upload: Weights, ctx: Ctx) -> PersonalHead:
        return PersonalHead(w["personal.weight"].clone(), w["personal.bias"].clone())

    def personal(self, f: Model, w: Vector, x: Tensor) -> Tensor:
        """z_G + z_P at the weights w that the client trained, which contain its own head."""
        z_generic, z_personal = self.logits(f, w, x)
        return z_generic + z_personal
