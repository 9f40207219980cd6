"""Reads what runs recorded: their settings and their rounds."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter, with_config
from typing_extensions import TypedDict

from fedadb.core.errors import BadInput, Fault
from fedadb.experiment.settings import affecting, own_parts
from fedadb.experiment.toml_tables import flatten, up_to_date
from fedadb.report.labels import dataset_name
from fedadb.storage.files import read_json
from fedadb.storage.records import REQUIRED, Record, Share, ends_complete, read_records
from fedadb.storage.run_directory import (
    ANALYSIS,
    ENVIRONMENT,
    EXPERIMENT,
    PARTITION,
    ROUNDS,
    personal_file,
)

REQUIRED_SETTINGS: dict[str, type | tuple[type, ...]] = {  # and their types
    "dataset": str,
    "rounds": int,
    "seed": int,
    "algorithm.name": str,
    "federation.clients": int,
    "federation.participation": (int, float),
    "local.lr": (int, float),
}


@with_config(extra="allow")
class EnvironmentFile(TypedDict, total=False):
    own_code: dict[str, str]


class PartitionFile(TypedDict, total=False):
    classes: list[str]
    counts: list[list[int]]
    domains: list[str]


ENVIRONMENT_FORM: TypeAdapter[Any] = TypeAdapter(EnvironmentFile)
PARTITION_FORM: TypeAdapter[Any] = TypeAdapter(PartitionFile)
PERSONAL_FORM: TypeAdapter[Any] = TypeAdapter(
    dict[Literal["global", "tuned", "head"], list[Share | None]]
)
ANALYSIS_FORM: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, dict[str, Any]])


@dataclass(frozen=True)
class RecordedRun:
    """The settings of a run and the rounds it has recorded so far, read without torch."""

    directory: Path
    experiment: dict[str, Any]  # the resolved table
    rounds: list[Record]
    ends_complete: bool = True  # whether the last record was written completely

    @property
    def seed(self) -> int:
        return int(self.experiment["seed"])

    @property
    def algorithm(self) -> str:
        return str(self.experiment["algorithm"]["name"])

    @property
    def data_name(self) -> str:
        """The displayed name of the data; a server without data names the classes instead."""
        deployment = self.experiment.get("deployment")
        if isinstance(deployment, dict) and deployment.get("classes"):
            return "data of the sites"
        return dataset_name(self.experiment["dataset"])

    @property
    def total_rounds(self) -> int:
        """The number of rounds that the experiment asks for."""
        return int(self.experiment["rounds"])

    @property
    def finished(self) -> bool:
        return len(self.rounds) == self.total_rounds

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.rounds[0]["class_accuracy"])

    @property
    def accuracy(self) -> list[float]:
        return [record["accuracy"] for record in self.rounds]

    @property
    def validation_accuracy(self) -> list[float | None]:
        """On rows that no client trains on; None in rounds that did not measure it."""
        return [record.get("validation_accuracy") for record in self.rounds]

    @property
    def class_accuracy(self) -> list[list[float | None]]:
        """Rounds × classes; None where a class was not measured."""
        return [record["class_accuracy"] for record in self.rounds]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every setting that affects results, by dotted name, without the seed."""
        settings = affecting(flatten(self.experiment), "results")
        return {key: value for key, value in settings.items() if key != "seed"}

    @cached_property
    def versioned_settings(self) -> dict[str, Any]:
        """The settings, and the version of the user's own code.

        A part that is the user's own, such as the algorithm, also has `algorithm.code`: the
        beginning of its source's digest.
        """
        digests = self.environment.get("own_code", {})
        code = {
            f"{part}.code": digests[name][:8]
            for part in own_parts(self.settings)
            if (name := self.settings.get(f"{part}.name")) in digests
        }
        return self.settings | code

    @property
    def environment(self) -> dict[str, Any]:
        return self._read_json(ENVIRONMENT, ENVIRONMENT_FORM)

    @property
    def partition(self) -> dict[str, Any]:
        """The class names, and how many rows of each class every client holds."""
        return self._read_json(PARTITION, PARTITION_FORM)

    @property
    def personal_record(self) -> Record | None:
        """The last record that has the accuracy of personal models; None if no record has it."""
        return next((r for r in reversed(self.rounds) if "personal_global_mean" in r), None)

    @cached_property
    def personal(self) -> dict[str, list[float | None]]:
        """Each client's accuracy in that round, by kind of model; None where there is none."""
        record = self.personal_record
        if record is None:
            return {}
        return self._read_json(personal_file(self.directory, record["round"]).name, PERSONAL_FORM)

    @property
    def analyses(self) -> dict[str, dict[str, Any]]:
        """The results of the run's analyses, by analysis and model."""
        files = sorted((self.directory / ANALYSIS).glob("*.json"))
        return {path.stem: read_json(path, ANALYSIS_FORM) for path in files}

    def _read_json(self, name: str, form: TypeAdapter[dict[str, Any]]) -> dict[str, Any]:
        path = self.directory / name
        return read_json(path, form) if path.exists() else {}


