"""The sentence that says why torch's kernels are used in place of our own."""

import logging
import warnings
from contextlib import suppress
from functools import cache

LOG = logging.getLogger("fedadb.kernels")


class KernelsWarning(RuntimeWarning):
    """Our own kernels cannot be used on this machine; torch's are."""


@cache  # one sentence is enough, however many models there are
def warn_of_torch(reason: str) -> None:
    """Report the reason in the log and, for programs without one, as a warning."""
    message = f"torch's kernels are used, which are slower: {reason}"
    LOG.warning(message)
    with suppress(KernelsWarning):  # raised if the program turns warnings into errors
        warnings.warn(message, KernelsWarning, stacklevel=2)
