"""The kinds of failure that are not bugs."""


class BadInput(ValueError):
    """The request cannot be carried out as given; the message says what to change.

    The command line prints the message and exits with code 2.
    """


class Fault(RuntimeError):
    """The request is valid, but something failed: a damaged file, a full disk, divergence.

    The command line prints the message and exits with code 1.
    """


class Diverged(Fault):
    """Training diverged: weights are no longer finite."""
