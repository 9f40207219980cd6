"""Class-balanced batches of a client's rows and the server's anchors."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor


class Picks(NamedTuple):
    """The members of one balanced batch."""

    rows: Tensor  # positions in the client's data
    copies: Tensor  # how often each anchor is in the batch


def quotas(size: int, classes: Tensor, total: int, rng: Generator) -> Tensor:
    """How many of each of `total` classes: an equal share of the size, one more for some.

    Only the classes named share; the ones that get one more are drawn without replacement.
    """
    share, rest = divmod(size, len(classes))
    quota = torch.zeros(total, dtype=torch.long)
    quota[classes] = share
    quota[classes[torch.randperm(len(classes), generator=rng)[:rest]]] += 1
    return quota


def queue(pool: Tensor, length: int, rng: Generator) -> Tensor:
    """So many members of the pool in shuffled cycles: none comes again before all have come."""
    cycles = -(-length // len(pool))
    order = torch.rand(cycles, len(pool), generator=rng).argsort(dim=1)
    return pool[order.flatten()[:length]]


def balanced(
    labels: Tensor, anchors: Tensor, sizes: Sequence[int], total: int, rng: Generator
) -> Iterator[Picks]:
    """A batch of each size in which the classes' counts differ by at most one.

    `labels` are the classes of the client's rows, `anchors` those of the anchors. A class draws
    from its rows and its anchors alike; a class with neither is left out.
    """
    n = len(labels)
    members = torch.cat([labels, anchors])  # row i is member i, anchor j is member n + j
    classes = torch.nonzero(torch.bincount(members, minlength=total)).flatten()
    quota = torch.stack([quotas(size, classes, total, rng) for size in sizes])  # steps × classes
    picked = torch.cat([
        queue(torch.nonzero(members == c).flatten(), int(quota[:, c].sum()), rng) for c in classes
    ])  # fmt: skip
    step = torch.cat([torch.arange(len(sizes)).repeat_interleave(quota[:, c]) for c in classes])
    picked = picked[step.argsort(stable=True)]
    for batch in torch.split(picked, list(sizes)):
        rows = batch[batch < n]
        yield Picks(rows, torch.bincount(batch[batch >= n] - n, minlength=len(anchors)))
