"""The numbers by which runs are compared."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median, pstdev, stdev
from typing import NamedTuple

BEST = 5  # rounds whose mean is the accuracy of a run, as in the paper
TARGET_SHARES = (0.45, 0.65, 0.85)  # of the best accuracy that any run reached


class SeedStatistics(NamedTuple):
    """The mean and the population standard deviation of a number over seeds."""

    mean: float
    deviation: float
    seeds: int


def seed_statistics(values: Sequence[float]) -> SeedStatistics:
    return SeedStatistics(fmean(values), pstdev(values), len(values))


def best_rounds(accuracy: Sequence[float], n: int = BEST) -> float:
    """The mean of the n best rounds."""
    best = sorted(accuracy)[-n:]
    return sum(best) / len(best)


def last_rounds(accuracy: Sequence[float], n: int = 10) -> float:
    """The mean of the last n rounds."""
    return fmean(accuracy[-n:])


def picked_round(accuracy: Sequence[float], validation: Sequence[float | None]) -> float | None:
    """The accuracy of the first round of highest validation accuracy; None if none was measured."""
    known = [(a, v) for a, v in zip(accuracy, validation, strict=True) if v is not None]
    return max(known, key=lambda pair: pair[1])[0] if known else None


def ewma(values: Sequence[float], factor: float = 0.2) -> list[float]:
    """The moving average s₁ = a₁, s_t = factor · a_t + (1 − factor) · s_{t−1}."""
    smooth: list[float] = []
    for value in values:
        smooth.append(factor * value + (1 - factor) * smooth[-1] if smooth else value)
    return smooth


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean over seeds per round, up to the end of the shortest curve."""
    return [fmean(values) for values in zip(*curves, strict=False)]


def t_quantile(n: int) -> float:
    """The 97.5 % quantile of Student's t distribution for the mean of n values."""
    from scipy.special import stdtrit  # late, and not scipy.stats, which takes a second to import

    return float(stdtrit(n - 1, 0.975))


def interval(curves: Sequence[Sequence[float]]) -> list[float]:
    """Half the width of the 95 % interval of the mean per round: t · s / √n."""
    n = len(curves)
    if n < 2:
        return [0.0] * min(map(len, curves))
    t = t_quantile(n)
    return [t * stdev(values) / n**0.5 for values in zip(*curves, strict=False)]


class PairedDifference(NamedTuple):
    """The mean of differences that are paired by seed."""

    mean: float
    half: float | None  # half the width of its 95 % interval; None: there is one pair
    pairs: int

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.half is not None and self.mean > self.half


def paired_difference(
    values: Mapping[int, float], reference: Mapping[int, float]
) -> PairedDifference | None:
    """Values by seed, minus those of a reference, over the seeds of both; None if there is none."""
    differences = [values[seed] - reference[seed] for seed in values if seed in reference]
    if not differences:
        return None
    n = len(differences)
    half = interval([[d] for d in differences])[0] if n > 1 else None
    return PairedDifference(fmean(differences), half, n)


def targets(best: float) -> list[float]:
    """The target accuracies: shares of the best one, in whole per cent as in the paper."""
    return [round(100 * share * best) / 100 for share in TARGET_SHARES]


def rounds_to(accuracy: Sequence[float], target: float) -> int | None:
    """The first round, counted from 1, whose smoothed accuracy reaches the target."""
    return first_round(ewma(accuracy), target)


def first_round(accuracy: Sequence[float], target: float) -> int | None:
    """The first round, counted from 1, whose accuracy reaches the target."""
    return next((t for t, a in enumerate(accuracy, start=1) if a >= target), None)


class RoundRatios(NamedTuple):
    """How many times the rounds of a reference method another method needs, over all targets."""

    mean: float | None  # over the targets that both reach, as in the paper
    median: float | None
    missed: int  # targets that the method does not reach


def round_ratios(rounds: Sequence[int | None], reference: Sequence[int | None]) -> RoundRatios:
    both = [n / other for n, other in zip(rounds, reference, strict=True) if n and other]
    missed = sum(n is None for n in rounds)
    if not both:
        return RoundRatios(None, None, missed)
    return RoundRatios(fmean(both), median(both), missed)


def forgetting(class_accuracy: Sequence[Sequence[float | None]]) -> float | None:
    """F = 1/C Σ_c (max_{t<T} A_c^t − A_c^T): how far classes end below their best earlier accuracy.

    A class that ends above its best earlier accuracy counts negatively. Only classes count that
    were measured in the last round and in an earlier one; None if there is no such class.

    Args:
        class_accuracy: Rounds × classes; None where a class was not measured, because there were
            no test rows of it or because the site that has them was not connected.
    """
    *before, last = class_accuracy
    drops = []
    for c, now in enumerate(last):
        known = [a for row in before if (a := row[c]) is not None]
        if now is not None and known:
            drops.append(max(known) - now)
    return sum(drops) / len(drops) if drops else None
