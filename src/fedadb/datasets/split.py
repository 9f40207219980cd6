"""A fixed division of one labelled set into training and test rows."""

import torch
from torch import Tensor

from fedadb.core.data import Examples
from fedadb.core.stream import Stream


def stratified(images: Examples, classes: int) -> tuple[Examples, Examples]:
    """Four fifths of each class to train on, the rest to test; the same on every machine."""
    rng = Stream(0, ("split",)).generator()
    train: list[Tensor] = []
    test: list[Tensor] = []
    for c in range(classes):
        rows = torch.nonzero(images.y == c).flatten()
        rows = rows[torch.randperm(len(rows), generator=rng)]
        held_out = round(len(rows) / 5)
        test.append(rows[:held_out])
        train.append(rows[held_out:])
    return tuple(Examples(images.x[r], images.y[r]) for r in (torch.cat(train), torch.cat(test)))  # type: ignore[return-value]
