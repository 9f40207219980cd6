"""The table of accuracy and bytes with smaller uploads."""

from pathlib import Path

from evidence.markdown import mean_and_deviation, table
from evidence.rows import Row, assignments, read_rows
from fedadb.report.labels import DATASETS, METHODS


def filter_of(row: Row) -> str:
    filters = assignments(row).get("filter", [])
    return " ".join(f"`{one['name']}`{_share(one)}" for one in filters) or "none"


def _share(one: dict[str, float]) -> str:
    return f", share {one['share']:g}" if "share" in one else ""


def compressed(results: Path) -> str:
    """Datasets and methods × filters: mean and deviation of three seeds' best five rounds."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in read_rows(results / "compression.csv"):
        groups.setdefault((row["dataset"], row["algorithm"], filter_of(row)), []).append(row)
    body = [
        [
            *(DATASETS[dataset], METHODS[algorithm], name),
            mean_and_deviation([float(row["best5"]) for row in rows]),
            f"{float(rows[0]['bytes_up']):,.0f}".replace(",", " "),
        ]
        for (dataset, algorithm, name), rows in sorted(groups.items(), key=_place)
    ]
    return table(["dataset", "method", "filter", "accuracy (%)", "bytes of an upload"], body)


def _place(item: tuple[tuple[str, str, str], list[Row]]) -> tuple[str, str, bool, str]:
    dataset, algorithm, name = item[0]
    return dataset, algorithm, name != "none", name


TABLES = {"compression": compressed}
