"""Client-level differential privacy: the mechanism, what it forbids, and runs with it."""

import math
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fedadb.algorithms.fedadb import FedADB
from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.feddyn import FedDyn
from fedadb.core.algorithm import Algorithm, Round
from fedadb.core.errors import BadInput
from fedadb.core.replies import Reply
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.federate import Snapshot, federate, initial
from fedadb.engine.local import Learner
from fedadb.experiment.build import sample_clients
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run, start_run
from fedadb.experiment.settings import Federation
from fedadb.filters.accounting import Accountant
from fedadb.filters.dp import DP
from fedadb.filters.mechanism import Mechanism, SimulatedNoise
from fedadb.storage.records import Record, privacy_statement, read_records
from fedadb.storage.tensorfile import read_tensors
from tests.engine.test_pool import PLAN
from tests.filters.test_filters import reply, vector
from tests.test_every_algorithm import CLIENTS, model, shards


@dataclass(frozen=True)
class NoNoise:
    """Every number is the same."""

    value: float = 0.0

    def normals(self, t: int, name: str, n: int) -> Tensor:
        return torch.full((n,), self.value, dtype=torch.float64)

    def releases(self, t: int) -> int:
        return t


def released(mechanism: Mechanism, *replies: Reply[Any], u: Vector) -> Vector:
    made, _ = mechanism.release(replies, mechanism.init(), u, 1)
    (w,) = {id(one.w): one.w for one in made}.values()
    return w


U = vector(1.0, 2.0)
REPLIES = (reply(4.0, 6.0), reply(1.3, 2.4), reply(1.0, 0.0))  # updates (3, 4), (.3, .4), (0, −2)


# the mechanism


def test_the_sum_of_clipped_updates_is_divided_by_a_constant() -> None:
    """Clipped to S = 1: (.6, .8), (.3, .4), (0, −1), and their sum over qK = 4, not over 3."""
    mean = torch.tensor([0.225, 0.05])
    plain = Mechanism(1.0, 0.5, 4.0, NoNoise())
    torch.testing.assert_close(released(plain, *REPLIES, u=U).flat, U.flat + mean)
    noisy = Mechanism(1.0, 0.5, 4.0, NoNoise(1.0))
    torch.testing.assert_close(released(noisy, *REPLIES, u=U).flat, U.flat + mean + 0.125)


def test_nothing_tells_how_many_clients_took_part() -> None:
    """The number of replies and their rows are constants, and an empty round has noise too."""
    mechanism = Mechanism(1.0, 0.5, 4.0, NoNoise(1.0))
    for replies in ((), REPLIES[:1], REPLIES * 3):
        made, _ = mechanism.release(replies, mechanism.init(), U, 1)
        rows, seen = made.rows, list(made)
        assert rows == [1, 1, 1, 1]
        assert [int(one.examples) for one in seen] == [1, 1, 1, 1]
    torch.testing.assert_close(released(mechanism, u=U).flat, U.flat + 0.125)


def test_a_long_update_is_clipped_in_float64() -> None:
    """In float32 the norm would be too short, and longer updates than S would pass."""
    flat = torch.randn(3_000_000, generator=torch.Generator().manual_seed(0))
    u = Vector(torch.zeros_like(flat), vector(0.0).layout)
    long = Reply(Weights(Vector(flat, u.layout)), torch.tensor(3))
    w = released(Mechanism(1.0, 0.5, 1.0, NoNoise()), long, u=u)
    assert 1 - 2e-6 < float(w.flat.double().norm()) <= 1


def test_what_is_sent_beyond_weights_is_refused() -> None:
    """An algorithm of the user's own need not say what it uploads before it does."""

    class More(NamedTuple):
        w: Vector
        n: Tensor

    with pytest.raises(BadInput, match="these replies are a More, which has more than weights"):
        released(
            Mechanism(1.0, 0.5, 1.0, NoNoise()),
            Reply(More(U, torch.tensor(1)), torch.tensor(3)),
            u=U,
        )


def test_noise_is_independent_between_rounds_and_purposes() -> None:
    source = SimulatedNoise(Stream(3))
    many = [source.normals(t, name, 20_000) for t in (1, 2) for name in ("update", "count")]
    correlation = torch.corrcoef(torch.stack(many))
    assert (correlation - torch.eye(4)).abs().max() < 0.05
    assert all(abs(float(one.std()) - 1) < 0.02 for one in many)
    assert torch.equal(many[0], source.normals(1, "update", 20_000))


