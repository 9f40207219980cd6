"""An experiment: every setting of a run, read from and written to TOML."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import tomli_w
from pydantic import ValidationError, field_validator, model_validator

from fedadb.algorithms.fedadb import FedADB
from fedadb.algorithms.fedopt import FedOpt
from fedadb.attacks import ATTACKS
from fedadb.core.algorithm import Algorithm, upload_kind
from fedadb.core.attack import Attack, require_known_attackers
from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.core.filter import Compressor, Filter, check_filters
from fedadb.core.optimizers import OPTIMIZERS
from fedadb.core.schedules import SCHEDULES
from fedadb.core.server_optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from fedadb.core.vector import Weights
from fedadb.datasets.tensors import Data
from fedadb.experiment import validation
from fedadb.experiment.dataset_name import check_dataset
from fedadb.experiment.named_algorithms import algorithm_table, to_algorithm
from fedadb.experiment.own_model import model_table, to_model
from fedadb.experiment.presets import DATASET, complete
from fedadb.experiment.privacy import check_privacy, check_private_federation
from fedadb.experiment.secure_aggregation import (
    deployment_table,
    require_all_clients,
    require_only_sums,
)
from fedadb.experiment.settings import PAPER_VARIES, Server, Settings
from fedadb.filters import FILTERS
from fedadb.models import Architecture
from fedadb.models.lenet import LeNet
from fedadb.partition import PARTITIONS


class Experiment(Settings):
    """What is trained, on which data, by whom and how.

    Settings that are not given follow from the dataset. A table such as `local={"epochs": 1}` is
    completed in the same way; an object such as `LocalPlan(epochs=1)` is taken as it is. Wrong
    settings raise BadInput. On the command line, `fedadb explain KEY` says what a setting means.

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
            if "federation" in given:  # a site of a real federation does not know it
                self.check_federation()

    # Python takes data in memory as well.
    dataset: Annotated[str | Data, PAPER_VARIES] = DATASET  # type: ignore[assignment]
    # the network without its classifier, which the algorithm adds; module:Name is your own
    model: Architecture = LeNet()
    # how a client trains in one round
    local: LocalPlan = LocalPlan()
    # how clients train and what the server makes of it; module:Class is your own
    algorithm: Algorithm[Any, Any, Any, Any] = FedADB()
    # what happens to replies between clients and server, in this order
    filter: tuple[Filter, ...] = ()
    # what some clients of a simulation do instead of training; none: all are honest
    attack: Attack | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        return complete(given) if isinstance(given, dict) else given

    @field_validator("dataset", mode="before")
    @classmethod
    def _dataset(cls, given: Any) -> Any:
        return given if isinstance(given, Data) else check_dataset(given)

    @field_validator("model", mode="before")
    @classmethod
    def _model(cls, given: Any) -> Any:
        return to_model(given)

    @field_validator("local", mode="before")
    @classmethod
    def _local(cls, given: Any) -> Any:
        return _local_plan(given)

    @field_validator("algorithm", mode="before")
    @classmethod
    def _algorithm(cls, given: Any) -> Any:
        return to_algorithm(given)

    @field_validator("filter", mode="before")
    @classmethod
    def _filter(cls, given: Any) -> Any:
        return _filters(given)

    @field_validator("attack", mode="before")
    @classmethod
    def _one_attack(cls, given: Any) -> Any:
        return _attack(given)

    @field_validator("server", mode="before")
    @classmethod
    def _server(cls, given: Any) -> Server:
        server = validation.to_dataclass(Server, given, "server")
        path = "server.optimizer"
        optimizer = validation.to_named_or_none(SERVER_OPTIMIZERS, server.optimizer, path)
        if optimizer is not None and not isinstance(optimizer, ServerOptimizer):
            raise BadInput(f"{path} = {optimizer!r}: must have the methods init and step")
        return Server(optimizer)

    @model_validator(mode="after")
    def _check_together(self) -> "Experiment":
        """Refuse settings that are right by themselves, but not together."""
        name = self.algorithm.name
        try:
            self.algorithm.check_plan(self.local)
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from error
        if type(self.local.schedule) not in SCHEDULES.values():  # the user's own may be wrong
            for t in range(1, self.rounds + 1):
                self.local.lr_factor(t, self.rounds)
        if self.algorithm.own_server_step and self.server.optimizer is not None:
            instead = ""
            if isinstance(self.algorithm, FedOpt):
                instead = "; its settings are the algorithm's, such as algorithm.lr"
            raise BadInput(
                f"server.optimizer: {name} has a server step of its own, so it takes none{instead}"
            )
        if self.attack is not None:
            require_known_attackers(self.attack, self.federation.clients)
            for one in self.filter:
                if isinstance(one, Compressor):
                    raise BadInput(
                        f"attack: attackers replace whole weights, but {type(one).__name__} "
                        "compresses what clients send; drop one of the two"
                    )
        for one in self.filter:
            if one.replaces_replies and self.algorithm.needs_single_replies:
                raise BadInput(
                    f"filter: {type(one).__name__} replaces replies by a result of several, but "
                    f"{name} needs single replies; drop the filter, or choose another method"
                )
            kind = upload_kind(self.algorithm)
            if one.replaces_replies and kind is not None and kind is not Weights:
                others = [part for part in getattr(kind, "_fields", ()) if part != "w"]
                raise BadInput(
                    f"filter: {type(one).__name__} replaces the weights of replies, but clients of "
                    f"{name} also send {', '.join(others)}; choose a method that sends weights only"
                )
        check_privacy(self)
        check_filters(self.filter, self.algorithm)
        if self.deployment.secure_aggregation:
            require_only_sums(self)
        return self

    def check_federation(self) -> None:
        """Raise BadInput if a filter or a secure sum cannot work with the clients of a round."""
        check_private_federation(self)
        m = self.federation.sampled
        if self.deployment.secure_aggregation:
            require_all_clients(self.federation)
        for one in self.filter:
            if one.replies_needed > 1 and self.federation.sampling == "poisson":
                raise BadInput(
                    f"filter: {one} needs at least {one.replies_needed} replies per round, but "
                    "with federation.sampling = 'poisson' a round may have none; use 'seeded'"
                )
            if m < one.replies_needed:
                raise BadInput(
                    f"filter: {one} needs at least {one.replies_needed} replies per round, but a "
                    f"round has {m} of the {self.federation.clients} clients; change "
                    "federation.participation, or the settings of the filter"
                )

    @staticmethod
    def read(given: dict[str, Any]) -> "Experiment":
        """Make an experiment of a table, as in a TOML file."""
        return Experiment(**given)

    def table(self) -> dict[str, Any]:
        """Every setting, as a table that `read` accepts."""
        federation = validation.to_table(self.federation)
        federation["partition"] = validation.to_named_table(PARTITIONS, self.federation.partition)
        local = validation.to_table(self.local)
        local["optimizer"] = validation.to_named_table(OPTIMIZERS, self.local.optimizer)
        local["schedule"] = validation.to_named_table(SCHEDULES, self.local.schedule)
        server = {"optimizer": _named_or_none(self.server.optimizer)}
        kept = self.keep_broadcasts
        # A key that all runs have would change the names of runs that have no attack.
        attack = {"attack": _short_table(ATTACKS, self.attack)} if self.attack else {}
        return {
            "dataset": str(self.dataset),
            "rounds": self.rounds,
            "seed": self.seed,
            "validation": self.validation,
            "record_clients": self.record_clients,
            "personal": self.personal,
            "personal_every": self.personal_every,
            "keep_broadcasts": kept if kept == "auto" else list(kept),
            "model": model_table(self.model),
            "federation": federation,
            "local": local,
            "server": server,
            "algorithm": algorithm_table(self.algorithm),
            "filter": [_short_table(FILTERS, one) for one in self.filter],
            "engine": validation.to_table(self.engine),
            "deployment": deployment_table(self.deployment),
            **attack,
        }

    def toml(self) -> str:
        """Every setting, as a TOML file."""
        return tomli_w.dumps(self.table())


