"""Settings that suit the size of the data, and a hint if those of a run do not."""

import logging
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from statistics import median
from typing import Any

from fedadb.core.data import DataSpec, LocalPlan
from fedadb.core.transform import Transform

LOG = logging.getLogger("fedadb.sizes")
ROWS_PER_CLIENT = 30  # at least, where `fedadb init` chooses the number of clients
BATCHES = 4  # per epoch of a client, where it chooses the batch size
SMALLEST_IMAGE = 28  # pixels that LeNet needs


class SizeWarning(UserWarning):
    """The settings of a run do not suit the size of its data."""


def settings_for(rows: int, data: DataSpec) -> dict[str, Any]:
    """The settings for own data with so many training rows, as a table."""
    clients = min(10, max(2, rows // ROWS_PER_CLIENT))
    model = "mlp"
    if isinstance(data.transform, Transform):  # images
        model = "lenet" if min(data.shape[1:]) >= SMALLEST_IMAGE else "cnn"
    return {
        "model": model,
        "federation": {"clients": clients, "participation": 0.5 if clients > 4 else 1.0},
        "local": {"batch_size": batch_size_for(rows // clients)},
    }


def batch_size_for(rows: int) -> int:
    """The power of two, from 8 to 128, with which a client of so many rows has four batches."""
    return int(min(128, max(8, 2 ** ((rows // BATCHES).bit_length() - 1))))


def warn_of_few_steps(plan: LocalPlan, counts: Sequence[Sequence[int]]) -> None:
    """Say if most clients have all their rows in one batch: they hardly learn in a round.

    Args:
        plan: How clients train.
        counts: The rows of each class at each client.
    """
    rows = int(median(map(sum, counts)))
    better = batch_size_for(rows)
    if rows <= plan.batch_size and better < rows:
        _warn(
            f"local.batch_size = {plan.batch_size}: half of the clients have {rows} rows or "
            f"fewer, so they take {plan.steps(rows)} steps per round and learn slowly; "
            f"local.batch_size = {better} takes {plan.epochs * -(-rows // better)}"
        )


@cache  # one sentence is enough, however many runs there are
def _warn(message: str) -> None:
    LOG.warning(message)
    with suppress(SizeWarning):  # raised if the program turns warnings into errors
        warnings.warn(message, SizeWarning, stacklevel=4)
