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
    *(
        "last ten rounds",
        "forgetting",
        "rounds to 36 / 51 (range) / 67 %",
        "the paper's",
        "minutes",
    ),
)


def methods(results: Path, *, name: str, scenario: str) -> str:
    """One line per method, in the order of the paper."""
    study = study_results(results, name).part(has(scenario=scenario))
    fedadb = study.cell(has(algorithm="fedadb"))
    body = [
        method_line(method, scenario, study.cell(has(algorithm=method)), fedadb)
        for method in methods_in_order(study)
    ]
    return table(HEADER, body) + study.progress


def summary(results: Path) -> str:
    """Cross-device, for the README: each method at its own rate, all at 0.05, and the paper's."""
    tuned, same = (study_results(results, study).part(has(scenario=DEVICE)) for study in STUDIES)
    body = []
    for method in methods_in_order(tuned):
        own = tuned.cell(has(algorithm=method))
        body.append(
            [
                METHODS[method],
                f"{own.setting('local.lr'):g}",
                own.number("best5"),
                paired(tuned.cell(has(algorithm="fedadb")), own),
                own.rounds_and_range(0.51),
                same.cell(has(algorithm=method)).number("best5"),
                published.with_deviation("table1", **in_table1(method, DEVICE)),
                published.rounds("organamnist", method, 0.51),
            ]
        )
    own_rate = ["its own lr", "accuracy (%)", "FedADB's lead", "rounds to 51 %"]
    header = [
        "method",
        *own_rate,
        "all at lr 0.05, one partition",
        "the paper's",
        "the paper's rounds",
    ]
    return table(header, body) + Results([*tuned.runs, *same.runs]).progress


def searches(results: Path) -> str:
    """Cross-device: each method at the rates that a short and a long search chose."""
    short, long = (
        study_results(results, name).part(has(scenario=DEVICE))
        for name in ("organamnist-short-search", "organamnist-tuned")
    )
    body = []
    for method in methods_in_order(long):
        line = [METHODS[method]]
        for study in (short, long):
            cell = study.cell(has(algorithm=method))
            line += [f"{cell.setting('local.lr'):g}", cell.number("best5")]
        body.append(line)
    header = ["method", "lr of 100 rounds", "accuracy (%)", "lr of 300 rounds", "accuracy (%)"]
    return table(header, body) + Results([*short.runs, *long.runs]).progress


def methods_in_order(study: Results) -> list[str]:
    """The methods of a study, in the order of the paper."""
    return sorted(study.different("algorithm"), key=list(METHODS).index)


def in_table1(method: str, scenario: str) -> dict[str, str]:
    return {"scenario": scenario, "dataset": "organamnist", "algorithm": method}


def method_line(method: str, scenario: str, cell: Cell, fedadb: Cell) -> list[str]:
    points = difference(cell, method, scenario)
    low, middle, high = TARGETS
    return [
        METHODS[method],
        f"{cell.setting('local.lr'):g}",
        cell.number("best5"),
        paired(fedadb, cell),
        published.with_deviation("table1", **in_table1(method, scenario)),
        NOTHING if points is None else signed(points),
        cell.number("last10"),
        cell.number("forgetting"),
        " / ".join((cell.rounds(low), cell.rounds_and_range(middle), cell.rounds(high))),
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
    "organamnist-searches": searches,
    **{
        f"{study}-{scenario}": partial(methods, name=study, scenario=scenario)
        for study in STUDIES
        for scenario in (DEVICE, SILO)
    },
}
