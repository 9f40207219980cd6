"""Table 1 and Table 2 on OrganAMNIST: ours beside the paper's."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean

from evidence import published
from evidence.markdown import NOTHING, signed, table
from evidence.results import Cell, Results, has, paired, study_results
from evidence.rows import TARGETS
from fedadb.report.labels import METHODS

DEVICE, SILO = "cross-device", "cross-silo"
STUDIES = ("organamnist-tuned", "organamnist-paper")
HEADER = (
    *("method", "lr", "accuracy (%)", "FedADB's lead", "the paper's", "difference"),
    *("last ten rounds", "forgetting", "rounds to 36 / 51 / 67 %", "the paper's", "minutes"),
)


def methods(results: Path, *, study: str, scenario: str) -> str:
    """One line per method, in the order of the paper."""
    found = study_results(results, study).part(has(scenario=scenario))
    fedadb = found.cell(has(algorithm="fedadb"))
    body = [
        line(method, scenario, found.cell(has(algorithm=method)), fedadb)
        for method in found.different("algorithm")
    ]
    return table(HEADER, body) + found.progress


def summary(results: Path) -> str:
    """Cross-device, for the README: each method at its own rate, all at 0.05, and the paper's."""
    tuned, same = (study_results(results, study).part(has(scenario=DEVICE)) for study in STUDIES)
    body = []
    for method in tuned.different("algorithm"):
        own = tuned.cell(has(algorithm=method))
        body.append(
            [
                METHODS[method],
                f"{own.runs[0]['local.lr']:g}",
                own.number("best5"),
                paired(tuned.cell(has(algorithm="fedadb")), own),
                own.rounds(0.51),
                same.cell(has(algorithm=method)).number("best5"),
                published.with_deviation("table1", **in_table1(method, DEVICE)),
                published.rounds("organamnist", method, 0.51),
            ]
        )
    own_rate = ["its own lr", "accuracy (%)", "FedADB's lead", "rounds to 51 %"]
    header = ["method", *own_rate, "all at lr 0.05", "the paper's", "the paper's rounds"]
    return table(header, body) + Results([*tuned.runs, *same.runs]).progress


def in_table1(method: str, scenario: str) -> dict[str, str]:
    return {"scenario": scenario, "dataset": "organamnist", "algorithm": method}


def line(method: str, scenario: str, cell: Cell, fedadb: Cell) -> list[str]:
    points = difference(cell, method, scenario)
    return [
        METHODS[method],
        f"{cell.runs[0]['local.lr']:g}",
        cell.number("best5"),
        paired(fedadb, cell),
        published.with_deviation("table1", **in_table1(method, scenario)),
        NOTHING if points is None else signed(points),
        cell.number("last10"),
        cell.number("forgetting"),
        " / ".join(cell.rounds(target) for target in TARGETS),
        " / ".join(published.rounds("organamnist", method, t) for t in TARGETS)
        if scenario == DEVICE  # the paper has rounds for no other
        else NOTHING,
        cell.minutes(),
    ]


def difference(cell: Cell, method: str, scenario: str = DEVICE) -> float | None:
    """Our accuracy less the paper's, in points."""
    theirs, ours = published.accuracy("table1", **in_table1(method, scenario)), cell.values("best5")
    return fmean(ours) - theirs if ours and theirs is not None else None


TABLES: dict[str, Callable[[Path], str]] = {
    "organamnist-summary": summary,
    **{
        f"{study}-{scenario}": partial(methods, study=study, scenario=scenario)
        for study in STUDIES
        for scenario in (DEVICE, SILO)
    },
}
