"""A fixed division of one labelled set into training and test rows."""

import torch
from torch import Tensor

from fedadb.core.stream import Stream


def stratified(labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Four fifths of each class to train on, the rest to test; the same on every machine."""
    rng = Stream(0, ("split",)).generator()
    train: list[Tensor] = []
    test: list[Tensor] = []
    for c in range(classes):
        rows = torch.nonzero(labels == c).flatten()
        rows = rows[torch.randperm(len(rows), generator=rng)]
        held_out = round(len(rows) / 5)
        test.append(rows[:held_out])
        train.append(rows[held_out:])
    return torch.cat(train), torch.cat(test)
