"""One experiment with several algorithms and seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.presets import merge


def grid(
    given: Mapping[str, Any], algorithms: Sequence[str], seeds: Sequence[int]
) -> dict[str, Experiment]:
    """Each combination, under the name of its directory."""
    for word, values in (("algorithm", algorithms), ("seed", seeds)):
        if len(set(values)) < len(values):
            twice = next(v for v in values if values.count(v) > 1)
            raise BadInput(f"{word} {twice} is given twice")
    return {
        f"{algorithm}-seed{seed}": Experiment.read(
            merge(given, {"algorithm": {"name": algorithm}, "seed": seed})
        )
        for algorithm in algorithms
        for seed in seeds
    }
