"""The commands for tables at several sites: describe each, and combine what they tell."""

from pathlib import Path
from typing import Annotated, Any

import tomli_w
import typer

from fedadb.cli.init import experiment_text
from fedadb.cli.terminal import show_message
from fedadb.core.errors import BadInput

# The settings in the file that `combine` writes, by table; the columns come last.
KEYS = {
    "": ("model", "algorithm", "rounds"),
    "federation": ("clients", "participation"),
    "local": ("epochs", "batch_size", "lr"),
    "deployment": ("evaluate", "classes"),
}


def describe(
    table: Annotated[
        str, typer.Argument(help="FILE.csv, or FILE.csv#COLUMN with the column of the labels.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; by default FILE.json, here.")
    ] = None,
) -> None:
    """At a site: write what the others need to know about its table.

    That is the number of rows, the class names, mean and standard deviation of each column of
    numbers, and the categories of the others. Read the file before you send it: it is not secret
    from those who get it.
    """
    from fedadb.datasets.csv_files import locate
    from fedadb.datasets.site_tables import summarise_table
    from fedadb.storage.files import write_atomically

    path = Path(table).expanduser()
    summary = summarise_table(path)
    out = out or Path(f"{locate(str(path))[0].stem}.json")
    write_atomically(out, summary.model_dump_json(indent=1).encode() + b"\n")
    show_message(
        f"{summary.rows} rows for training, {len(summary.classes)} classes, "
        f"{len(summary.numbers)} columns of numbers, {len(summary.categories)} of categories.\n"
        f"Wrote {out}. Read it, then send it to whoever combines the sites: fedadb deploy combine"
    )


def combine(
    summaries: Annotated[
        list[Path], typer.Argument(help="What `fedadb deploy describe` wrote at each site.")
    ],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("experiment.toml"),
) -> None:
    """Write an experiment file for the tables of all sites.

    It says what each column becomes, so that all sites read their tables alike. The server and all
    sites get the same file.
    """
    from pydantic import TypeAdapter

    from fedadb.datasets import site_tables
    from fedadb.experiment.config import Experiment
    from fedadb.experiment.ranges import to_toml
    from fedadb.experiment.sizes import batch_size_for
    from fedadb.storage.files import read_json, write_atomically

    if out.exists():
        raise BadInput(f"--out {str(out)!r} exists; name another file, or delete it")
    form = TypeAdapter(site_tables.TableSummary)
    tables = {str(path): read_json(path, form) for path in summaries}
    if len(tables) < len(summaries):
        raise BadInput("a file is given twice; give one of each site")
    classes, columns = site_tables.combine(tables)
    given: dict[str, Any] = {
        "model": "mlp",
        "rounds": 50,
        "federation": {"clients": len(tables), "participation": 1.0},
        "local": {
            "batch_size": batch_size_for(min(one.rows for one in tables.values())),
            "lr": 0.01,
        },
        "deployment": {"evaluate": "sites", "classes": classes, "columns": columns},
    }
    rows = sum(one.rows for one in tables.values())
    about = f"{len(tables)} sites with {rows} training rows, {len(classes)} classes."
    text = experiment_text(Experiment.read(given).table(), about, KEYS, commented={})
    lines = ["", "# Numbers: [mean, standard deviation]. Others: the categories. Delete what is no"]
    lines += ["# input, such as a patient's number.", "[deployment.columns]"]
    for name, column in sorted(columns.items()):
        key = tomli_w.dumps({name: 0}).rpartition(" = ")[0]
        lines.append(f"{key} = {to_toml(tuple(column))}")
    write_atomically(out, (text + "\n".join(lines) + "\n").encode())
    show_message(f"{about}\nWrote {out}. Give it to the server and to all sites.")
