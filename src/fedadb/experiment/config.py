"""An experiment: every setting of a run, read from and written to TOML."""

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
from fedadb.datasets.tensors import KINDS, Data
from fedadb.experiment import validation
from fedadb.experiment.own_model import model_table, to_model
from fedadb.experiment.presets import DATASET, complete
from fedadb.experiment.settings import PAPER_VARIES, Settings
from fedadb.models import Architecture
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

    # Python takes data in memory as well.
    dataset: Annotated[str | Data, PAPER_VARIES] = DATASET  # type: ignore[assignment]
    model: Annotated[Architecture, BeforeValidator(to_model)] = LeNet()
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
        if isinstance(given, Data):
            return given
        if not isinstance(given, str):
            raise BadInput(f"dataset = {given!r}: must be text, or in Python fedadb.Data")
        kind, colon, path = given.partition(":")
        if colon and kind in KINDS:
            raise BadInput(
                f"dataset = {given!r}: these data were in memory, not in a file; use Python, and "
                "pass the same fedadb.Data"
            )
        if colon and (kind not in OWN or not path):
            raise BadInput(
                f"dataset = {given!r}: your own data are csv:PATH, npz:PATH or folder:PATH"
            )
        if not colon and given not in DATASETS:
            known = validation.suggest(given, [*DATASETS, *(f"{kind}:PATH" for kind in OWN)])
            raise BadInput(f"dataset = {given!r}: is not known; {known}")
        if colon:  # absolute, so that the resolved experiment works from any directory
            return f"{kind}:{Path(path).expanduser().absolute()}"
        return given

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
            "dataset": str(self.dataset),
            "rounds": self.rounds,
            "seed": self.seed,
            "record_clients": self.record_clients,
            "keep_broadcasts": kept if kept == "auto" else list(kept),
            "model": model_table(self.model),
            "federation": federation,
            "local": validation.to_table(self.local),
            "algorithm": validation.to_named_table(ALGORITHMS, self.algorithm),
            "engine": validation.to_table(self.engine),
            "deployment": validation.to_table(self.deployment),
        }

    def toml(self) -> str:
        """Every setting, as a TOML file."""
        return tomli_w.dumps(self.table())
