"""A model that is its logits, for losses that change the logits of a batch."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad_and_value

from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import Batch, LocalPlan
from fedadb.core.model import Classifier, Domain, Model
from fedadb.core.vector import Vector, Weights


class Row(nn.Module):
    """The same logits for every input."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.z = nn.Parameter(torch.zeros(classes))

    def forward(self, h: Tensor) -> Tensor:
        return self.z.expand(len(h), -1)


def loss_and_gradient(
    algorithm: Algorithm[Any, Any, Any, Any], z: list[float], y: int, counts: list[int]
) -> tuple[Tensor, Tensor]:
    """The loss of one row with these logits, and its gradient with respect to them."""
    f = Model(Classifier(nn.Identity(), {"head": Row(len(z))}), Domain.unbounded((1,)), len(z))
    w = Vector(torch.tensor(z), f.layout)
    batch = Batch(torch.zeros(1, 1), torch.tensor([y]))

    def run(flat: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        ctx: Context[Any, Any] = Context(
            Weights(w), (), n, Round(1, 9, 2, 40), LocalPlan(), torch.tensor(1)
        )
        g, value = grad_and_value(lambda v: algorithm.loss(f, Vector(v, f.layout), batch, ctx))(
            flat
        )
        return value, g

    found = run(w.flat, torch.tensor(counts))
    stacked = torch.vmap(run)(w.flat.expand(2, -1), torch.tensor([counts, counts]))
    for one, both in zip(found, stacked, strict=True):
        torch.testing.assert_close(both[1], one)
    return found
