"""A table as Markdown, LaTeX or CSV."""

import csv
import io
import re
from typing import NamedTuple

NOTHING = "--"
RUNNING = "…"  # not yet


class Entry(NamedTuple):
    text: str
    best: bool = False
    paper: str = ""  # what the paper has in the same place


class Table(NamedTuple):
    name: str  # of its files
    title: str
    header: list[str]
    rows: list[list[Entry]]
    notes: list[str]


def markdown(table: Table) -> str:
    def cell(entry: Entry) -> str:
        text = f"**{entry.text}**" if entry.best else entry.text
        beside = f" <sub>paper {entry.paper}</sub>" if entry.paper else ""
        return (text + beside).replace("|", r"\|")

    lines = [f"**{table.title}**", "", f"| {' | '.join(table.header)} |"]
    lines.append("|" + " --- |" * len(table.header))
    lines += [f"| {' | '.join(map(cell, row))} |" for row in table.rows]
    return "\n".join([*lines, "", *(f"{note}  " for note in table.notes)]) + "\n"


def latex(table: Table) -> str:
    """For booktabs and xcolor."""

    def cell(entry: Entry) -> str:
        text = rf"\textbf{{{_escape(entry.text)}}}" if entry.best else _escape(entry.text)
        beside = rf" {{\scriptsize\color{{gray}}{_escape(entry.paper)}}}" if entry.paper else ""
        return text + beside

    lines = [
        r"% \usepackage{booktabs, xcolor}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape(' '.join([table.title + '.', *table.notes]))}}}",
        rf"\begin{{tabular}}{{l{'c' * (len(table.header) - 1)}}}",
        r"\toprule",
        " & ".join(map(_escape, table.header)) + r" \\",
        r"\midrule",
        *(" & ".join(map(cell, row)) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    for character in "\\&%$#_{}":
        text = text.replace(
            character, r"\textbackslash " if character == "\\" else f"\\{character}"
        )
    for character, tex in {
        "±": r"$\pm$",
        "×": r"$\times$",
        "α": r"$\alpha$",
        "ρ": r"$\rho$",
    }.items():
        text = text.replace(character, tex)
    return text


def comma_separated(table: Table) -> str:
    """For machines: means and deviations in columns of their own, and so the paper's."""
    columns = list(zip(*([[Entry(head) for head in table.header], *table.rows]), strict=True))
    written: list[list[str]] = []
    for head, *entries in columns:
        written += _split(head.text, [entry.text for entry in entries])
        if any(entry.paper for entry in entries):
            written += _split(f"{head.text} (paper)", [entry.paper for entry in entries])
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(zip(*written, strict=True))
    return file.getvalue()


def _split(head: str, texts: list[str]) -> list[list[str]]:
    """The texts, and what stands behind a ± or in brackets in a column of its own."""
    for pattern, name in ((r"(.*) ± (.*)", "std"), (r"(.*) \((.*)×\)", "ratio")):
        found = [re.fullmatch(pattern, text) for text in texts]
        if any(found):
            first = [m[1] if m else text for m, text in zip(found, texts, strict=True)]
            return [[head, *first], [f"{head} {name}", *(m[2] if m else "" for m in found)]]
    return [[head, *texts]]
