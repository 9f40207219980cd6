"""What the statements on all pages are computed with."""

from statistics import fmean

from evidence import published
from evidence.organamnist import DEVICE, difference
from evidence.pages import DOCS
from evidence.results import Cell, has, study_results
from fedadb.report import paper
from fedadb.report.metrics import PairedDifference, paired_difference

RESULTS = DOCS / "results"
ORGANAMNIST = {"dataset": "organamnist", "alpha": "0.1"}  # where the paper's Table 1 has it


def best(cell: Cell) -> float:
    """The mean over seeds of the best five rounds."""
    return fmean(cell.values("best5"))


def lead(cell: Cell, over: Cell) -> PairedDifference:
    """The mean difference over common seeds, with its interval."""
    found = paired_difference(cell.by_seed(), over.by_seed())
    assert found is not None
    return found


def excludes_zero(found: PairedDifference) -> bool:
    assert found.half is not None
    return abs(found.mean) > found.half


def with_half(found: PairedDifference, decimals: int = 1) -> str:
    """A difference, and half its interval."""
    assert found.half is not None
    return f"{found.mean:.{decimals}f} ± {found.half:.{decimals}f}"


def table1(study: str) -> dict[str, Cell]:
    """A study's cross-device cells by method."""
    found = study_results(RESULTS, study).part(has(scenario=DEVICE))
    return {method: found.cell(has(algorithm=method)) for method in found.different("algorithm")}


def points(cell: Cell, method: str) -> float:
    """Our accuracy less the paper's."""
    found = difference(cell, method)
    assert found is not None
    return found


def in_paper(scenario: str, like: dict[str, str], method: str) -> float:
    """The accuracy in Table 1 in the column of another of its rows."""
    return float(row_in_paper(scenario, like, method)["accuracy"])


def row_in_paper(scenario: str, like: dict[str, str], method: str) -> dict[str, str]:
    of_column = {key: like[key] for key in ("dataset", "alpha")}
    key = {"scenario": scenario, "algorithm": method, **of_column}
    (row,) = [one for one in paper.table("table1") if key.items() <= one.items()]
    return row


def of_paper_parts(alpha: float, **parts: str) -> float:
    """The accuracy in Table 3 with all parts but those that are "no"."""
    found = published.accuracy(
        "ablation", **{"agb": "yes", "lcb": "yes", "cag": "yes", "alpha": f"{alpha:g}", **parts}
    )
    assert found is not None
    return found
