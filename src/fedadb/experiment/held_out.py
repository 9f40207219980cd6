"""Validation data: rows of each client that it does not train on."""

from collections.abc import Sequence

import numpy as np
import torch

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput
from fedadb.core.stream import Stream
from fedadb.partition import Rows


def hold_out(y: Rows, rows: Sequence[Rows], share: float, rng: Stream) -> tuple[list[Rows], Rows]:
    """Take a share of each client's rows of each class out of its training data.

    Of n rows of a class, share · n are held out, rounded to the nearest number, and halves upwards.
    A client whose rows would all be held out keeps one, of the class that it has most of. Which
    rows these are follows from the stream and the client's number alone.

    Args:
        y: The class of every row.
        rows: The rows of each client.
        share: Between 0 and 1.
        rng: The stream to draw from.

    Returns:
        The rows that each client trains on, in their order, and all rows that were held out.
    """
    kept, held_out = [], []
    for k, of_client in enumerate(rows):
        labels = y[of_client]
        counts = np.bincount(labels)
        wanted = np.floor(share * counts + 0.5).astype(np.int64)
        if wanted.sum() == len(of_client):
            wanted[counts.argmax()] -= 1
        order = rng.at(k).numpy().permutation(len(of_client))
        held = np.zeros(len(of_client), dtype=bool)
        for c in np.flatnonzero(wanted):
            held[order[labels[order] == c][: wanted[c]]] = True
        kept.append(of_client[~held])
        held_out.append(of_client[held])
    if not sum(map(len, held_out)):
        raise BadInput(
            f"validation = {share:g}: no client has so many rows of a class that one of them would "
            "be held out; raise it, or leave it out"
        )
    return kept, np.concatenate(held_out)


def remove_rows(
    examples: Examples, rows: Sequence[Rows], removed: Rows
) -> tuple[Examples, list[Rows]]:
    """The examples without the removed rows, and the clients' rows by their new numbers."""
    stays = np.ones(len(examples.y), dtype=bool)
    stays[removed] = False
    number = stays.cumsum() - 1
    return examples.rows(torch.from_numpy(stays)), [number[r] for r in rows]
