"""Average ranks of methods over settings, and which of them are distinguishable.

J. Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006.

scipy.stats takes a second to import, so it is imported where ranks are computed.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from fedadb.report.cells import Cell, Number, Table
from fedadb.report.comparison import Comparison
from fedadb.report.metrics import best_rounds
from fedadb.report.notes import notes_on_runs

LEVEL = 0.05  # of the tests


class Ranks(NamedTuple):
    """The ranks of methods by mean accuracy; 1 is the best. Equal ones share their mean rank."""

    settings: list[str]  # that all methods have finished
    ranks: dict[str, list[float]]  # by method, from the best average; one rank per setting
    p: float  # of Friedman's test that all methods are equal
    critical: float  # difference of average ranks, by Nemenyi at 95 %

    @property
    def averages(self) -> dict[str, float]:
        return {method: fmean(ranks) for method, ranks in self.ranks.items()}

    @property
    def groups(self) -> list[list[str]]:
        """The largest groups of methods that are not distinguishable, of two or more.

        Pairs are compared only if Friedman's test rejects that all methods are equal.
        """
        averages, methods = self.averages, list(self.ranks)
        if self.p >= LEVEL:
            return [methods]
        groups: list[list[str]] = []
        for i, first in enumerate(methods):
            group = [m for m in methods[i:] if averages[m] - averages[first] <= self.critical]
            if len(group) > 1 and not (groups and group[-1] in groups[-1]):
                groups.append(group)
        return groups


def rank_methods(comparison: Comparison) -> Ranks | None:
    """The ranks over the settings that all methods have finished.

    None if these are fewer than two, or if there is one method.
    """
    finished = {
        cell: fmean(best_rounds(run.accuracy) for run in runs)
        for cell, runs in comparison.runs.items()
        if all(run.finished for run in runs)
    }
    methods = comparison.methods
    settings = [s for s in comparison.settings if all((m, s) in finished for m in methods)]
    if len(methods) < 2 or len(settings) < 2:
        return None
    from scipy.stats import rankdata

    by_setting = [
        [float(rank) for rank in rankdata([-finished[m, s] for m in methods])] for s in settings
    ]
    ranks = dict(zip(methods, map(list, zip(*by_setting, strict=True)), strict=True))
    ordered = dict(sorted(ranks.items(), key=lambda item: fmean(item[1])))
    critical = critical_difference(len(methods), len(settings))
    return Ranks(settings, ordered, friedman(by_setting), critical)


def friedman(ranks: Sequence[Sequence[float]]) -> float:
    """The p-value of Friedman's test, corrected for ties; `ranks` are settings × methods.

    χ² = (k − 1) Σ_j (R_j − n (k + 1) / 2)² / (Σ_ij r_ij² − n k (k + 1)² / 4), with k − 1 degrees
    of freedom. scipy has it for three or more methods only.
    """
    from scipy.stats import chi2

    n, k = len(ranks), len(ranks[0])
    sums = [sum(of_method) for of_method in zip(*ranks, strict=True)]
    between = sum((total - n * (k + 1) / 2) ** 2 for total in sums)
    spread = sum(r**2 for of_setting in ranks for r in of_setting) - n * k * (k + 1) ** 2 / 4
    if spread == 0:  # all methods are equal in all settings
        return 1.0
    return float(chi2.sf((k - 1) * between / spread, k - 1))


def critical_difference(methods: int, settings: int) -> float:
    """Nemenyi's CD = q √(k (k + 1) / 6 n), q from the studentized range at 95 %, over √2."""
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - LEVEL, methods, math.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * settings))


def rank_table(comparison: Comparison) -> Table | None:
    """The average rank of each method, and its rank in each setting."""
    found = rank_methods(comparison)
    if found is None:
        return None
    rows = [
        [
            Cell(method),
            Cell(Number(found.averages[method], decimals=2)),
            *(Cell(Number(rank, decimals=0 if rank.is_integer() else 1)) for rank in ranks),
        ]
        for method, ranks in found.ranks.items()
    ]
    n = len(found.settings)
    lines = [
        f"Friedman's test that all methods are equal: p = {found.p:.2g}. "
        + (
            "Two methods are distinguishable if their average ranks differ by more than "
            f"{found.critical:.2f} (Nemenyi, 95 %)."
            if found.p < LEVEL
            else f"Over {n} settings, no methods can be told apart."
        )
    ]
    if len(comparison.settings) > n:
        lines.append("Only settings that all methods have finished count.")
    header = ["method", "average rank", *found.settings]
    title = "Ranks by the mean of the best five rounds (1 is the best)"
    return Table("ranks", title, header, rows, [*lines, *notes_on_runs(comparison)])
