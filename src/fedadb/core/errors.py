"""The kinds of failure that are not bugs."""


class BadInput(ValueError):
    """The request cannot be carried out as given; the message says what to change.

    The command line prints the message and exits with code 2.
    """


class Fault(RuntimeError):
    """The request is valid, but something failed: a damaged file, a full disk, divergence.

    The command line prints the message and exits with code 1.
    """


class Temporary(Fault):
    """Something failed that may be in order later: the same command tries again.

    The command line exits with code 75, for which a supervisor starts it again.
    """


class Diverged(Fault):
    """Training diverged: weights are no longer finite."""
