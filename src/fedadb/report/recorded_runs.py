"""Runs as they lie on disk: what was run, where, and what came of it round by round."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fedadb.core.errors import BadInput, Fault
from fedadb.experiment.presets import flatten
from fedadb.experiment.settings import affecting
from fedadb.storage.records import REQUIRED, Record, ends_complete, read_records
from fedadb.storage.run_directory import EXPERIMENT, ROUNDS

RESOLVED = (
    "dataset",
    "rounds",
    "seed",
    "algorithm.name",
    "federation.clients",
    "federation.participation",
    "local.lr",
)


@dataclass(frozen=True)
class Run:
    directory: Path
    experiment: dict[str, Any]  # the resolved table
    rounds: list[Record]
    whole: bool = True  # whether the last record was written to its end

    @property
    def seed(self) -> int:
        return int(self.experiment["seed"])

    @property
    def algorithm(self) -> str:
        return str(self.experiment["algorithm"]["name"])

    @property
    def total(self) -> int:
        """The rounds that it is to have in the end."""
        return int(self.experiment["rounds"])

    @property
    def accuracy(self) -> list[float]:
        return [record["accuracy"] for record in self.rounds]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every setting that affects results, by dotted name, without the seed."""
        deciding = affecting(flatten(self.experiment), "results")
        return {key: value for key, value in deciding.items() if key != "seed"}

    def beside(self, name: str) -> Any:
        """What a JSON file of the run's directory says; {} if there is none."""
        path = self.directory / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        except ValueError as error:
            raise Fault(f"{path} is damaged: {error}") from error


def find(places: Sequence[Path]) -> list[Path]:
    """The directories of all runs at or below the given ones."""
    found: dict[Path, None] = {}
    for place in places:
        if not place.is_dir():
            what = "is not a directory" if place.exists() else "does not exist"
            raise BadInput(f"{place} {what}; give a run's directory, or one that holds runs")
        below = [path.parent.resolve() for path in sorted(place.rglob(EXPERIMENT))]
        if not below:
            raise BadInput(f"{place} holds no run: there is no {EXPERIMENT} in it or below it")
        found |= dict.fromkeys(below)
    return list(found)


def read(directory: Path) -> Run:
    path = directory / EXPERIMENT
    try:
        experiment = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Fault(f"{path} is damaged: {error}") from error
    lacking = [key for key in RESOLVED if key not in flatten(experiment)]
    if lacking:
        raise Fault(f"{path} has no {lacking[0]!r}: another version wrote it")
    rounds = read_records(directory / ROUNDS)
    for line in rounds:
        if lacking := [key for key in REQUIRED if key not in line]:
            raise Fault(
                f"{directory / ROUNDS}: round {line['round']} has no {lacking[0]!r}: another "
                "version wrote it"
            )
    return Run(directory, experiment, rounds, whole=ends_complete(directory / ROUNDS))


class Reading(NamedTuple):
    """All runs with a round at least, each experiment once."""

    runs: list[Run]
    notes: list[str]  # on what was passed over
    damaged: list[str]  # and on what could not be read


def read_all(places: Sequence[Path]) -> Reading:
    found: dict[str, Run] = {}
    notes, damaged = [], []
    for directory in find(places):
        try:
            run = read(directory)
        except Fault as error:
            damaged.append(f"left out: {error}")
            continue
        if not run.whole:
            notes.append(f"{directory / ROUNDS}: its last line is not whole")
        if not run.rounds:
            notes.append(f"{directory}: left out, no round is done yet")
            continue
        key = repr((run.seed, sorted(run.settings.items(), key=str)))
        if known := found.get(key):
            further = max(known, run, key=lambda one: len(one.rounds))
            notes.append(f"{known.directory} and {directory} are the same experiment: counted once")
            found[key] = further
        else:
            found[key] = run
    if not found and not damaged:
        raise BadInput(f"{', '.join(map(str, places))}: no run there has done a round yet")
    if not found:
        raise Fault("; ".join(damaged))
    return Reading(list(found.values()), notes, damaged)
