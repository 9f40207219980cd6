"""The table of accuracy against ε."""

from pathlib import Path

from evidence.markdown import NOTHING, table
from evidence.rows import Row, assignments, read_rows
from fedadb.experiment.presets import RATES
from fedadb.report.labels import METHODS

SHOWN = ("fedavg", "fedadb")
SHOWN_RATES = (0.03, 0.1)


def epsilon_of(row: Row) -> float | None:
    filters = assignments(row).get("filter", [])
    return float(filters[0]["epsilon"]) if filters else None


def rate_of(row: Row) -> float:
    default = RATES[row["dataset"]][row["algorithm"]]
    return float(assignments(row).get("local.lr", default))


def by_epsilon(results: Path) -> str:
    """ε × methods and learning rates: the accuracy of the last five rounds."""
    by_budget = {
        (epsilon_of(row), row["algorithm"], rate_of(row)): row
        for row in read_rows(results / "privacy.csv")
    }
    columns = [(method, rate) for method in SHOWN for rate in SHOWN_RATES]
    body = [
        [
            "no noise" if epsilon is None else f"{epsilon:g}",
            *(_accuracy(by_budget.get((epsilon, method, rate))) for method, rate in columns),
        ]
        for epsilon in (None, 8.0, 4.0, 2.0, 1.0)
    ]
    header = [f"{METHODS[method]}, lr {rate:g}" for method, rate in columns]
    return table(["ε", *header], body)


def _accuracy(row: Row | None) -> str:
    return NOTHING if row is None else f"{float(row['last5']):.1f}"


TABLES = {"accuracy-by-epsilon": by_epsilon}
