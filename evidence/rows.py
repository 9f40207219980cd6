"""A run as one row: what it was, where it was computed, and what came out."""

import csv
import io
import json
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fedadb.experiment.config import Experiment
from fedadb.experiment.settings import affecting, role
from fedadb.experiment.toml_tables import flatten, override
from fedadb.report.metrics import best_rounds, forgetting, last_rounds, rounds_to
from fedadb.report.recorded_runs import RecordedRun
from fedadb.storage.files import write_atomically

Row = Mapping[str, str]

TARGETS = (0.36, 0.51, 0.67)  # the paper's for OrganAMNIST
WHOLE = ("filter", "attack")  # tables that `--set` takes as one value
# The default differs between methods, and another search may change it: it is always given.
STATED = ("local.lr",)
MEASURED = ("tau", "gamma", "beta", "anchor_confidence")  # what clients of FedADB report
KEY = ("dataset", "algorithm", "settings", "seed")  # what a row is of
NUMBERS = (
    *("best5", "last5", "last10", "forgetting", "worst_class"),
    *(f"rounds_to_{100 * target:.0f}" for target in TARGETS),
    *("validation5", "measured", "bytes_up", "seconds"),
)
COLUMNS = (*KEY, "rounds", "trained", *NUMBERS, "commit", "processor", "kernels", "torch")


def row_of(run: RecordedRun) -> dict[str, str]:
    """What is published of a run. Accuracies are in per cent."""
    environment = run.environment
    numbers = _numbers(run) if run.rounds else dict.fromkeys(NUMBERS, "")
    return {
        "dataset": str(run.experiment["dataset"]),
        "algorithm": run.algorithm,
        "settings": " ".join(f"--set '{one}'" for one in changed_settings(run.experiment)),
        "seed": str(run.seed),
        "rounds": str(run.total_rounds),
        "trained": str(len(run.rounds)),  # fewer: the weights were no longer finite
        **numbers,
        "commit": (environment["commit"] or "not known")[:10],
        "processor": environment["machine"]["processor"],
        "kernels": environment["kernels"],
        "torch": environment["versions"]["torch"],
    }


def _numbers(run: RecordedRun) -> dict[str, str]:
    last = run.rounds[-1]
    classes = [a for a in last["class_accuracy"] if a is not None]
    forgotten = forgetting(run.class_accuracy)
    validation = [a for a in run.validation_accuracy if a is not None]
    needed = {f"rounds_to_{100 * t:.0f}": rounds_to(run.accuracy, t) for t in TARGETS}
    return {
        "best5": f"{100 * best_rounds(run.accuracy):.4f}",
        "last5": f"{100 * last_rounds(run.accuracy, 5):.4f}",
        "last10": f"{100 * last_rounds(run.accuracy):.4f}",
        "forgetting": "" if forgotten is None else f"{100 * forgotten:.4f}",
        "worst_class": f"{100 * min(classes):.4f}",
        "validation5": f"{100 * best_rounds(validation):.4f}" if validation else "",
        "measured": " ".join(
            f"{key}={_late_mean(run, key):.4f}" for key in MEASURED if _was_measured(run, key)
        ),
        "bytes_up": f"{last['bytes_up']:.0f}",
        "seconds": f"{sum(record['seconds'] for record in run.rounds):.1f}",
        **{key: "" if t is None else str(t) for key, t in needed.items()},
    }


def _was_measured(run: RecordedRun, key: str) -> bool:
    """Whether each of the last ten rounds has it; without anchors, they have no confidence."""
    return all(record.get(key) is not None for record in run.rounds[-10:])


def _late_mean(run: RecordedRun, key: str) -> float:
    """The mean of a measurement over the last ten rounds."""
    return last_rounds([record[key] for record in run.rounds])


def changed_settings(experiment: Mapping[str, Any]) -> list[str]:
    """What differs from the defaults of the dataset and the method, as `--set` takes it.

    The seed has a column of its own. What changes no result is left out.
    """
    dataset, method = experiment["dataset"], experiment["algorithm"]["name"]
    default = Experiment.read({"dataset": dataset, "algorithm": {"name": method}}).table()
    changed = [
        f"{key}={_value(experiment[key])}"
        for key in WHOLE
        if experiment.get(key, []) != default.get(key, [])
    ]
    ours, theirs = (
        {key: v for key, v in flatten(table).items() if not key.startswith(WHOLE)}
        for table in (experiment, default)
    )
    return changed + [
        f"{key}={_value(value)}"
        for key, value in ours.items()
        if (value != theirs.get(key) or key in STATED)
        and key != "seed"
        and role(key).affects == "results"
    ]


def _value(value: Any) -> str:
    """The value in TOML, on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {_value(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()


def command(row: Row) -> str:
    """The command that computes the row again."""
    parts = ["fedadb run", f"--set dataset={row['dataset']}", f"--set algorithm={row['algorithm']}"]
    return " ".join([*parts, f"--set seed={row['seed']}", row["settings"]]).strip()


def assignments(row: Row) -> dict[str, Any]:
    """The changed settings by dotted name."""
    words = shlex.split(row["settings"])[1::2]
    pairs = (word.partition("=")[::2] for word in words)
    return {key: tomllib.loads(f"value = {value}")["value"] for key, value in pairs}


def row_table(row: Row) -> dict[str, Any]:
    """The whole table of the row's experiment."""
    table: dict[str, Any] = {}
    for word in shlex.split(command(row))[3::2]:
        table = override(table, word)
    return Experiment.read(table).table()


def identity(table: Mapping[str, Any]) -> str:
    """What an experiment is, as text: all settings that affect its results, and the seed."""
    return json.dumps(affecting(flatten(table), "results"), sort_keys=True)


def row_identity(row: Row) -> str:
    return identity(row_table(row))


def measured(row: Row) -> dict[str, float]:
    pairs = (word.partition("=")[::2] for word in row["measured"].split())
    return {key: float(value) for key, value in pairs}


def read_rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def rows_so_far(path: Path) -> list[Row]:
    """The rows of a file that may not exist yet."""
    return read_rows(path) if path.exists() else []


def write_rows(rows: Iterable[Row], path: Path, columns: Sequence[str] = COLUMNS) -> None:
    """Write the rows in the order of their experiments."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: tuple(row[key] for key in KEY)))
    write_atomically(path, text.getvalue().encode())
