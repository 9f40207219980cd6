"""The settings that can be checked without torch, and the role of every setting."""

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, field_validator

from fedadb.core.columns import check_columns
from fedadb.core.errors import BadInput
from fedadb.experiment import validation
from fedadb.experiment.dataset_name import check_dataset
from fedadb.experiment.presets import DATASET, SCENARIOS
from fedadb.partition import PARTITIONS, Partition
from fedadb.partition.dirichlet import Dirichlet
from fedadb.roles import Role

if TYPE_CHECKING:
    from fedadb.core.server_optimizers import ServerOptimizer
else:
    ServerOptimizer = Any  # it needs torch; `Experiment` checks it

SERVER = Role(shared=False)  # used by the server alone
PAPER_VARIES = Role(shared=False, fixed_by_paper=False)  # one of the settings that the paper varies
RECORDS = Role(affects="records", shared=False, fixed_by_paper=False)
# A run keeps its name and directory under another value, but its bits differ: it resumes only if
# that is asked for.
ROUNDING = Role(affects="rounding", shared=False, fixed_by_paper=False)
# How a run is carried out. It is not part of a run's identity, so that a resumed run may have other
# values; in a real federation, some of these settings decide which replies are used.
NO_EFFECT = Role(affects="nothing", shared=False, fixed_by_paper=False)
AGREED = Role(affects="nothing", fixed_by_paper=False)  # a site allows it, or refuses to take part
# It changes bits, and what a site sends.
AGREED_RESULTS = Role(fixed_by_paper=False)

# The tables that may name a class of the user's own.
OWN_PARTS = (
    "model",
    "algorithm",
    "federation.partition",
    "local.optimizer",
    "local.schedule",
    "server.optimizer",
    "attack",
)
OWN_FILTER = re.compile(r"filter\.\d+\.name")


@dataclass(frozen=True)
class Federation:
    """Who takes part in a simulation, and which client holds which rows.

    ```python
    fedadb.Federation(clients=10, participation=0.5, partition=fedadb.Dirichlet(alpha=0.3))
    ```
    """

    clients: Annotated[int, Ge(1), Le(10**9), PAPER_VARIES] = 100  # K: the number of clients
    # ρ: the share of clients in a round
    participation: Annotated[float, Gt(0), Le(1), PAPER_VARIES] = 0.05
    partition: Annotated[Partition, SERVER] = Dirichlet()  # how rows are distributed among clients
    # set it to use one partition with several seeds; none: the experiment's seed
    partition_seed: Annotated[int | None, SERVER] = None
    # "seeded": the clients of round t follow from (seed, t). "reference": from t alone, as in the
    # code that the paper builds on (the FedNTD and FedSOL repositories), so all seeds sample alike.
    # "poisson": each client takes part with probability ρ, so a round has ρK on average, or none.
    sampling: Annotated[Literal["seeded", "reference", "poisson"], SERVER] = "seeded"

    @property
    def sampled(self) -> int:
        """The number of clients in a round, on average if they are sampled one by one."""
        return int(self.clients * self.participation + 1e-9)


@dataclass(frozen=True)
class Server:
    """What the server does with the weights that the algorithm proposes.

    ```python
    fedadb.Server(optimizer=fedadb.ServerAdam(lr=0.003))
    ```
    """

    # how the server steps towards the proposed weights; none: they are the next weights
    optimizer: Annotated[ServerOptimizer | None, SERVER] = None