def find_runs(directories: Sequence[Path]) -> list[Path]:
    """The directories of all runs at or below the given ones."""
    runs: dict[Path, None] = {}
    for directory in directories:
        if not directory.is_dir():
            what = "is not a directory" if directory.exists() else "does not exist"
            raise BadInput(f"{directory} {what}; name a run directory, or one that contains runs")
        below = [path.parent.resolve() for path in sorted(directory.rglob(EXPERIMENT))]
        if not below:
            raise BadInput(f"{directory} contains no run: no {EXPERIMENT} is in it or below it")
        runs |= dict.fromkeys(below)
    return list(runs)


def read_recorded_run(directory: Path) -> RecordedRun:
    """Read one run; files that are damaged or of another version raise Fault."""
    path = directory / EXPERIMENT
    try:
        experiment = up_to_date(tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise Fault(f"{path} is damaged: {error}") from error
    settings = flatten(experiment)
    for key, kind in REQUIRED_SETTINGS.items():
        if key not in settings:
            raise Fault(f"{path} has no {key!r}: another version wrote it")
        if not isinstance(settings[key], kind) or isinstance(settings[key], bool):
            raise Fault(f"{path} is damaged: {key} = {settings[key]!r}")
    for key, value in settings.items():
        if key.endswith(".name") and not isinstance(value, str):
            raise Fault(f"{path} is damaged: {key} = {value!r}")
    rounds = read_records(directory / ROUNDS)
    for record in rounds:
        if missing := [key for key in REQUIRED if key not in record]:
            raise Fault(
                f"{directory / ROUNDS}: round {record['round']} has no {missing[0]!r}: another "
                "version wrote it"
            )
    return RecordedRun(directory, experiment, rounds, ends_complete(directory / ROUNDS))


class CollectedRuns(NamedTuple):
    """All runs below some directories that have recorded a round, each experiment once."""

    runs: list[RecordedRun]
    warnings: list[str]  # about runs that were skipped or are incomplete
    errors: list[str]  # about runs that could not be read


def collect_runs(directories: Sequence[Path]) -> CollectedRuns:
    """Read all runs at or below the directories. A run that cannot be read is skipped."""
    runs: dict[str, RecordedRun] = {}
    warnings, errors = [], []
    for directory in find_runs(directories):
        try:
            run = read_recorded_run(directory)
            identity = repr((run.seed, sorted(run.versioned_settings.items(), key=str)))
        except Fault as error:
            errors.append(f"skipped: {error}")
            continue
        if not run.ends_complete:
            warnings.append(f"{directory / ROUNDS}: its last line is incomplete")
        if not run.rounds:
            warnings.append(f"{directory}: skipped, it has no finished round yet")
            continue
        if other := runs.get(identity):
            warnings.append(
                f"{other.directory} and {directory} are the same experiment: counted once"
            )
            run = max(other, run, key=lambda one: (len(one.rounds), bool(one.personal_record)))
        runs[identity] = run
    if not runs and not errors:
        names = ", ".join(map(str, directories))
        raise BadInput(f"{names}: no run there has finished a round yet")
    if not runs:
        raise Fault("; ".join(errors))
    return CollectedRuns(list(runs.values()), warnings, errors)
