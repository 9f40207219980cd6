"""Draw docs/images/run.svg: what `make run` shows at its end, from the run's own records.

make run && .venv/bin/python docs/images/terminal.py
"""

import re
from pathlib import Path

from rich.console import Console

from fedadb.cli import summary
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import default_directory, run
from fedadb.progress import bar, describe

experiment = Experiment()
title = "FedAvg on digits"
history = run(experiment, default_directory(experiment))

screen = Console(record=True, width=88, force_terminal=True)
progress = bar(screen)
status = describe(history.rounds, experiment.rounds)
progress.add_task(title, total=experiment.rounds, completed=len(history.rounds), status=status)
screen.print(progress.get_renderable())
screen.print(summary(title, history))
screen.print(f"Results: {history.directory}", highlight=False)

svg = screen.export_svg(title="make run")
# The picture stands alone: no font from elsewhere, no comment.
svg = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
svg = svg.replace("Fira Code", "ui-monospace, DejaVu Sans Mono")
Path(__file__).with_name("run.svg").write_text(svg)
