"""Class-balanced batches of a client's rows and the server's anchors."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor


class BalancedRows(NamedTuple):
    """The members of one balanced batch."""

    rows: Tensor  # positions in the client's data
    copies: Tensor  # how often each anchor occurs


def quotas(size: int, classes: int, rng: Generator) -> Tensor:
    """How many members each class contributes: an equal share, plus one for some random classes."""
    share, rest = divmod(size, classes)
    quota = torch.full((classes,), share)
    quota[torch.randperm(classes, generator=rng)[:rest]] += 1
    return quota


def cycle(pool: Tensor, length: int, rng: Generator) -> Tensor:
    """`length` members of the pool in shuffled cycles: none repeats before all have occurred."""
    cycles = -(-length // len(pool))
    order = torch.rand(cycles, len(pool), generator=rng).argsort(dim=1)
    return pool[order.flatten()[:length]]


def balanced(
    labels: Tensor, anchors: Tensor, sizes: Sequence[int], rng: Generator
) -> Iterator[BalancedRows]:
    """One batch of each size, in which the class counts differ by at most one.

    `labels` are the classes of the client's rows, `anchors` those of the anchors. A class draws
    from its rows and its anchors alike; a class that has neither is left out.
    """
    n = len(labels)
    members = torch.cat([labels, anchors])  # row i is member i, anchor j is member n + j
    pools = [torch.nonzero(members == c).flatten() for c in torch.unique(members)]
    quota = torch.stack([quotas(size, len(pools), rng) for size in sizes], dim=1)  # classes × steps
    queues = [
        torch.split(cycle(pool, int(lengths.sum()), rng), lengths.tolist())
        for pool, lengths in zip(pools, quota, strict=True)
    ]
    for parts in zip(*queues, strict=True):
        batch = torch.cat(parts)
        rows = batch[batch < n]
        yield BalancedRows(rows, torch.bincount(batch[batch >= n] - n, minlength=len(anchors)))
