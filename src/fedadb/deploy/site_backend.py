"""The backend of a real federation: the sites train, and the server or the sites evaluate."""

import hashlib
import json
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput
from fedadb.core.model import Model
from fedadb.core.stream import Stream
from fedadb.deploy.agreement import federation_data, require_no_attack
from fedadb.deploy.cohort import SiteCohort
from fedadb.deploy.evaluation import SiteEvaluator
from fedadb.deploy.key_exchange import end_run, exchange_keys
from fedadb.deploy.participants import Participants
from fedadb.deploy.secret_random import SecretSource, open_secrets
from fedadb.deploy.secure_cohort import SecureCohort
from fedadb.deploy.secure_evaluation import POOLED, SecureEvaluator
from fedadb.engine.cohorts import Cohort
from fedadb.engine.evaluate import Evaluator, ImmediateEvaluator, TestSet, mixed_order
from fedadb.engine.federate import Snapshot
from fedadb.engine.local import Learner
from fedadb.experiment.build import (
    DataSummary,
    SeededSource,
    build_model,
    make_learner,
    pick_device,
)
from fedadb.experiment.config import Experiment
from fedadb.experiment.privacy import Privacy, privacy_of
from fedadb.experiment.stored import spec_to_table
from fedadb.progress import Progress
from fedadb.storage.records import read_records
from fedadb.storage.run_directory import ROUNDS
from fedadb.storage.tensorfile import raw_bytes


@contextmanager
def site_backend(
    experiment: Experiment,
    progress: Progress,
    *,
    grid: Grid,
    out: Path,
    on_status: Callable[[str], None],
    private: Path | None = None,
    returns: bool = False,
) -> Iterator["SiteBackend"]:
    """Build the model and wait for the sites.

    Args:
        experiment: What to train.
        progress: Reports the loading of the server's test data.
        grid: Flower's connection to the nodes.
        out: The run's directory.
        on_status: Called with a sentence whenever a site connects, disconnects or replies.
        private: The server's directory for the secrets of private runs; None: there is none.
        returns: Whether the run returns to an earlier round.
    """
    if experiment.record_clients:
        raise BadInput(
            "record_clients: a server does not know which classes its sites have; leave it out"
        )
    if experiment.personal:
        raise BadInput("personal: a server does not have the rows of its sites; leave it out")
    if experiment.validation:
        raise BadInput(
            f"validation = {experiment.validation!r}: sites train on all of their rows; leave it "
            "out, or let the sites test with deployment.evaluate = 'sites'"
        )
    require_no_attack(experiment)
    experiment.check_federation()
    privacy = privacy_of(experiment)
    if privacy is not None:
        _require_secret(privacy, private)
    spec, test = federation_data(experiment, progress)
    f = build_model(experiment, spec, progress)
    sites = Participants(grid, experiment, spec, out)
    sites.gather(on_status)
    if experiment.deployment.secure_aggregation:
        sites.attempt += returns  # sites train rounds again that they have answered
        sites.only_sum = exchange_keys(sites, on_status)
        _ = sites.coding.scale  # raises if they have too many rows
    if privacy is None or private is None:
        random: SeededSource | SecretSource = SeededSource(
            Stream(experiment.seed), experiment.federation
        )
    else:
        rounds = len(read_records(out / ROUNDS))
        random = open_secrets(private / sites.run, experiment.federation, rounds)
    yield SiteBackend(experiment, f, sites, test, on_status, random)


def _require_secret(privacy: Privacy, private: Path | None) -> None:
    """Raise BadInput unless a private run can keep secret what must be."""
    if private is None:
        raise BadInput(
            "filter: DP keeps notes that only the server may read, and Flower's own runtime has no "
            "place for them; use `fedadb deploy server`"
        )
    if not (privacy.accountant.poisson or privacy.accountant.everyone):
        raise BadInput(
            "federation.sampling: every site can compute who takes part from the seed, so that DP "
            "cannot count on chance; use 'poisson', or participation = 1"
        )


