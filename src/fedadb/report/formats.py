"""Prints tables as Markdown, LaTeX or CSV."""

import csv
import io
from collections.abc import Sequence

from fedadb.report.cells import RUNNING, Cell, Difference, RoundsToTarget, Score, Table, Value


def markdown(table: Table) -> str:
    def text(cell: Cell) -> str:
        value = f"**{cell.text}**" if cell.best else cell.text
        paper = "" if cell.paper is None else f" <sub>paper {cell.paper}</sub>"
        return (value + paper).replace("|", r"\|")

    lines = [f"**{table.title}**", "", f"| {' | '.join(table.header)} |"]
    lines.append("|" + " --- |" * len(table.header))
    lines += [f"| {' | '.join(map(text, row))} |" for row in table.rows]
    return "\n".join([*lines, "", *(f"{note}  " for note in table.notes)]) + "\n"


def latex(table: Table) -> str:
    """The table for LaTeX, with the packages booktabs and xcolor."""

    def text(cell: Cell) -> str:
        value = rf"\textbf{{{_escape(cell.text)}}}" if cell.best else _escape(cell.text)
        if cell.paper is None:
            return value
        return rf"{value} {{\scriptsize\color{{gray}}{_escape(str(cell.paper))}}}"

    lines = [
        r"% \usepackage{booktabs, xcolor}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape(' '.join([table.title + '.', *table.notes]))}}}",
        rf"\begin{{tabular}}{{l{'c' * (len(table.header) - 1)}}}",
        r"\toprule",
        " & ".join(map(_escape, table.header)) + r" \\",
        r"\midrule",
        *(" & ".join(map(text, row)) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {
        "\\": r"\textbackslash ",
        "±": r"$\pm$",
        "×": r"$\times$",
        "α": r"$\alpha$",
        "ρ": r"$\rho$",
        "−": "$-$",
    }
)


def _escape(text: str) -> str:
    return text.translate(_LATEX)


def comma_separated(table: Table) -> str:
    """The table as CSV: every number of a cell, and the paper's, has a column of its own."""
    columns: list[list[str]] = []
    for head, *cells in zip(table.header, *table.rows, strict=True):
        columns += _columns(head, [cell.value for cell in cells])
        if any(cell.paper is not None for cell in cells):
            paper = ["" if cell.paper is None else cell.paper for cell in cells]
            columns += _columns(f"{head} (paper)", paper)
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(zip(*columns, strict=True))
    return file.getvalue()


def _columns(head: str, values: Sequence[Value]) -> list[list[str]]:
    """The values' first numbers, and one more column per kind of second number."""
    parts = [_parts(value) for value in values]
    names = dict.fromkeys(["", *(name for one in parts for name in one)])
    heads = {name: f"{head} {name}" if name else head for name in names}
    return [[heads[name], *(one.get(name, "") for one in parts)] for name in names]


def _parts(value: Value) -> dict[str, str]:
    """The fields of a value, by the suffix of the column that they belong to."""
    match value:
        case Score(mean, float(deviation), running):
            mark = f" {RUNNING}" if running else ""
            return {"": f"{mean:.2f}", "std": f"{deviation:.2f}{mark}"}
        case Difference(mean, None):
            return {"": f"{mean:z.2f}"}
        case Difference(mean, float(half)):
            low, high = mean - half, mean + half
            return {"": f"{mean:z.2f}", "low": f"{low:z.2f}", "high": f"{high:z.2f}"}
        case RoundsToTarget(int(rounds), float(ratio)):
            return {"": str(rounds), "ratio": f"{ratio:.1f}"}
        case _:
            return {"": Cell(value).text}
