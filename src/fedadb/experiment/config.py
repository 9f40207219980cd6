"""An experiment: everything that decides what a run computes."""

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tomli_w
from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, BeforeValidator, ValidationError, model_validator

from fedadb.algorithms import ALGORITHMS
from fedadb.algorithms.fedadb import FedADB
from fedadb.core.algorithm import Algorithm
from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.datasets import DATASETS, OWN
from fedadb.experiment import tables
from fedadb.experiment.presets import SCENARIOS, complete, merge, nested
from fedadb.models import MODELS, Architecture
from fedadb.models.lenet import LeNet
from fedadb.partition import PARTITIONS, Partition
from fedadb.partition.dirichlet import Dirichlet


@dataclass(frozen=True)
class Federation:
    """Who takes part, and who holds what."""

    clients: Annotated[int, Ge(1)] = 100  # K
    participation: Annotated[float, Gt(0), Le(1)] = 0.05  # ρ: the share of clients in a round
    partition: Partition = Dirichlet()
    partition_seed: int | None = None  # the experiment's seed unless given
    # "seeded": the clients of round t follow from (seed, t). "lineage": from t alone, as in the
    # code the paper follows; then every seed meets the same clients.
    sampling: Literal["seeded", "lineage"] = "seeded"

    @property
    def sampled(self) -> int:
        """How many clients take part in a round."""
        return int(self.clients * self.participation + 1e-9)


@dataclass(frozen=True)
class Engine:
    """How it is computed. Backend, workers and overlap change no bit of what comes out."""

    device: str = "auto"  # "cpu", "cuda", "cuda:1", …; auto: a GPU if there is one
    workers: Annotated[int, Ge(1)] | Literal["auto"] = "auto"  # processes; auto: one a core
    # "stacked": all clients of a round in one computation, for a GPU; auto: each on its own.
    cohort: Literal["auto", "stacked"] = "auto"
    # What workers are: processes of this machine, or actors of a Ray cluster.
    backend: Literal["processes", "ray"] = "processes"
    address: str | None = None  # of the cluster: "auto", "ray://head:10001"; none: Ray, here
    overlap: bool = True  # evaluate a round while the next one trains
    precision: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True)
class Deployment:
    """How real sites are dealt with. A simulation takes no notice of it."""

    # What the images are and show, if the server has no data of its own to tell.
    classes: tuple[str, ...] = ()
    shape: tuple[Annotated[int, Ge(1)], ...] = ()  # channels, height, width
    # Who tests the model: the server on its test set, the sites on theirs, or both.
    evaluate: Literal["server", "sites", "both"] = "server"
    wait: Annotated[float, Gt(0)] = 600.0  # seconds for all sites to come
    deadline: Annotated[float, Gt(0)] = 3600.0  # seconds for a site to answer in a round
    min_replies: Annotated[int, Ge(1)] | None = None  # in a round; none: half of those asked
    retries: Annotated[int, Ge(0)] = 2  # of a round with fewer
    norm_bound: Annotated[float, Gt(0)] | None = None  # the largest ‖w_k − w‖ that is accepted


def _federation(given: Any) -> Federation:
    if isinstance(given, Federation):
        given = tables.fields_of(given)
    if isinstance(given, dict):
        given = dict(given)
        if (scenario := given.pop("scenario", None)) is not None:
            if not isinstance(scenario, str) or scenario not in SCENARIOS:
                known = tables.near(scenario, SCENARIOS)
                raise BadInput(f"federation.scenario = {scenario!r}: is not known; {known}")
            given = {**SCENARIOS[scenario], **given}
        if "partition" in given:
            path = "federation.partition"
            given["partition"] = tables.named(PARTITIONS, given["partition"], path)
    federation = tables.read(Federation, given, "federation")
    if federation.sampled < 1:
        raise BadInput(
            f"federation.participation = {federation.participation}: samples nobody of "
            f"{federation.clients} clients; it must be at least "
            f"{math.ceil(1e4 / federation.clients) / 1e4:g}"
        )
    return federation