@dataclass(frozen=True)
class Engine:
    """How a run is computed. Backend, workers and overlap do not change any bit of the results.

    ```python
    fedadb.Engine(workers=1, device="cpu")
    ```
    """

    # what computes: "cpu", "cuda", "cuda:1", …; auto: a GPU if there is one
    device: Annotated[str, PAPER_VARIES] = "auto"
    # worker processes; auto: one per core
    workers: Annotated[Annotated[int, Ge(1)] | Literal["auto"], NO_EFFECT] = "auto"
    # "stacked": all clients of a round in one computation, for GPUs; auto: each by itself
    cohort: Annotated[Literal["auto", "stacked"], SERVER] = "auto"
    # what workers are: processes on this machine, or actors of a Ray cluster
    backend: Annotated[Literal["processes", "ray"], NO_EFFECT] = "processes"
    # of the Ray cluster: "auto", "ray://head:10001"; none: start Ray on this machine
    address: Annotated[str | None, NO_EFFECT] = None
    overlap: Annotated[bool, NO_EFFECT] = True  # evaluate a round while the next one trains
    precision: Literal["float32", "bfloat16"] = "float32"  # of the numbers in training
    # auto: our own kernels for convolutions that suit, on a CPU and in float32; elsewhere torch's
    kernels: Annotated[Literal["auto", "torch"], ROUNDING] = "auto"


@dataclass(frozen=True)
class Deployment:
    """How the server of a real federation deals with its sites.

    Simulations use the settings of secure aggregation, and ignore the others.
    """

    classes: Annotated[tuple[str, ...], NO_EFFECT] = ()  # class names, if the server has no data
    # channels, height and width of an image, if the server has no data
    shape: Annotated[tuple[Annotated[int, Ge(1)], ...], NO_EFFECT] = ()
    # What each column of the sites' tables becomes, if the server has no data: [mean, standard
    # deviation] of a column of numbers, or the list of categories. Other columns are ignored.
    columns: Annotated[Mapping[str, list[float] | list[str]], AGREED_RESULTS] = dataclasses.field(
        default_factory=dict
    )
    # who evaluates the model: the server on its test set, the sites on theirs, or both
    evaluate: Annotated[Literal["server", "sites", "both"], AGREED] = "server"
    wait: Annotated[float, Gt(0), NO_EFFECT] = 600.0  # seconds for all sites to connect
    deadline: Annotated[float, Gt(0), NO_EFFECT] = 3600.0  # seconds for a site to answer
    # valid replies that a round needs; none: half of the sites asked
    min_replies: Annotated[Annotated[int, Ge(1)] | None, NO_EFFECT] = None
    # how often a round with too few valid replies is repeated
    retries: Annotated[int, Ge(0), NO_EFFECT] = 2
    # seconds that a round waits for a site that disconnects, and for those without which it cannot
    # begin
    reconnect: Annotated[float, Ge(0), NO_EFFECT] = 60.0
    # largest accepted ‖w_k − w‖, in medians of the round's replies; none: any
    median_bound: Annotated[Annotated[float, Gt(1)] | None, NO_EFFECT] = 10.0
    # largest share of all rows that one of three or more sites counts for; 1: any
    max_share: Annotated[float, Gt(0), Le(1), NO_EFFECT] = 0.5
    # the rows of each site by name, if the server fixes them; then they must be the site's
    rows: Annotated[Mapping[str, Annotated[int, Ge(1)]], NO_EFFECT] = dataclasses.field(
        default_factory=dict
    )
    # whether the server learns the sum of all replies only
    secure_aggregation: Annotated[bool, AGREED_RESULTS] = False
    # largest change of a weight in a round that secure aggregation encodes
    secure_range: Annotated[float, Gt(0), AGREED_RESULTS] = 4.0

    def __post_init__(self) -> None:
        check_columns(self.columns)
        if self.columns and self.shape:
            raise BadInput("shape: follows from deployment.columns; leave it out")


