"""What the text of the results says in numbers is what the rows say."""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import pytest
from evidence import readings
from evidence.organamnist import DEVICE, is_run
from evidence.pages import DOCS
from evidence.results import Cell, Results, has, study_results

RESULTS = DOCS / "results"


def best(cell: Cell) -> float:
    """The mean over seeds of the best five rounds."""
    return fmean(cell.values("best5"))


def table1(study: str) -> dict[str, Cell]:
    """A study's cross-device cells by method."""
    found = study_results(RESULTS, study)
    return {
        method: found.cell(lambda run, m=method: is_run(run, m, DEVICE))
        for method in found.different("algorithm")
    }


def between(values: list[float]) -> str:
    return f"{min(values):.0f} to {max(values):.0f}"


def organamnist() -> Iterator[str]:
    tuned = table1("organamnist-tuned")
    gap = best(tuned["fedadb"]) - best(tuned["fedavg"])
    yield f"is {gap:.0f} points below FedADB**"


def of_readings() -> Iterator[str]:
    found = study_results(RESULTS, "organamnist-rates")
    methods, rates = found.different("algorithm"), found.different("lr")
    distances = []
    for lr in rates:
        points = [readings.difference(found.cell(has(algorithm=m, lr=lr)), m) for m in methods]
        distances.append(fmean(abs(one) for one in points if one is not None))
    yield f"are {between(distances)} points from it on average"
    every = study_results(RESULTS, "readings")
    yield f"it is {between(list(gaps(every)))} points below FedADB"
    at_005 = [best(cell) for method, lr, cell in both(every) if (method, lr) == ("fedavg", 0.05)]
    yield f"FedAvg at 0.05 has {min(at_005):.0f} or {max(at_005):.0f} %"


def both(found: Results) -> Iterator[tuple[str, float, Cell]]:
    """Method, rate and cell of every reading that both methods have run."""
    for changes in readings.READINGS.values():
        for lr in found.different("lr"):
            cells = {
                method: found.cell(readings.reading(method, changes, lr))
                for method in ("fedavg", "fedadb")
            }
            if all(cell.rows for cell in cells.values()):
                yield from ((method, lr, cell) for method, cell in cells.items())


def gaps(found: Results) -> Iterator[float]:
    """FedADB's distance to FedAvg wherever FedAvg learns."""
    pairs = list(both(found))
    for (_, _, fedavg), (_, _, fedadb) in zip(pairs[::2], pairs[1::2], strict=True):
        if best(fedavg) > 40:
            yield best(fedadb) - best(fedavg)


CLAIMS: dict[str, Callable[[], Iterator[str]]] = {
    "organamnist.md": organamnist,
    "readings.md": of_readings,
}


@pytest.mark.parametrize("page", CLAIMS)
def test_the_text_has_the_numbers_of_the_rows(page: str) -> None:
    text = " ".join((RESULTS / page).read_text(encoding="utf-8").split())
    assert [claim for claim in CLAIMS[page]() if claim not in text] == []