# a norm that follows a quantile


def test_the_norm_follows_the_share_of_updates_that_are_not_clipped() -> None:
    mechanism = Mechanism(0.1, 0.5, 10.0, NoNoise(), quantile=0.5)
    state, norms = mechanism.init(), []
    for within in (0, 0, 2, 5, 8):
        u, far = vector(0.0), float(state.norm) * 2
        lengths = [0.0] * within + [far] * (10 - within)
        _, state = mechanism.release([reply(x) for x in lengths], state, u, 1)
        norms.append(float(state.norm))
    expected = [0.110517, 0.122140, 0.129693, 0.129693, 0.122140]
    assert norms == pytest.approx(expected, abs=1e-6)


def test_the_norm_goes_up_if_updates_are_clipped() -> None:
    """With the wrong sign it would run to 0: this one stays around the norm of all updates."""
    mechanism = Mechanism(0.1, 0.5, 10.0, NoNoise(), quantile=0.5)
    state, norms = mechanism.init(), []
    for _ in range(60):
        _, state = mechanism.release([reply(5.0)] * 10, state, vector(0.0), 1)
        norms.append(float(state.norm))
    later = sorted({round(norm, 2) for norm in norms[45:]})
    assert later == [4.94, 5.46]


@pytest.mark.parametrize(("expected", "noise"), [(100, 1.005038), (20, 1.154701), (12, 1.809068)])
def test_both_results_together_cost_what_the_noise_multiplier_says(
    expected: float, noise: float
) -> None:
    found = Mechanism(0.1, 1.0, expected, NoNoise(), quantile=0.5).update_noise
    assert found == pytest.approx(noise, abs=1e-6)
    assert Mechanism(0.1, 1.0, expected, NoNoise()).update_noise == 1.0


def test_a_quantile_needs_many_clients() -> None:
    few = {"clients": 100, "participation": 0.1, "sampling": "poisson"}
    with pytest.raises(BadInput, match="noise multiplier below 1, a tenth of the 10 clients"):
        Experiment(federation=few, filter=[DP(quantile=0.5, noise=1.0)])
    accountant = Accountant(100, 0.1, poisson=True)
    with pytest.raises(BadInput, match="give norm and no quantile, or more clients"):
        DP(quantile=0.5, noise=1.0).mechanism(accountant, 100, NoNoise())
    Experiment(federation={**few, "clients": 101}, filter=[DP(quantile=0.5, noise=1.0)])


# sampling


def test_each_client_is_sampled_by_itself() -> None:
    federation = Federation(clients=100, participation=0.03, sampling="poisson")
    rounds = [sample_clients(federation, 0, t) for t in range(1, 401)]
    sizes = torch.tensor([float(len(one)) for one in rounds])
    assert abs(float(sizes.mean()) - 3) < 0.4
    assert abs(float(sizes.var()) - 2.91) < 1  # of a fixed number it would be 0
    assert rounds == [sample_clients(federation, 0, t) for t in range(1, 401)]
    assert rounds != [sample_clients(federation, 1, t) for t in range(1, 401)]
    assert any(not one for one in rounds)  # 5 % of the rounds are empty
    everyone = replace(federation, participation=1.0)
    assert sample_clients(everyone, 0, 1) == list(range(100))


# federations


def play(
    algorithm: Algorithm[Any, Any, Any, Any],
    chosen: list[list[int]],
    mechanism: Mechanism | None,
    start: Snapshot[Any] | None = None,
) -> list[Snapshot[Any]]:
    filters = (DP(norm=1.0, noise=1.0),) if mechanism else ()
    learner = Learner(algorithm, model(algorithm), PLAN, filters)
    before = Round(0, len(chosen), CLIENTS, CLIENTS)
    start = start or initial(learner, before, mechanism=mechanism)
    cohort = OneByOne(learner, shards(), Stream(1))
    choose = lambda t: chosen[t - 1]  # noqa: E731
    rounds = federate(
        learner, cohort, choose=choose, rng=Stream(1), start=start, mechanism=mechanism
    )
    return list(rounds)


