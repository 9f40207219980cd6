"""Draw docs/images/run.svg: what `make run` shows at its end, from the runs' own records.

make run && .venv/bin/python docs/images/terminal.py
"""

import re
from pathlib import Path

from rich.console import Console

from fedadb.experiment.directory import run_name
from fedadb.experiment.study import compare
from fedadb.experiment.run import run
from fedadb.cli.display import bar, describe, shown
from fedadb.report.groups import arrange
from fedadb.report.runs import read
from fedadb.report.tables import summary

PLACE = Path("runs/compare-digits")

screen = Console(record=True, width=88, force_terminal=True)
progress = bar(screen)
experiments = grid({}, ["fedavg", "fedadb"], [0])
progress.add_task("all runs", total=80, completed=80, status="run 2 of 2  left 0:00:00")
for experiment in experiments:
    rounds = run(experiment, PLACE / run_name(experiment)).rounds
    progress.add_task(
        f"{type(experiment.algorithm).__name__} on digits, seed 0",
        total=experiment.rounds,
        completed=len(rounds),
        status=describe(rounds, experiment.rounds),
    )
screen.print(progress.get_renderable())
board = arrange([read(PLACE / run_name(e)) for e in experiments])
screen.print(*shown(summary(board), screen.width))
screen.print("One seed.\n", highlight=False)
screen.print(f"Results: {PLACE}\nPage: {PLACE}/report/index.html", highlight=False)

svg = screen.export_svg(title="make run")
# The picture stands alone: no font from elsewhere, no comment.
svg = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
svg = svg.replace("Fira Code", "ui-monospace, DejaVu Sans Mono")
Path(__file__).with_name("run.svg").write_text(svg)
