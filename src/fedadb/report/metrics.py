"""The numbers by which runs are compared."""

from collections.abc import Sequence
from statistics import fmean, median, pstdev, stdev
from typing import NamedTuple

TARGETS = (0.45, 0.65, 0.85)  # of the best accuracy that any run reached
# 97.5 % points of Student's t by degrees of freedom; beyond, the normal distribution's.
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


class Spread(NamedTuple):
    """A number over seeds: mean and population deviation."""

    mean: float
    deviation: float
    seeds: int


def over_seeds(values: Sequence[float]) -> Spread:
    return Spread(fmean(values), pstdev(values), len(values))


def best_rounds(accuracy: Sequence[float], n: int = 5) -> float:
    """The mean of the n best rounds, whichever they are."""
    best = sorted(accuracy)[-n:]
    return sum(best) / len(best)


def last_rounds(accuracy: Sequence[float], n: int = 10) -> float:
    """The mean of the last n rounds."""
    return fmean(accuracy[-n:])


def ewma(values: Sequence[float], factor: float = 0.2) -> list[float]:
    """s₁ = a₁, s_t = factor · a_t + (1 − factor) · s_{t−1}."""
    smooth: list[float] = []
    for value in values:
        smooth.append(factor * value + (1 - factor) * smooth[-1] if smooth else value)
    return smooth


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """Round by round over seeds, as far as all of them go."""
    return [fmean(values) for values in zip(*curves, strict=False)]


def interval(curves: Sequence[Sequence[float]]) -> list[float]:
    """Half the width of the mean's 95 % interval, round by round: t · s / √n."""
    n = len(curves)
    if n < 2:
        return [0.0] * min(map(len, curves))
    t = T_975[n - 2] if n - 2 < len(T_975) else 1.96
    return [t * stdev(values) / n**0.5 for values in zip(*curves, strict=False)]


def targets(reference: float) -> list[float]:
    """Shares of the best accuracy, in whole per cent as the paper has them."""
    return [round(100 * share * reference) / 100 for share in TARGETS]


class Ratios(NamedTuple):
    """How many times the rounds of another that a method needs, over all targets."""

    mean: float | None  # over the targets that both reach, as in the paper
    median: float | None
    failed: int  # targets that it never reaches


def ratios(rounds: Sequence[int | None], others: Sequence[int | None]) -> Ratios:
    both = [n / other for n, other in zip(rounds, others, strict=True) if n and other]
    failed = sum(n is None for n in rounds)
    return Ratios(fmean(both), median(both), failed) if both else Ratios(None, None, failed)


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