def test_a_round_without_clients_moves_the_server_by_noise_alone() -> None:
    mechanism = Mechanism(1.0, 0.5, 2.0, SimulatedNoise(Stream(1)))
    (one,) = play(FedAvg(), [[]], mechanism)
    w = model(FedAvg()).weights()
    noise = 0.25 * mechanism.source.normals(1, "update", w.flat.numel())
    torch.testing.assert_close(one.server.w.flat, (w.flat.double() + noise).float())
    assert one.clients == []
    assert one.mechanism_state.releases == 1


def test_a_round_without_clients_and_without_noise_changes_nothing() -> None:
    first, second = play(FedAvg(), [[0, 1], []], None)
    assert torch.equal(first.server.w.flat, second.server.w.flat)


def test_a_client_that_diverges_adds_nothing_and_does_not_end_the_run() -> None:
    class Broken(FedAvg):
        def upload(self, f: Any, w: Vector, data: Any, ctx: Any) -> Weights:
            return Weights(w * (math.nan if len(data) == len(shards()[1]) else 1.0))

    mechanism = Mechanism(1.0, 0.5, 2.0, SimulatedNoise(Stream(1)))
    (one,) = play(Broken(), [[0, 1]], mechanism)
    (without,) = play(FedAvg(), [[0]], mechanism)
    assert one.lost == {1: "its weights are not finite"}
    assert torch.equal(one.server.w.flat, without.server.w.flat)


def test_feddyn_sums_over_the_mean_number_of_clients() -> None:
    """Its h becomes h − α/K · qK · g, whoever took part: their number is not to be known."""
    mechanism = Mechanism(1.0, 0.5, 2.0, SimulatedNoise(Stream(1)))
    (one,) = play(FedDyn(), [[0, 1, 2]], mechanism)
    g = one.server.mean - model(FedDyn()).weights()
    torch.testing.assert_close(one.server.h.flat, -0.1 / CLIENTS * 2 * g.flat)


def test_a_federation_with_the_filter_alone_is_refused() -> None:
    learner = Learner(FedAvg(), model(FedAvg()), PLAN, (DP(norm=1.0, noise=1.0),))
    start = initial(learner, Round(0, 1, CLIENTS, 60))
    cohort = OneByOne(learner, shards(), Stream(1))
    rounds = federate(learner, cohort, choose=lambda t: [0], rng=Stream(1), start=start)
    with pytest.raises(BadInput, match="adds no noise by itself"):
        next(rounds)


def test_anchors_are_functions_of_the_server_alone() -> None:
    """So they cost no privacy: two federations of other clients with the same w send the same."""
    algorithm = FedADB(steps=2)
    mechanism = Mechanism(1.0, 0.5, 2.0, SimulatedNoise(Stream(1)))
    some, others = (play(algorithm, [who], mechanism)[0] for who in ([0, 1], [2, 3]))
    assert not torch.equal(some.server.w.flat, others.server.w.flat)
    same = some._replace(round=others.round._replace(total=2))
    after = [play(algorithm, [[], who], mechanism, same)[0] for who in ([0], [1, 2, 3])]
    for one in after:
        for part in ("x", "c", "confidence"):
            sent, expected = (getattr(s.sent.anchors, part) for s in (one, after[0]))
            assert torch.equal(sent, expected)
        assert torch.equal(one.sent.tau, after[0].sent.tau)
    other = play(algorithm, [[], [0]], mechanism, others._replace(round=same.round))[0]
    assert not torch.equal(other.sent.anchors.x, after[0].sent.anchors.x)


# settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise": 1.0}, r"filter\.0\.norm is missing; give norm, or quantile"),
        ({"norm": 1.0}, r"filter\.0\.epsilon is missing; give epsilon, or noise"),
        ({"norm": 1.0, "noise": 1.0, "epsilon": 8.0}, "give one of them"),
        ({"norm": 1.0, "noise": 1.0, "rate": 0.1}, "needs quantile"),
        ({"quantile": 0.5, "noise": 1.0, "rate": 1e4}, "less than or equal to 1"),
        ({"norm": 1.0, "noise": 0.0}, r"greater than or equal to 0\.1"),
        ({"norm": 1.0, "noise": 1e6}, "less than or equal to 1000"),
        ({"norm": 1.0, "epsilon": 1e-9}, r"greater than or equal to 0\.01"),
        ({"norm": 1.0, "epsilon": 8.0, "delta": 1e-30}, r"greater than or equal to 0\.0{11}1"),
        ({"norm": 1.0, "noise": 1.0, "delta": 1.0}, "less than 1"),
    ],
)
def test_contradictions_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Experiment(filter=[{"name": "dp", **given}])


