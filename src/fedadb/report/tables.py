"""The tables of a report: accuracy, a summary, and accuracy per domain."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedadb.experiment.presets import scenario
from fedadb.report import paper
from fedadb.report.cells import Cell, Number, RoundsDone, Score, Table, Traffic
from fedadb.report.comparison import Comparison
from fedadb.report.convergence import convergence_table
from fedadb.report.differences import difference_table, distinguishable_best
from fedadb.report.disclosure import disclosure_table
from fedadb.report.metrics import (
    BEST,
    SeedStatistics,
    best_rounds,
    forgetting,
    last_rounds,
    picked_round,
    seed_statistics,
)
from fedadb.report.notes import notes
from fedadb.report.personal import personal_table
from fedadb.report.privacy import privacy_table
from fedadb.report.ranks import rank_table
from fedadb.report.recorded_runs import RecordedRun
from fedadb.report.tuning import tuning_table

BOLD = (
    "Bold: the highest mean, if the 95 % interval of its difference to the best other method, "
    "paired by seed, excludes 0; with one seed, nothing is bold."
)


def all_tables(comparison: Comparison) -> list[Table]:
    """Every table that these runs have numbers for."""
    tables = [
        accuracy_table(comparison),
        summary_table(comparison),
        difference_table(comparison),
        rank_table(comparison),
        convergence_table(comparison),
        tuning_table(comparison),
        domain_table(comparison),
        personal_table(comparison),
        privacy_table(comparison),
        disclosure_table(comparison),
    ]
    return [table for table in tables if table]


def accuracy_table(comparison: Comparison) -> Table:
    """The mean of each seed's five best rounds, over seeds; the paper's value beside it."""
    statistics = {
        key: seed_statistics([best_rounds(run.accuracy) for run in runs])
        for key, runs in comparison.runs.items()
    }
    finished = {key: all(run.finished for run in runs) for key, runs in comparison.runs.items()}
    best = {s: distinguishable_best(comparison.by_method(s)) for s in comparison.settings}
    averages = _averaged_settings(comparison)
    rows = []
    for method in comparison.methods:
        cells = [Cell(method)]
        for setting in comparison.settings:
            key = method, setting
            if key not in statistics:
                cells.append(Cell(None))
                continue
            cells.append(
                Cell(
                    _score(statistics[key], running=not finished[key]),
                    best=method == best[setting],
                    paper=paper.published(comparison.runs[key][0]),
                )
            )
        cells += [_average(comparison, method, s, statistics) for s in averages.values()]
        rows.append(cells)
    header = ["", *comparison.settings, *averages]
    title = "Test accuracy (%): the mean of the best five rounds"
    lines = notes(comparison)
    if len(comparison.methods) > 1:
        lines.append(BOLD)
    return Table("accuracy", title, header, rows, lines)


def _averaged_settings(comparison: Comparison) -> dict[str, list[str]]:
    """The settings to average: those of a scenario, if they differ only in dataset and α."""
    groups: dict[str, list[str]] = {}
    for setting in comparison.settings:
        _, *parts = setting.split(", ")
        name = scenario(comparison.first_run(setting).settings)
        if any(part != name and not part.startswith("α=") for part in parts):
            return {}
        groups.setdefault(f"average, {name}" if name in parts else "average", []).append(setting)
    return {name: settings for name, settings in groups.items() if len(settings) > 1}


def _average(
    comparison: Comparison,
    method: str,
    settings: Sequence[str],
    statistics: Mapping[tuple[str, str], SeedStatistics],
) -> Cell:
    if any((method, setting) not in statistics for setting in settings):
        return Cell(None)
    runs = [comparison.runs[method, setting][0] for setting in settings]
    all_of_table_1 = len(runs) == 10 and all(paper.published(run) for run in runs)
    mean = fmean(statistics[method, setting].mean for setting in settings)
    return Cell(Score(100 * mean), paper=paper.average(runs[0]) if all_of_table_1 else None)


def summary_table(comparison: Comparison) -> Table:
    """One row per method and setting, with numbers that do not choose the best rounds too."""
    rows = [
        [Cell(setting), Cell(method), *_summary(runs)]
        for setting in comparison.settings
        for method, runs in comparison.by_method(setting).items()
    ]
    header = ["setting", "method", "best 5", "picked", "last", "last 10", "forgetting"]
    header += ["rounds", "seeds", "s/round", "kB down/up"]
    title = "Accuracy (%) of the best five rounds, the last and the last ten, and forgetting"
    picked = header.index("picked")
    if all(row[picked].value is None for row in rows):  # no run has validation data
        del header[picked]
        for row in rows:
            del row[picked]
    else:
        title += "; picked: of the round of highest validation accuracy"
    return Table("summary", title, header, rows, notes(comparison))


def _summary(runs: Sequence[RecordedRun]) -> list[Cell]:
    def over_seeds(values: Sequence[float | None]) -> Cell:
        known = [value for value in values if value is not None]
        return Cell(_score(seed_statistics(known)) if len(known) == len(runs) else None)

    best = over_seeds([best_rounds(run.accuracy) for run in runs])
    return [
        best._replace(paper=paper.published(runs[0])),
        over_seeds([picked_round(run.accuracy, run.validation_accuracy) for run in runs]),
        over_seeds([run.accuracy[-1] for run in runs]),
        over_seeds([last_rounds(run.accuracy) for run in runs]),
        over_seeds([forgetting(run.class_accuracy) for run in runs]),
        Cell(RoundsDone(min(len(run.rounds) for run in runs), runs[0].total_rounds)),
        Cell(Number(len(runs))),
        Cell(_seconds(runs)),
        Cell(_traffic(runs)),
    ]


def _seconds(runs: Sequence[RecordedRun]) -> Number | None:
    """The mean time per round; None if it is secret."""
    known = [r["seconds"] for run in runs for r in run.rounds if r["seconds"] is not None]
    return Number(fmean(known), decimals=2) if known else None


def _traffic(runs: Sequence[RecordedRun]) -> Traffic | None:
    """The mean traffic per client and round; None if the records do not say it."""
    rounds = [r for run in runs for r in run.rounds if "bytes_up" in r and "bytes_down" in r]
    if not rounds:
        return None
    down, up = (fmean(r[key] for r in rounds) / 1000 for key in ("bytes_down", "bytes_up"))
    return Traffic(down, up)


def domain_table(comparison: Comparison) -> Table | None:
    """The accuracy on each domain in the five best rounds; None if no data have domains."""
    rows: list[list[Cell]] = []
    names: list[str] = []
    for setting in comparison.settings:
        for method, runs in comparison.by_method(setting).items():
            if "domain_accuracy" not in runs[0].rounds[0]:
                continue
            domains = list(zip(*map(_domain_accuracy, runs), strict=True))
            recorded = runs[0].partition.get("domains") or range(len(domains))
            names = names or [str(name) for name in recorded]
            if len(domains) != len(names):  # other data, with other domains
                continue
            known = [[value for value in values if value is not None] for values in domains]
            statistics = [seed_statistics(values) if values else None for values in known]
            means = [s.mean for s in statistics if s]
            rows.append([
                Cell(setting),
                Cell(method),
                *(Cell(_score(s) if s else None) for s in statistics),
                Cell(Score(100 * fmean(means)) if means else None),
            ])  # fmt: skip
    if not rows:
        return None
    header = ["setting", "method", *names, "mean"]
    return Table("domains", "Accuracy on each domain (%)", header, rows, notes(comparison))


def _domain_accuracy(run: RecordedRun) -> list[float | None]:
    """The mean accuracy on each domain in the five best rounds; None if it was never measured."""
    best = sorted(run.rounds, key=lambda record: float(record["accuracy"]))[-BEST:]
    domains = zip(*(record["domain_accuracy"] for record in best), strict=True)
    # A site that was not connected did not measure its domain.
    known = [[value for value in values if value is not None] for values in domains]
    return [fmean(values) if values else None for values in known]


def _score(statistics: SeedStatistics, running: bool = False) -> Score:
    deviation = 100 * statistics.deviation if statistics.seeds > 1 else None
    return Score(100 * statistics.mean, deviation, running)
