"""Reports that commands write when their runs have finished."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedadb.cli.terminal import show_error, show_message

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment

BUDGET = 4  # that the advice to tune names


def report_comparison(compared: Sequence[Path], methods: Sequence[str], directory: Path) -> Path:
    """Report on all runs in the directory, so that a smaller comparison does not hide a larger one.

    Args:
        compared: The runs of this comparison.
        methods: Their algorithms, which come first in the report, in this order.
        directory: The directory that contains the compared runs and maybe others.

    Returns:
        The path of the report's page.
    """
    from fedadb.report.comparison import arrange
    from fedadb.report.output import write_report
    from fedadb.report.recorded_runs import collect_runs, read_recorded_run

    runs = [read_recorded_run(path) for path in compared]
    collected = collect_runs([directory])
    for error in collected.errors:
        show_error(error)
    # An earlier version of one's own algorithm has the same settings in another directory.
    current = [(run.seed, run.settings) for run in runs]
    runs += [run for run in collected.runs if (run.seed, run.settings) not in current]
    comparison = arrange(runs, methods)
    datasets, names = (
        ", ".join(dict.fromkeys(label.partition(", ")[0] for label in labels))
        for labels in (comparison.settings, comparison.methods)
    )
    return write_report(comparison, f"{datasets}: {names}", directory / "report")


def warn_if_untuned(experiments: "Sequence[Experiment]") -> None:
    """Say that the compared methods had no learning rates of their own, and how to mend that."""
    from fedadb.experiment.named_algorithms import algorithm_table
    from fedadb.experiment.presets import LEARNING_RATE, tuned_rate

    rates = {algorithm_table(e.algorithm)["name"]: e.local.lr for e in experiments}
    dataset = str(experiments[0].dataset)
    if len(rates) < 2 or all(rate == tuned_rate(dataset, name) for name, rate in rates.items()):
        return
    if len(set(rates.values())) == 1:
        where = f"at one learning rate, {next(iter(rates.values())):g}"
    else:
        where = "at learning rates that were not searched here"
    words = iter(sys.argv[1:])
    command = []
    for word in words:  # a rate that is set would not be searched
        if word == "--set" and (value := next(words, "")).startswith(f"{LEARNING_RATE}="):
            continue
        command += [word, value] if word == "--set" else [word]
    command += ["--tuned", str(BUDGET)]
    if not experiments[0].validation:
        command += ["--set", "validation=0.1"]
    show_message(
        f"All methods ran {where}, which may suit some of them and not others; this command gives "
        f"each {BUDGET} runs to find its own: {shlex.join(['fedadb', *command])}"
    )
