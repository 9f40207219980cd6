"""The part of a model that is deployed: from images to the probabilities of their classes."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from fedadb.algorithms import ALGORITHMS
from fedadb.core.model import Domain, Model, assemble
from fedadb.core.stream import Stream
from fedadb.experiment import validation
from fedadb.experiment.stored import Finished
from fedadb.export.card import Card
from fedadb.models import MODELS


class Deployed(nn.Module):
    """A body φ and the one head ψ on it that is used; images are N × C × H × W in [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(self, body: nn.Module, head: nn.Module, card: Card) -> None:
        super().__init__()
        self.body = body
        self.head = head
        for name in ("mean", "std"):  # which the card holds
            value = torch.tensor(getattr(card, name)).view(-1, 1, 1)
            self.register_buffer(name, value, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body((images - self.mean) / self.std))
        return logits.softmax(1)


def deployed(run: Finished, card: Card) -> Deployed:
    """The run's model with its weights, in memory of its own."""
    f = run.world.f
    module = copy.deepcopy(f.module)
    module.load_state_dict(run.w.views(), strict=False)  # constants are there already
    return Deployed(module.body, module.heads[f.head], card)


def unfilled(table: dict[str, Any], card: Card) -> Deployed:
    """The model of an experiment's table, its weights still to be loaded."""
    rng = Stream(0)
    with rng.at("body").seeded():
        body = validation.to_named(MODELS, table["model"], "model").body(card.shape)
    heads = validation.to_named(ALGORITHMS, table["algorithm"], "algorithm").heads
    f: Model = assemble(body, heads, Domain.unbounded(card.shape), len(card.classes), rng)
    return Deployed(f.module.body, f.module.heads[f.head], card)
