"""Draws docs/images/run.svg: what `make run` shows at its end, from the records of its runs.

make run && .venv/bin/python docs/images/terminal.py
"""

import re
from pathlib import Path

from rich.console import Console

from fedadb.cli.display import progress_bars, result_tables
from fedadb.experiment.identity import run_name
from fedadb.experiment.run import run
from fedadb.experiment.study import compare
from fedadb.report.comparison import arrange
from fedadb.report.recorded_runs import read_recorded_run
from fedadb.report.tables import summary_table

OUT = Path("runs/compare-digits")

console = Console(record=True, width=88, force_terminal=True)
bars = progress_bars(console)
experiments = compare({}, ["fedavg", "fedadb"], [0, 1, 2])
rounds = sum(experiment.rounds for experiment in experiments)
n = len(experiments)
bars.add_task("all runs", total=rounds, completed=rounds, status=f"run {n} of {n}, left 0:00:00")
for experiment in experiments:
    run(experiment, OUT / run_name(experiment))
console.print(bars.get_renderable())
summary = summary_table(arrange([read_recorded_run(OUT / run_name(e)) for e in experiments]))
console.print(*result_tables(summary, console.width))
console.print(" ".join(summary.notes), highlight=False)
console.print(f"Page: {OUT}/report/index.html\nResults: {OUT}", highlight=False)

svg = console.export_svg(title="make run")
# The picture loads no font from elsewhere and has no comment.
svg = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
svg = svg.replace("Fira Code", "ui-monospace, DejaVu Sans Mono")
Path(__file__).with_name("run.svg").write_text(svg)