def replies_needed(asked: int, least: int | None) -> int:
    """The valid replies that a round of so many sites needs; `least` is deployment.min_replies."""
    return min(asked, -(-asked // 2) if least is None else least)


class Settings(BaseModel):
    """The part of an experiment that needs no torch."""

    model_config: ClassVar[ConfigDict] = validation.STRICT

    # a name from `fedadb data list`, or your own data: csv:PATH, npz:PATH or folder:PATH
    dataset: Annotated[str, PAPER_VARIES] = DATASET
    rounds: Annotated[int, Ge(1)] = 1000  # T: how often clients train and the server averages
    # determines everything random: partition, first weights, sampling, shuffling, augmentation
    seed: Annotated[int, Ge(0)] = 0
    # The share of each client's rows, class by class, that is kept out of training; "published":
    # no client has the rows that the dataset's publisher meant for it. Each record then has the
    # accuracy on these rows.
    validation: Annotated[Annotated[float, Ge(0), Lt(1)] | Literal["published"], SERVER] = 0.0
    # Also evaluate each client's model before the mean, on its own classes and on the others. That
    # takes one more evaluation per client of a round.
    record_clients: Annotated[bool, RECORDS] = False
    # Also evaluate personal models of all clients. That takes a fine-tuning epoch per client, and a
    # local round if the algorithm's clients have a head of their own.
    personal: Annotated[bool, RECORDS] = False
    # rounds from one such evaluation to the next; there is always one after the last round
    personal_every: Annotated[int, Ge(1), RECORDS] = 50
    # The rounds whose broadcast is kept, if the algorithm has something to keep; auto: the first,
    # T/20, T/2 and the last.
    keep_broadcasts: Annotated[tuple[Annotated[int, Ge(1)], ...] | Literal["auto"], RECORDS] = (
        "auto"
    )
    federation: Federation = Federation()  # who takes part, and which client holds which rows
    server: Server = Server()  # what the server does with the weights that the algorithm proposes
    engine: Engine = Engine()  # how a run is computed
    deployment: Deployment = Deployment()  # how a server deals with real sites

    @field_validator("dataset", mode="before")
    @classmethod
    def _dataset(cls, given: Any) -> Any:
        return check_dataset(given)

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

    @field_validator("server", mode="before")
    @classmethod
    def _server(cls, given: Any) -> Server:
        return validation.to_dataclass(Server, given, "server")

    @field_validator("deployment", mode="before")
    @classmethod
    def _deployment(cls, given: Any) -> Deployment:
        if isinstance(given, dict) and "norm_bound" in given:
            raise BadInput(
                "deployment.norm_bound is now a filter: [[filter]] with name = 'norm_bound' and "
                f"norm = {given['norm_bound']}"
            )
        return validation.to_dataclass(Deployment, given, "deployment")

    def evaluates_personal(self, t: int) -> bool:
        """Whether the clients' personal models are evaluated after round t."""
        return self.personal and (t % self.personal_every == 0 or t == self.rounds)

    def keeps_broadcast(self, t: int) -> bool:
        """Whether what the algorithm keeps of round t's broadcast is saved."""
        if self.keep_broadcasts == "auto":
            return t in {1, max(1, self.rounds // 20), max(1, self.rounds // 2), self.rounds}
        return t in self.keep_broadcasts


def own_parts(settings: Mapping[str, Any]) -> list[str]:
    """The parts of flat settings that may name a class of the user's own."""
    filters = [key.removesuffix(".name") for key in settings if OWN_FILTER.fullmatch(key)]
    return [*OWN_PARTS, *filters]


def role(key: str) -> Role:
    """The role of a setting by its dotted name; a setting of a table may inherit the table's."""
    known = _roles()
    parts = key.split(".")
    for n in range(len(parts), 0, -1):
        if found := known.get(".".join(parts[:n])):
            return found
    return Role()


def affecting(settings: Mapping[str, Any], *kinds: str) -> dict[str, Any]:
    """Of flat settings, those that affect one of the given kinds: "results", "records"."""
    return {key: value for key, value in settings.items() if role(key).affects in kinds}


@cache
def _roles() -> dict[str, Role]:
    """The role of each setting that has one of its own, by dotted name."""
    metadata = {name: field.metadata for name, field in Settings.model_fields.items()}
    for name, field in Settings.model_fields.items():
        if dataclasses.is_dataclass(field.annotation):
            metadata |= _field_metadata(field.annotation, name)
    for partition in PARTITIONS.values():
        metadata |= _field_metadata(partition, "federation.partition")
    return {key: one for key, many in metadata.items() for one in many if isinstance(one, Role)}


def _field_metadata(cls: Any, path: str) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {f"{path}.{name}": getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
