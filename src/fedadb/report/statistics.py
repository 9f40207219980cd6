"""The numbers by which runs are compared."""

from collections.abc import Sequence


def best_rounds(accuracy: Sequence[float], n: int = 5) -> float:
    """The mean of the n best rounds, whichever they are."""
    best = sorted(accuracy)[-n:]
    return sum(best) / len(best)


def ewma(values: Sequence[float], factor: float = 0.2) -> list[float]:
    """s₁ = a₁, s_t = factor · a_t + (1 − factor) · s_{t−1}."""
    smooth: list[float] = []
    for value in values:
        smooth.append(factor * value + (1 - factor) * smooth[-1] if smooth else value)
    return smooth


def rounds_to(accuracy: Sequence[float], target: float) -> int | None:
    """The first round, counted from 1, whose smoothed accuracy reaches the target."""
    return next((t for t, a in enumerate(ewma(accuracy), start=1) if a >= target), None)


def forgetting(class_accuracy: Sequence[Sequence[float | None]]) -> float:
    """F = 1/C Σ_c max_{t<T} (A_c^t − A_c^T): what was known of a class and is known no more.

    Rounds × classes; a class without test images does not count. A class that ends above all it
    was before counts negatively.
    """
    *before, last = class_accuracy
    lost = [
        max(known for t in before if (known := t[c]) is not None) - now
        for c, now in enumerate(last)
        if now is not None
    ]
    return sum(lost) / len(lost)
