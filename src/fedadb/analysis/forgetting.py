"""Forgetting: how far each class falls below its best earlier accuracy."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from fedadb.analysis.inputs import Numbers, Options, Results, rounds_of
from fedadb.analysis.panels import class_ticks, side_by_side
from fedadb.experiment.stored import StoredRun
from fedadb.report.drawing import round_axis
from fedadb.report.metrics import forgetting

CLIENT_SCORES = ("in_local", "out_local")


def require(run: StoredRun, options: Options) -> None:
    rounds_of(run)


def measure(run: StoredRun, options: Options) -> Numbers:
    """F up to each round, F of each class in the end, and the clients' scores if recorded."""
    rounds = rounds_of(run)
    known = [record["class_accuracy"] for record in rounds]
    over_time = [forgetting(known[: t + 1]) for t in range(len(known))]
    by_class = [forgetting([[row[c]] for row in known]) for c in range(len(known[-1]))]
    numbers: Numbers = {
        "forgetting": over_time[-1],
        "over_time": over_time,
        "by_class": by_class,
    }
    for key in CLIENT_SCORES:
        if any(key in record for record in rounds):  # a round without clients has none
            numbers[key] = [record.get(key) for record in rounds]
    return numbers


def draw(results: Results, classes: Sequence[str]) -> Figure:
    figure, (left, right) = side_by_side(2)
    clients = all("in_local" in numbers for numbers in results.values())
    for title, numbers in results.items():
        rounds = range(1, len(numbers["over_time"]) + 1)
        (line,) = left.plot(rounds, as_floats(numbers["over_time"]), label=title)
        if clients:
            for key, style in zip(CLIENT_SCORES, ("--", ":"), strict=True):
                label = f"{title}, {key}"
                scores = as_floats(numbers[key])
                right.plot(rounds, scores, style, color=line.get_color(), label=label)
        else:
            lost = as_floats(numbers["by_class"])
            right.plot(lost, "o", color=line.get_color(), label=title)
    left.set(ylabel="forgetting up to this round", title="global model")
    round_axis(left)
    if clients:
        right.set(ylabel="accuracy", title="client models before averaging")
        round_axis(right)
    else:
        right.set(ylabel="forgetting in the end", title="by class")
        right.set_xticks(*class_ticks(classes), rotation=60, ha="right", rotation_mode="anchor")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    return figure


def as_floats(values: Sequence[float | None]) -> np.ndarray:
    """The values for matplotlib: nan, a gap, in place of None."""
    return np.array(values, dtype=float)
