"""One experiment with several algorithms and seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.presets import merge


def grid(
    given: Mapping[str, Any], algorithms: Sequence[str], seeds: Sequence[int]
) -> list[Experiment]:
    """Each combination. Settings of an algorithm are for the one that is named beside them."""
    for word, values in (("algorithm", algorithms), ("seed", seeds)):
        if len(set(values)) < len(values):
            twice = next(v for v in values if values.count(v) > 1)
            raise BadInput(f"{word} {twice} is given twice")
    table = merge({"algorithm": {}}, given)["algorithm"]
    settings = sorted(table.keys() - {"name"}) if isinstance(table, Mapping) else []
    if settings and "name" not in table and len(algorithms) == 1:
        given = merge(given, {"algorithm": {"name": algorithms[0]}})
    elif settings and table.get("name") not in algorithms:
        whose = f"is for {table['name']}" if "name" in table else "says not for which algorithm"
        raise BadInput(
            f"algorithm.{settings[0]} {whose}; set algorithm.name to one of {', '.join(algorithms)}"
        )
    return [
        Experiment.read(merge(given, {"algorithm": {"name": algorithm}, "seed": seed}))
        for algorithm in algorithms
        for seed in seeds
    ]
