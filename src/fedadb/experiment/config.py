"""An experiment: every setting of a run, read from and written to TOML."""

import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tomli_w
from pydantic import BeforeValidator, ValidationError, field_validator, model_validator

from fedadb.algorithms import ALGORITHMS
from fedadb.algorithms.fedadb import FedADB
from fedadb.core.algorithm import Algorithm
from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.datasets import DATASETS, OWN
from fedadb.experiment import validation
from fedadb.experiment.presets import SCENARIOS, complete, merge, nested
from fedadb.experiment.settings import Deployment, Engine, Federation, Settings
from fedadb.models import MODELS, Architecture
from fedadb.models.lenet import LeNet
from fedadb.partition import PARTITIONS


class Experiment(Settings):
    """What is trained, on which data, by whom and how.

    Settings that are not given follow from the dataset. A table such as `local={"epochs": 1}` is
    completed in the same way; an object such as `LocalPlan(epochs=1)` is taken as it is. Wrong
    settings raise BadInput.

    ```python
    experiment = fedadb.Experiment(
        dataset="digits", rounds=10, algorithm=fedadb.FedADB(), local={"lr": 0.02}
    )
    ```
    """

    if not TYPE_CHECKING:  # pydantic's mypy plugin derives a better signature

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise BadInput(validation.explain(error, "", Experiment)) from error

    model: Annotated[
        Architecture, BeforeValidator(lambda given: validation.to_named(MODELS, given, "model"))
    ] = LeNet()
    local: Annotated[
        LocalPlan, BeforeValidator(lambda given: validation.to_dataclass(LocalPlan, given, "local"))
    ] = LocalPlan()
    algorithm: Annotated[
        Algorithm[Any, Any, Any],
        BeforeValidator(lambda given: validation.to_named(ALGORITHMS, given, "algorithm")),
    ] = FedADB()

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        return complete(given) if isinstance(given, dict) else given

    @field_validator("dataset", mode="before")
    @classmethod
    def _dataset(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        kind, colon, path = given.partition(":")
        if colon and (kind not in OWN or not path):
            raise BadInput(f"dataset = {given!r}: your own data are npz:PATH or folder:PATH")
        if not colon and given not in DATASETS:
            known = validation.suggest(given, [*DATASETS, "npz:PATH", "folder:PATH"])
            raise BadInput(f"dataset = {given!r}: is not known; {known}")
        if colon:  # absolute, so that the resolved experiment works from any directory
            return f"{kind}:{Path(path).expanduser().absolute()}"
        return given

    @field_validator("keep_broadcasts", mode="before")
    @classmethod
    def _keep_broadcasts(cls, given: Any) -> Any:
        return tuple(given) if isinstance(given, list) else given  # TOML has no tuples

    @field_validator("federation", mode="before")
    @classmethod
    def _federation(cls, given: Any) -> Federation:
        if isinstance(given, Federation):
            given = validation.fields_of(given)
        if isinstance(given, dict):
            given = dict(given)
            if (scenario := given.pop("scenario", None)) is not None:
                if not isinstance(scenario, str) or scenario not in SCENARIOS:
                    known = validation.suggest(scenario, SCENARIOS)
                    raise BadInput(f"federation.scenario = {scenario!r}: is not known; {known}")
                given = {**SCENARIOS[scenario], **given}
            if "partition" in given:
                path = "federation.partition"
                given["partition"] = validation.to_named(PARTITIONS, given["partition"], path)
        federation = validation.to_dataclass(Federation, given, "federation")
        if federation.sampled < 1:
            raise BadInput(
                f"federation.participation = {federation.participation}: selects none of "
                f"{federation.clients} clients; it must be at least "
                f"{math.ceil(1e4 / federation.clients) / 1e4:g}"
            )
        return federation

    @field_validator("engine", mode="before")
    @classmethod
    def _engine(cls, given: Any) -> Engine:
        engine = validation.to_dataclass(Engine, given, "engine")
        if engine.backend == "ray" and engine.cohort == "stacked":
            raise BadInput(
                "engine.cohort = 'stacked' computes in one process, and engine.backend = 'ray' in "
                "many; choose one of them"
            )
        return engine

    @field_validator("deployment", mode="before")
    @classmethod
    def _deployment(cls, given: Any) -> Deployment:
        return validation.to_dataclass(Deployment, given, "deployment")

    @staticmethod
    def read(given: dict[str, Any]) -> "Experiment":
        """Make an experiment of a table, as in a TOML file."""
        return Experiment(**given)

    def table(self) -> dict[str, Any]:
        """Every setting, as a table that `read` accepts."""
        federation = validation.to_table(self.federation)
        federation["partition"] = validation.to_named_table(PARTITIONS, self.federation.partition)
        kept = self.keep_broadcasts
        return {
            "dataset": self.dataset,
            "rounds": self.rounds,
            "seed": self.seed,
            "record_clients": self.record_clients,
            "keep_broadcasts": kept if kept == "auto" else list(kept),
            "model": validation.to_named_table(MODELS, self.model),
            "federation": federation,
            "local": validation.to_table(self.local),
            "algorithm": validation.to_named_table(ALGORITHMS, self.algorithm),
            "engine": validation.to_table(self.engine),
            "deployment": validation.to_table(self.deployment),
        }

    def toml(self) -> str:
        """Every setting, as a TOML file."""
        return tomli_w.dumps(self.table())


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The table of a TOML text; `source` names it in errors."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise BadInput(f"{source} is not TOML: {error}") from error


def load_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error


def override(given: dict[str, Any], assignment: str) -> dict[str, Any]:
    """The table with one assignment such as `local.lr=0.05` applied."""
    key, equals, text = assignment.partition("=")
    if not key or not equals:
        raise BadInput(f"--set {assignment!r}: must be KEY=VALUE, such as local.lr=0.05")
    if "\n" in assignment:
        raise BadInput(f"--set {assignment!r}: must be one line; use --set once per key")
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except RecursionError as error:
        raise BadInput(f"--set {key}=…: is nested too deeply") from error
    except ValueError:  # not TOML, or a number of thousands of digits
        number = _to_float(text)
        value = text.strip() if number is None else number  # a word needs no quotes here
    return merge(given, nested(key.strip(), value))


def _to_float(text: str) -> float | None:
    """A number that Python accepts and TOML does not, such as .01."""
    try:
        return float(text)
    except ValueError:
        return None
