"""Who learns what in the federations of reported runs."""

from fedadb.experiment.disclosure import SIMULATION, TITLE, disclosures
from fedadb.report.cells import Cell, Table
from fedadb.report.comparison import Comparison


def disclosure_table(comparison: Comparison) -> Table:
    """What each party learns; settings that tell all parties the same share their rows."""
    alike: dict[str, list[str]] = {}  # settings by what they tell
    parties = {}
    for setting in comparison.settings:
        for run in (run for runs in comparison.by_method(setting).values() for run in runs):
            told = disclosures(run.experiment)
            parties[repr(told)] = told
            labels = alike.setdefault(repr(told), [])
            labels += [setting] if setting not in labels else []
    several = len(alike) > 1
    rows = [
        [
            *([Cell("; ".join(labels))] if several else []),
            Cell(party),
            Cell("; ".join(learns)),
            Cell("; ".join(hidden)),
        ]
        for key, labels in alike.items()
        for party, learns, hidden in parties[key]
    ]
    header = [*(["setting"] if several else []), "who", "learns", "does not learn"]
    return Table("who-learns-what", TITLE, header, rows, [SIMULATION])