@dataclass(frozen=True)
class SiteBackend:
    """A run whose training data are at real sites."""

    experiment: Experiment
    f: Model
    sites: Participants
    test: Examples | None  # the server's test data, if it has any
    on_status: Callable[[str], None]
    random: SeededSource | SecretSource
    # the last round in which each client's reply was used
    last_used: dict[int, int] = field(default_factory=dict)

    @cached_property
    def data(self) -> DataSummary:
        only_sum = self.sites.only_sum
        rows = self.sites.rows if only_sum is None else [only_sum]
        hidden = self.random.secret or only_sum is not None
        table = [spec_to_table(self.sites.spec), rows]
        digest = hashlib.sha256(json.dumps(table).encode())
        for tensor in self.test or ():
            digest.update(raw_bytes(tensor))
        return DataSummary(
            classes=self.sites.spec.classes,
            # their classes are not known here; in a private run, neither are the rows shown
            counts=[] if hidden else [[rows] for rows in self.sites.counted],
            domains=self._tested if self._sites_evaluate else (),
            digest=digest.hexdigest(),
            only_sum=None if self.random.secret else only_sum,
        )

    @cached_property
    def test_set(self) -> TestSet | None:
        if self.test is None:
            return None
        device = pick_device(self.experiment.engine.device)
        test = self.test.rows(mixed_order(len(self.test.y))).to(device)
        batch_size = self.experiment.local.batch_size
        return TestSet(self.f, test, self.sites.spec.transform, batch_size)

    @contextmanager
    def open(self, memories: MutableMapping[int, Any]) -> Iterator[tuple[Cohort[Any], Evaluator]]:
        """The sites as cohort and evaluator; they keep their memories themselves."""
        self.sites.store()
        records = read_records(self.sites.out / ROUNDS)
        used = {record["round"]: record["clients"] for record in records}
        deployment = self.experiment.deployment
        if isinstance(self.random, SecretSource):
            used = self.random.used(len(records))
            # A bound that depends on the other replies would let a client change what they add.
            deployment = replace(deployment, median_bound=None)
        for t, clients in used.items():
            self.last_used.update(dict.fromkeys(clients, t))
        learner = make_learner(self.experiment, self.f)
        if deployment.secure_aggregation:
            yield self._secure_cohort(learner), self._evaluator()
            end_run(self.sites)  # reached only if all rounds are trained
            return
        cohort = SiteCohort(learner, self.sites, deployment, self.last_used, self.on_status)
        yield cohort, self._evaluator()

    def _secure_cohort(self, learner: Learner[Any, Any, Any, Any]) -> SecureCohort:
        return SecureCohort(learner, self.sites, self.last_used, self.on_status)

    def personal_accuracies(
        self, now: Snapshot[Any], memories: MutableMapping[int, Any]
    ) -> dict[str, list[float]]:
        raise AssertionError("personal is refused where the rows are at sites")

    def use(self, t: int, clients: Sequence[int]) -> None:
        if isinstance(self.random, SecretSource):
            self.random.use(t, clients)
        self.last_used.update(dict.fromkeys(clients, t))

    def client_name(self, k: int) -> str:
        return self.sites.names[k]

    def _evaluator(self) -> Evaluator:
        if not self._sites_evaluate:
            assert self.test_set is not None, "a server without data evaluates at its sites"
            return ImmediateEvaluator(self.test_set)
        deployment = self.experiment.deployment
        test_set = self.test_set if deployment.evaluate == "both" else None
        if deployment.secure_aggregation:
            return SecureEvaluator(self.sites, test_set, self.on_status)
        return SiteEvaluator(self.sites, deployment, test_set, self.on_status)

    @property
    def _tested(self) -> tuple[str, ...]:
        """Whose test images the sites' accuracies are about."""
        return tuple(self.sites.names) if self.sites.only_sum is None else (POOLED,)

    @property
    def _sites_evaluate(self) -> bool:
        return self.experiment.deployment.evaluate != "server"