def _filters(given: Any) -> tuple[Filter, ...]:
    if not isinstance(given, (list, tuple)):
        raise BadInput(f"filter = {given!r}: must be a list of tables, such as [[filter]]")
    return tuple(validation.to_named(FILTERS, one, f"filter.{i}") for i, one in enumerate(given))


def _attack(given: Any) -> Attack | None:
    attack = validation.to_named_or_none(ATTACKS, given, "attack")
    if attack is not None and not isinstance(attack, Attack):
        raise BadInput(f"attack = {attack!r}: must be derived from fedadb.Attack")
    return attack


def _short_table(registry: Mapping[str, type[Any]], one: Any) -> dict[str, Any]:
    """Of our own filters and attacks, a setting without a value is left out.

    `clip` had no `quantile` at first, and its runs keep their names.
    """
    table = validation.to_named_table(registry, one)
    ours = type(one) in registry.values()
    return {key: v for key, v in table.items() if v != "none"} if ours else table


def _local_plan(given: Any) -> LocalPlan:
    if isinstance(given, LocalPlan):
        given = validation.fields_of(given)
    if isinstance(given, Mapping):
        named: dict[str, Mapping[str, type[Any]]] = {
            "optimizer": OPTIMIZERS,
            "schedule": SCHEDULES,
        }
        made = {
            key: validation.to_named(registry, given[key], f"local.{key}")
            for key, registry in named.items()
            if key in given
        }
        given = {**given, **made}
    return validation.to_dataclass(LocalPlan, given, "local")


def _named_or_none(optimizer: ServerOptimizer | None) -> dict[str, Any]:
    if optimizer is None:
        return {"name": "none"}
    return validation.to_named_table(SERVER_OPTIMIZERS, optimizer)