def test_settings_that_are_not_given_are_not_in_the_file() -> None:
    e = Experiment(filter=[{"name": "dp", "norm": 1.0, "epsilon": 8.0}])
    assert tomllib.loads(e.toml())["filter"] == [{"name": "dp", "norm": 1.0, "epsilon": 8.0}]
    assert Experiment.read(tomllib.loads(e.toml())).filter == e.filter


PRIVATE = {"name": "dp", "norm": 1.0, "noise": 1.0}
CONFLICTS: dict[str, tuple[dict[str, Any], str]] = {
    "single replies": ({"algorithm": "fedexp"}, "FedExP needs single replies; drop the filter"),
    "steps": ({"algorithm": "fednova"}, "FedNova needs single replies; drop the filter"),
    "classes": ({"algorithm": "feddisco"}, "FedDisco needs single replies; drop the filter"),
    "variates": ({"algorithm": "scaffold"}, "also send .*choose a method"),
    "curvature": ({"algorithm": "fedcurv"}, "also send .*choose a method"),
    "rows of feddyn": (
        {"algorithm": {"name": "feddyn", "variant": "official"}},
        "drop the filter, or use variant = 'reference'",
    ),
    "median": ({"filter": ["median", PRIVATE]}, "drop Median or DP"),
    "rows as weights": (
        {"filter": [{"name": "trimmed_mean", "f": 1, "weights": "rows"}, PRIVATE]},
        "drop TrimmedMean or DP",
    ),
    "quantile": ({"filter": [{"name": "clip", "quantile": 0.5}, PRIVATE]}, "drop Clip or DP"),
    "own filter": (
        {"filter": [{"name": "tests.filters.test_filters:Scale"}, PRIVATE]},
        "drop Scale or DP",
    ),
    "order": (
        {"filter": [PRIVATE, {"name": "norm_bound", "norm": 1.0}]},
        "put DP after NormBound",
    ),
    "twice": ({"filter": [PRIVATE, PRIVATE]}, "DP is there twice"),
    "record_clients": ({"record_clients": True}, "record_clients evaluates .*drop it"),
    "personal": ({"personal": True}, "personal evaluates .*drop it"),
    "validation": ({"validation": 0.1}, "validation evaluates .*drop it"),
    "sites test": ({"deployment": {"evaluate": "sites"}}, r"deployment\.evaluate .*drop it"),
    "both test": ({"deployment": {"evaluate": "both"}}, r"deployment\.evaluate .*drop it"),
    "rows": ({"deployment": {"rows": {"a": 3}}}, r"deployment\.rows counts .*drop it"),
    "share": ({"deployment": {"max_share": 0.3}}, r"deployment\.max_share counts .*drop it"),
    "reference": ({"federation": {"sampling": "reference"}}, "same clients in every run"),
    "alone": ({"federation": {"clients": 1, "participation": 1.0}}, "give delta, below 1"),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_what_is_not_private_is_refused_when_the_experiment_is_read(name: str) -> None:
    given, message = CONFLICTS[name]
    with pytest.raises(BadInput, match=message):
        Experiment.read({"filter": [PRIVATE], **given})


def test_what_treats_each_reply_by_itself_is_allowed() -> None:
    bound, int8 = {"name": "norm_bound", "norm": 9.0}, {"name": "int8"}
    Experiment.read({"filter": [{"name": "clip", "norm": 2.0}, bound, PRIVATE, int8]})
    for algorithm in ("fedadam", "fedacg", "feddyn", "moon", "fedadb"):
        Experiment.read({"algorithm": algorithm, "filter": [PRIVATE]})
    server = {"optimizer": {"name": "sgd", "momentum": 0.9}}
    Experiment.read({"server": server, "algorithm": "fedavg", "filter": [PRIVATE]})


def test_a_rule_that_needs_replies_is_refused_where_rounds_may_be_empty() -> None:
    federation = {"clients": 10, "participation": 0.9, "sampling": "poisson"}
    with pytest.raises(BadInput, match="a round may have none; use 'seeded'"):
        Experiment(filter=["median"], federation=federation)


# runs

FEDERATION = {"clients": 20, "participation": 0.1, "sampling": "poisson"}


def experiment(algorithm: Any = "fedavg", **given: Any) -> Experiment:
    table = {
        "rounds": 5,
        "seed": 0,
        "algorithm": algorithm,
        "local": {"epochs": 1},
        "federation": FEDERATION,
        "filter": [{"name": "dp", "norm": 0.02, "noise": 1.0}],
        "engine": {"workers": 1},
    }
    return Experiment.read({**table, **given})


def without_times(records: list[Record]) -> list[Record]:
    return [{k: v for k, v in r.items() if "seconds" not in k} for r in records]


@dataclass
class Finished:
    out: Path
    rounds: list[Record] = field(default_factory=list)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    out = tmp_path_factory.mktemp("dp") / "run"
    return Finished(out, run(experiment(), out).rounds)


@pytest.mark.integration
def test_every_record_has_epsilon_and_an_empty_round_counts(finished: Finished) -> None:
    accountant = Accountant(20, 0.1, poisson=True)
    delta = 20**-1.1
    assert [] in [record["clients"] for record in finished.rounds]
    for t, record in enumerate(finished.rounds, 1):
        assert record["epsilon"] == accountant.epsilon(1.0, t, delta)
        assert record["delta"] == delta
        assert record["noise_multiplier"] == 1.0
        assert record["clip_norm"] == 0.02
        assert record["privacy"] == "one client added or removed; simulated: no guarantee"
        assert (record["bytes_up"] == 0) == (record["clients"] == [])
    _, metadata = read_tensors(finished.out / "model.safetensors", "")
    assert metadata["privacy"] == privacy_statement(finished.rounds[-1])
    assert "simulated: no guarantee" in metadata["privacy"]


@pytest.mark.integration
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_was_interrupted_at_an_empty_round_resumes_bit_identically(
    finished: Finished, tmp_path: Path, workers: int
) -> None:
    e = experiment(engine={"workers": workers})
    empty = [record["clients"] for record in finished.rounds].index([])
    with start_run(e, tmp_path / "run") as active:
        for record in active.rounds:
            if record["round"] > empty:
                break
    resumed = run(e, tmp_path / "run")
    assert without_times(resumed.rounds) == without_times(finished.rounds)
    weights, _ = read_tensors(finished.out / "model.safetensors", "")
    for name, tensor in resumed.weights().items():
        assert torch.equal(tensor, weights[name])


@pytest.mark.integration
def test_a_norm_that_adapts_is_part_of_the_checkpoint(tmp_path: Path) -> None:
    adaptive = [{"name": "dp", "quantile": 0.5, "noise": 0.5}]
    e = experiment(filter=adaptive, rounds=3, federation={**FEDERATION, "participation": 0.4})
    whole = run(e, tmp_path / "whole").rounds
    with start_run(e, tmp_path / "run") as active:
        next(active.rounds)
    assert without_times(run(e, tmp_path / "run").rounds) == without_times(whole)
    norms = [record["clip_norm"] for record in read_records(tmp_path / "run" / "rounds.jsonl")]
    assert len({0.1, *norms}) == 4
    assert all(math.isfinite(norm) for norm in norms)


@pytest.mark.integration
def test_fedadb_promises_what_fedavg_does_and_shows_no_measurement(
    finished: Finished, tmp_path: Path
) -> None:
    """τ, γ and β are measured at clients."""
    rounds = run(experiment({"name": "fedadb", "steps": 2}), tmp_path / "run").rounds
    promised = ("epsilon", "delta", "privacy", "noise_multiplier")
    assert [[r[k] for k in promised] for r in rounds] == [
        [r[k] for k in promised] for r in finished.rounds
    ]
    assert not {"tau", "gamma", "beta", "anchor_confidence"} & rounds[0].keys()
    assert list((tmp_path / "run").glob("kept-*"))


@pytest.mark.integration
def test_poisson_sampling_without_noise_has_rounds_that_change_nothing(tmp_path: Path) -> None:
    rounds = run(experiment(filter=[], record_clients=True), tmp_path / "run").rounds
    empty = [record["clients"] for record in rounds].index([])
    assert empty > 0
    assert rounds[empty]["accuracy"] == rounds[empty - 1]["accuracy"]
    assert rounds[empty]["loss"] == rounds[empty - 1]["loss"]
    assert rounds[empty]["bytes_up"] == 0
    assert "in_local" in rounds[empty - 1]
    assert "in_local" not in rounds[empty]
