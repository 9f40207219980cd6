"""Draw docs/images/run.svg: what `make run` shows at its end, from the runs' own records.

make run && .venv/bin/python docs/images/terminal.py
"""

import re
from pathlib import Path

from rich.console import Console

from fedadb.experiment.grid import grid
from fedadb.experiment.run import run
from fedadb.progress import bar, describe, summary

PLACE = Path("runs/compare-digits")

screen = Console(record=True, width=88, force_terminal=True)
progress = bar(screen)
histories = {}
for name, experiment in grid({}, ["fedavg", "fedadb"], [0]).items():
    history = run(experiment, PLACE / name)
    method = type(experiment.algorithm).__name__
    histories[f"{method}, seed {experiment.seed}"] = history
    progress.add_task(
        f"{method} on {experiment.dataset}",
        total=experiment.rounds,
        completed=len(history.rounds),
        status=describe(history.rounds, experiment.rounds),
    )
screen.print(progress.get_renderable())
screen.print(summary(histories))
screen.print(f"Results: {PLACE}\nPicture: {PLACE}/accuracy.png", highlight=False)

svg = screen.export_svg(title="make run")
# The picture stands alone: no font from elsewhere, no comment.
svg = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
svg = svg.replace("Fira Code", "ui-monospace, DejaVu Sans Mono")
Path(__file__).with_name("run.svg").write_text(svg)