def _engine(given: Any) -> Engine:
    engine = tables.read(Engine, given, "engine")
    if engine.backend == "ray" and engine.cohort == "stacked":
        raise BadInput(
            "engine.cohort = 'stacked': is one computation, and engine.backend = 'ray' is many; "
            "leave one of them out"
        )
    return engine


def _dataset(given: Any) -> Any:
    if isinstance(given, str):
        kind, colon, path = given.partition(":")
        if colon and (kind not in OWN or not path):
            raise BadInput(f"dataset = {given!r}: one's own data are npz:PATH or folder:PATH")
        if not colon and given not in DATASETS:
            known = tables.near(given, [*DATASETS, "npz:PATH", "folder:PATH"])
            raise BadInput(f"dataset = {given!r}: is not known; {known}")
        if colon:  # so that the written experiment finds its data from anywhere
            return f"{kind}:{Path(path).expanduser().absolute()}"
    return given


class Experiment(BaseModel):
    """What is trained, on what, by whom and how. Reads from and writes to TOML.

    Wrong input raises BadInput. What is not given follows from the dataset; a LocalPlan or a
    Federation, unlike a table, is whole and taken as it is.
    """

    model_config = tables.STRICT

    if not TYPE_CHECKING:  # where pydantic's plugin knows the arguments better

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise BadInput(tables.explain(error, "", Experiment)) from error

    dataset: Annotated[str, BeforeValidator(_dataset)] = "digits"
    model: Annotated[
        Architecture, BeforeValidator(lambda given: tables.named(MODELS, given, "model"))
    ] = LeNet()
    rounds: Annotated[int, Ge(1)] = 1000  # T
    seed: Annotated[int, Ge(0)] = 0
    # Evaluate each client's model as well, before the mean: what it knows of its own classes and
    # of the others. It takes as many evaluations more as there are clients in a round.
    record_clients: bool = False
    federation: Annotated[Federation, BeforeValidator(_federation)] = Federation()
    local: Annotated[
        LocalPlan, BeforeValidator(lambda given: tables.read(LocalPlan, given, "local"))
    ] = LocalPlan()
    algorithm: Annotated[
        Algorithm[Any, Any, Any],
        BeforeValidator(lambda given: tables.named(ALGORITHMS, given, "algorithm")),
    ] = FedADB()
    engine: Annotated[Engine, BeforeValidator(_engine)] = Engine()

    deployment: Annotated[
        Deployment, BeforeValidator(lambda given: tables.read(Deployment, given, "deployment"))
    ] = Deployment()

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        return complete(given) if isinstance(given, dict) else given

    @staticmethod
    def read(given: dict[str, Any]) -> "Experiment":
        """From a table, as in the TOML file."""
        return Experiment(**given)

    def table(self) -> dict[str, Any]:
        """Every setting, in the form that `read` takes."""
        federation = tables.write(self.federation)
        federation["partition"] = tables.write_named(PARTITIONS, self.federation.partition)
        return {
            "dataset": self.dataset,
            "rounds": self.rounds,
            "seed": self.seed,
            "record_clients": self.record_clients,
            "model": tables.write_named(MODELS, self.model),
            "federation": federation,
            "local": tables.write(self.local),
            "algorithm": tables.write_named(ALGORITHMS, self.algorithm),
            "engine": tables.write(self.engine),
            "deployment": tables.write(self.deployment),
        }

    def toml(self) -> str:
        return tomli_w.dumps(self.table())


def parse(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{source} is not TOML: {error}") from error


def load(path: Path) -> dict[str, Any]:
    """The table in an experiment file."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error


def _number(text: str) -> float | None:
    """What TOML does not take for a number but everybody else does, such as .01."""
    try:
        return float(text)
    except ValueError:
        return None


def override(given: dict[str, Any], assignment: str) -> dict[str, Any]:
    """The table with one `local.lr=0.05` put into it."""
    key, equals, text = assignment.partition("=")
    if not key or not equals:
        raise BadInput(f"--set {assignment!r}: must be KEY=VALUE, such as local.lr=0.05")
    if "\n" in assignment:
        raise BadInput(f"--set {assignment!r}: must be one line; give --set once for each key")
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        number = _number(text)
        value = text.strip() if number is None else number  # a word needs no quotes here
    return merge(given, nested(key.strip(), value))
