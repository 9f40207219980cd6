"""Sentences that say that other kernels are used than one expects."""

import logging
import warnings
from contextlib import suppress
from functools import cache

LOG = logging.getLogger("fedadb.kernels")


class KernelsWarning(RuntimeWarning):
    """Other kernels are used than one expects."""


@cache  # one sentence is enough, however many models there are
def warn_of_torch(reason: str) -> None:
    """Say why torch's kernels are used in place of our own."""
    warn(f"torch's kernels are used, which are slower: {reason}")


def warn(message: str) -> None:
    """Report the message in the log and, for programs without one, as a warning."""
    LOG.warning(message)
    with suppress(KernelsWarning):  # raised if the program turns warnings into errors
        warnings.warn(message, KernelsWarning, stacklevel=3)
