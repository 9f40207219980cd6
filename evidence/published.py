"""The paper's numbers that stand beside ours."""

from evidence.markdown import NOTHING
from fedadb.report import paper


def accuracy(table: str, **key: str) -> float | None:
    """The paper's accuracy in the row of one of its tables that has these values."""
    row = _find(table, key)
    return float(row["accuracy"]) if row else None


def with_deviation(table: str, **key: str) -> str:
    row = _find(table, key)
    return f"{row['accuracy']} ± {row['std']}" if row else NOTHING


def rounds(dataset: str, algorithm: str, target: float) -> str:
    """The round in which the paper's method reaches the target, cross-device."""
    key = {"dataset": dataset, "algorithm": algorithm, "target": f"{100 * target:.0f}"}
    row = _find("convergence", key)
    if row is None:
        return NOTHING
    return row["rounds"] or "never"


def curvature(column: str) -> str:
    """FedADB's and FedAvg's number in the paper's Table 5."""
    rows = {row["algorithm"]: row for row in paper.table("hessian")}
    return f"{rows['fedadb'][column]} against {rows['fedavg'][column]}"


def _find(table: str, key: dict[str, str]) -> dict[str, str] | None:
    return next((row for row in paper.table(table) if key.items() <= row.items()), None)
