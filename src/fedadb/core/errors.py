"""The two ways in which a run can fail that are not a bug."""


class BadInput(ValueError):
    """What was asked for cannot be done as it stands; the message says what to change."""


class Fault(RuntimeError):
    """What was asked for is fine, but the world is not: a damaged file, a diverging run."""
