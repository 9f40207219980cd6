"""The page's data of sweeps: accuracy over the values of one setting."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedadb.experiment.presets import LEARNING_RATE
from fedadb.report import paper
from fedadb.report.comparison import Comparison
from fedadb.report.labels import (
    DATASETS,
    distinct_labels,
    method_colours,
    sorted_labels,
    with_scenario,
)
from fedadb.report.metrics import best_rounds, last_rounds, seed_statistics
from fedadb.report.recorded_runs import RecordedRun
from fedadb.report.sweeps import Line, find_sweeps, is_wide
from fedadb.report.thinning import rounded

SCORES = {"best": best_rounds, "last": last_rounds}


def sweep_data(comparison: Comparison) -> list[dict[str, Any]]:
    """Every sweep, the one over learning rates first; lines in the order of the tables' rows."""
    sweeps = find_sweeps(comparison)
    all_labels = (comparison.methods, *sweeps.values())
    methods = list(dict.fromkeys(_method(label) for labels in all_labels for label in labels))
    colours = method_colours(methods)
    return [
        _sweep(key, {k: sweeps[key][k] for k in sorted_labels(sweeps[key], methods)}, colours)
        for key in sorted(sweeps, key=lambda key: key != LEARNING_RATE)
    ]


def _method(label: str) -> str:
    return label.partition(",")[0]


def _sweep(key: str, lines: Mapping[str, Line], colours: Mapping[str, str]) -> dict[str, Any]:
    """One line per method and setting. The page shows one setting, so lines do not name it."""
    methods = [_method(label) for label in lines]
    runs = [next(iter(line.values()))[0] for line in lines.values()]
    fixed = [{k: v for k, v in r.versioned_settings.items() if k != key} for r in runs]
    names = distinct_labels(
        methods, [{k: v for k, v in f.items() if k.startswith("algorithm.")} for f in fixed]
    )
    settings = distinct_labels(
        [run.data_name for run in runs],
        [
            with_scenario({k: v for k, v in f.items() if not k.startswith("algorithm.")})
            for f in fixed
        ],
    )
    return {
        "key": key,
        "label": f"learning rate ({key})" if key == LEARNING_RATE else key,
        "wide": is_wide([value for line in lines.values() for value in line]),
        "settings": sorted_labels(settings, list(DATASETS.values())),
        "lines": [
            {
                "name": name,
                "method": method,
                "setting": setting,
                "colour": colours[method],
                "points": [_point(key, value, line[value]) for value in sorted(line)],
            }
            for name, method, setting, line in zip(
                names, methods, settings, lines.values(), strict=True
            )
        ],
    }


def _point(key: str, value: float, runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """The runs of all seeds at one value of the setting."""
    statistics = {
        name: seed_statistics([100 * score(run.accuracy) for run in runs])
        for name, score in SCORES.items()
    }
    return {
        "value": value,
        "seeds": len(runs),
        "done": min(len(run.rounds) for run in runs),
        "finished": all(run.finished for run in runs),
        "paper": paper.reference_value(runs[0], key) == value,
        **{name: [rounded(s.mean), rounded(s.deviation)] for name, s in statistics.items()},
    }
