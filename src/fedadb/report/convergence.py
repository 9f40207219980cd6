"""Rounds until methods reach target accuracies."""

from collections.abc import Mapping
from typing import NamedTuple

from fedadb.report import paper
from fedadb.report.cells import Cell, Number, RoundsToTarget, Table
from fedadb.report.comparison import Comparison
from fedadb.report.metrics import (
    TARGET_SHARES,
    RoundRatios,
    mean_curve,
    round_ratios,
    rounds_to,
    targets,
)
from fedadb.report.notes import notes
from fedadb.report.recorded_runs import RecordedRun


class Convergence(NamedTuple):
    """The rounds that methods need to reach the target accuracies of a setting."""

    targets: dict[float, float]  # accuracies, by the share of the best one that they are
    rounds: dict[str, dict[float, int | None]]  # by method and share; None: not reached
    running: set[str]  # methods with unfinished runs, which may still reach a target
    chance: float  # the accuracy of guessing


def measure_convergence(runs: Mapping[str, list[RecordedRun]]) -> Convergence:
    """Compare methods in one setting, by their smoothed mean curves over seeds.

    Targets are shares of the best accuracy of any run in any round. A target that guessing reaches
    is left out.
    """
    all_runs = [run for seeds in runs.values() for run in seeds]
    chance = 1 / all_runs[0].classes
    best = max(max(run.accuracy) for run in all_runs)
    above_chance = {
        share: target
        for share, target in zip(TARGET_SHARES, targets(best), strict=True)
        if target > chance
    }
    rounds = {}
    for method, seeds in runs.items():
        curve = mean_curve([run.accuracy for run in seeds])
        rounds[method] = {share: rounds_to(curve, target) for share, target in above_chance.items()}
    running = {method for method, seeds in runs.items() if not all(r.finished for r in seeds)}
    return Convergence(above_chance, rounds, running, chance)


def convergence_table(comparison: Comparison) -> Table:
    """The rounds to each target, and their ratio to those of FedADB if it is one of the rows."""
    reference = comparison.fedadb  # for the ratios
    rows: list[list[Cell]] = []
    # What the averages count: targets that are reached, or missed in the end.
    counted: dict[str, dict[tuple[str, float], int | None]] = {m: {} for m in comparison.methods}
    remarks = []
    for setting in comparison.settings:
        runs = comparison.by_method(setting)
        measured = measure_convergence(runs)
        published = {m: paper.rounds_to_targets(seeds[0]) for m, seeds in runs.items()}
        if len(measured.targets) < len(TARGET_SHARES):
            remarks.append(
                f"{setting}: targets that are not above chance accuracy "
                f"({100 * measured.chance:.3g} %) are left out."
            )
        for share, target in measured.targets.items():
            needed = {method: rounds[share] for method, rounds in measured.rounds.items()}
            fewest = min((n for n in needed.values() if n), default=None)
            cells = [Cell(setting), Cell(Number(100 * target, unit=" %"))]
            for method in comparison.methods:
                if method not in needed:
                    cells.append(Cell(""))
                    continue
                n, other = needed[method], needed.get(reference or "")
                running = method in measured.running
                if n or not running:
                    counted[method][setting, share] = n
                value = RoundsToTarget(n, n / other if n and other else None, running)
                best = n is not None and n == fewest
                cells.append(Cell(value, best, published[method].get(share)))
            rows.append(cells)
    lines = [
        "Targets are 45, 65 and 85 % of the best accuracy of any run in the same setting; curves "
        "are means over seeds, smoothed by EWMA 0.2. Bold: the fewest rounds.",
        *remarks,
    ]
    if reference and rows:
        rows += _ratio_rows(counted, reference)
        lines.append(
            f"In brackets: rounds over those of {reference}. Averages leave out what was not "
            "reached, which flatters methods that fail."
        )
    header = ["setting", "target", *comparison.methods]
    lines += notes(comparison)
    return Table("convergence", "Rounds to a target accuracy", header, rows, lines)


def _ratio_rows(
    counted: Mapping[str, Mapping[tuple[str, float], int | None]], reference: str
) -> list[list[Cell]]:
    """The rows below the targets: ratios to the reference method, over all settings."""

    def ratios(rounds: Mapping[tuple[str, float], int | None]) -> RoundRatios:
        both = [key for key in rounds if key in counted[reference]]
        return round_ratios([rounds[k] for k in both], [counted[reference][k] for k in both])

    def times(ratio: float | None) -> Cell:
        return Cell(None if ratio is None else Number(ratio, decimals=1, unit="×"))

    of_methods = [ratios(rounds) for rounds in counted.values()]
    return [
        [Cell("mean ratio"), Cell(""), *(times(r.mean) for r in of_methods)],
        [Cell("median ratio"), Cell(""), *(times(r.median) for r in of_methods)],
        [Cell("targets not reached"), Cell(""), *(Cell(Number(r.missed)) for r in of_methods)],
    ]
