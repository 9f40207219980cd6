"""Filters between clients and server: the two ends, their order, and what they keep."""

import itertools
import math
import tomllib
import weakref
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from fedadb.algorithms import ALGORITHMS
from fedadb.algorithms.fedacg import FedACG
from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.feddyn import FedDyn
from fedadb.algorithms.scaffold import SCAFFOLD
from fedadb.core.algorithm import Round
from fedadb.core.errors import BadInput, Fault
from fedadb.core.filter import Filter, update_norm
from fedadb.core.replies import MissingReply, Reply
from fedadb.core.stream import Stream
from fedadb.core.vector import Layout, Vector, Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.federate import Snapshot, federate, initial
from fedadb.engine.local import Learner
from fedadb.engine.stacked import Stacked
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run, start_run
from fedadb.filters.clip import Clip
from fedadb.filters.norm_bound import NormBound
from fedadb.storage.tensorfile import read_tensors
from tests.conftest import toy_model
from tests.engine.test_pool import PLAN
from tests.test_every_algorithm import CLIENTS, model, shards

ROUND = Round(1, 9, 4, 60)
ROWS = sum(len(shard) for shard in shards())


def vector(*numbers: float) -> Vector:
    return Vector(torch.tensor(numbers), Layout(("w",), ((len(numbers),),)))


def reply(*numbers: float) -> Reply[Weights]:
    return Reply(Weights(vector(*numbers)), torch.tensor(3))


def sent_by(filter: Filter, sending: Reply[Any], u: Vector) -> Vector:
    after, _ = filter.outgoing(sending, filter.memory(u), u, ROUND)
    return after.w


def play(algorithm: Any, filters: tuple[Filter, ...], kind: Any = OneByOne) -> list[Snapshot[Any]]:
    learner = Learner(algorithm, model(algorithm), PLAN, filters)
    start = initial(learner, Round(0, 3, CLIENTS, ROWS))
    cohort = kind(learner, shards(), Stream(1))
    chosen = lambda t: [0, 2, 3]  # noqa: E731
    return list(federate(learner, cohort, choose=chosen, rng=Stream(1), start=start))


def test_clip_shortens_what_is_too_long_and_nothing_else() -> None:
    u = vector(1.0, 1.0, 1.0)
    torch.testing.assert_close(
        sent_by(Clip(norm=2.5), reply(4.0, 5.0, 1.0), u).flat, torch.tensor([2.5, 3.0, 1.0])
    )
    short = reply(4.0, 5.0, 1.0)
    assert sent_by(Clip(norm=5.0), short, u) is short.w
    still = reply(1.0, 1.0, 1.0)
    assert sent_by(Clip(norm=1e-30), still, u) is still.w
    for broken in (math.inf, math.nan):  # the server says that the client diverged
        assert not sent_by(Clip(norm=1.0), reply(broken, 0.0, 0.0), u).flat.isfinite().all()


def test_the_norm_of_a_long_update_is_not_too_short() -> None:
    """Summed in float32, it would be 0.04 % too short, and clipping would let 1.0004 through."""
    flat = torch.randn(11_200_000, generator=torch.Generator().manual_seed(0))
    u = Vector(torch.zeros_like(flat), Layout(("w",), (tuple(flat.shape),)))
    long = Reply(Weights(Vector(flat, u.layout)), torch.tensor(3))
    exact = float(flat.double().norm())
    assert update_norm(long, u) == pytest.approx(exact, rel=1e-9)
    clipped, _ = Clip(norm=1.0).outgoing(long, (), u, ROUND)
    assert 1 - 1e-6 < update_norm(clipped, u) <= 1


@pytest.mark.parametrize("name", ALGORITHMS)
def test_bounds_that_are_never_reached_change_no_bit(name: str) -> None:
    plain = play(ALGORITHMS[name](), ())
    filtered = play(ALGORITHMS[name](), (Clip(norm=1e30), NormBound(norm=1e30)))
    for a, b in zip(plain, filtered, strict=True):
        assert torch.equal(a.server.w.flat, b.server.w.flat)
        assert b.lost == {}


def test_an_update_is_what_the_client_changed_not_what_the_server_added() -> None:
    """FedACG sends u = w + λm: measured from w, momentum would count as the client's."""
    algorithm = FedACG(lam=0.9)
    ends = play(algorithm, (Clip(norm=1e-3),))
    steps = [(b.server.w - a.server.w).norm() for a, b in itertools.pairwise(ends)]
    assert max(steps) < 3e-3
    assert ends[-1].server.m.norm() > 1.5e-3


@dataclass(frozen=True)
class Scale(Filter):
    """Both ends: the client halves its update, the server takes it times three."""

    def outgoing(self, reply: Any, memory: Any, u: Vector, round: Round) -> Any:
        return reply.with_weights(u + 0.5 * (reply.w - u)), memory

    def incoming(
        self, replies: Iterable[Any], state: Any, u: Vector, round: Round
    ) -> Generator[Any, None, Any]:
        for one in replies:
            yield one.with_weights(u + 3.0 * (one.w - u))
        return state


def test_filters_apply_in_the_order_of_the_file() -> None:
    def length(*filters: Filter) -> float:
        learner = Learner(FedAvg(), toy_model(), PLAN, filters)
        cohort = OneByOne(learner, shards(), Stream(1))
        (one,) = cohort(Weights(learner.f.weights()), [0], ROUND)
        return update_norm(one, learner.f.weights())

    assert length(Clip(norm=0.01), Scale()) == pytest.approx(0.005, rel=1e-4)
    assert length(Scale(), Clip(norm=0.01)) == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize("algorithm", [FedAvg(), FedDyn()])
def test_a_dropped_reply_does_not_count(algorithm: Any) -> None:
    """The mean is that of the other clients, and the record says why one is missing."""
    lengths: dict[int, float] = {}

    @dataclass(frozen=True)
    class Measure(Filter):
        def outgoing(self, reply: Any, memory: Any, u: Vector, round: Round) -> Any:
            lengths[len(lengths)] = update_norm(reply, u)
            return reply, memory

    learner = Learner(algorithm, model(algorithm), PLAN, (Measure(),))
    start = initial(learner, Round(0, 1, CLIENTS, ROWS))
    list(OneByOne(learner, shards(), Stream(1))(Weights(start.server.w), [0, 2, 3], ROUND))
    shortest_two = sorted(lengths.values())[1]
    longest = [0, 2, 3][max(lengths, key=lambda i: lengths[i])]

    def last(chosen: list[int], *filters: Filter) -> Snapshot[Any]:
        bounded = Learner(algorithm, model(algorithm), PLAN, filters)
        cohort = OneByOne(bounded, shards(), Stream(1))
        before = initial(bounded, Round(0, 1, CLIENTS, ROWS))
        rng = Stream(1)
        (end,) = federate(bounded, cohort, choose=lambda t: chosen, rng=rng, start=before)
        return end

    dropped = last([0, 2, 3], NormBound(norm=shortest_two))
    others = last([k for k in (0, 2, 3) if k != longest])
    torch.testing.assert_close(dropped.server.w.flat, others.server.w.flat, rtol=1e-6, atol=1e-7)
    assert dropped.clients == others.clients
    assert len(dropped.replies) == 2
    assert list(dropped.lost) == [longest]
    assert "away from the received ones; norm_bound is" in dropped.lost[longest]


def test_a_round_without_a_usable_reply_ends_the_run() -> None:
    with pytest.raises(
        Fault, match=r"FedAvg: round 1 has 0 usable replies, but 1 are needed \(client 0"
    ):
        play(FedAvg(), (NormBound(norm=1e-12),))


def test_a_client_that_diverges_can_be_dropped() -> None:
    """Without a bound it ends the run."""

    @dataclass(frozen=True)
    class Breaks(Filter):
        def outgoing(self, reply: Any, memory: Any, u: Vector, round: Round) -> Any:
            broken = int(reply.examples) == len(shards()[2])
            return reply.with_weights(math.nan * reply.w) if broken else reply, memory

    with pytest.raises(Fault, match="client 2 diverged in round 1"):
        play(FedAvg(), (Breaks(),))
    assert play(FedAvg(), (Breaks(), NormBound(norm=1e9)))[-1].clients == [0, 3]


HOLDS_ALL = {"feddisco"}  # the weight of its first reply depends on what the last one reports


def test_a_server_holds_one_reply_at_a_time() -> None:
    alive: list[weakref.ref[Any]] = []
    most = 0

    def look(one: Reply[Any]) -> None:
        nonlocal most
        alive.append(weakref.ref(one.w.flat))
        most = max(most, sum(ref() is not None for ref in alive))

    for name in ALGORITHMS.keys() - HOLDS_ALL:
        algorithm = ALGORITHMS[name]()
        learner = Learner(algorithm, model(algorithm), PLAN, (Clip(norm=1e9), NormBound(norm=1e9)))
        cohort = OneByOne(learner, shards() * 5, Stream(1))
        start = initial(learner, Round(0, 1, 5 * CLIENTS, 5 * ROWS))
        clients = [k for k in range(5 * CLIENTS) if k % 4 != 1]
        alive.clear()
        for _ in federate(
            learner,
            cohort,
            choose=lambda t: clients,  # noqa: B023
            rng=Stream(1),
            start=start,
            inspect=look,
        ):
            pass
    assert most <= 2  # the one that is being added, and the one before it


class Residual(NamedTuple):
    e: Vector


class Longest(NamedTuple):
    norm: torch.Tensor


@dataclass(frozen=True)
class Coarse(Filter):
    """Sends the signs of an update and keeps the rest; the server clips by the longest so far."""

    step: float = 0.01

    def memory(self, w: Vector) -> Residual:
        return Residual(w.zeros())

    def outgoing(self, reply: Any, memory: Residual, u: Vector, round: Round) -> Any:
        wanted = reply.w - u + memory.e
        sent = self.step * wanted.map(torch.sign)
        return reply.with_weights(u + sent), Residual(wanted - sent)

    def init(self, w: Vector) -> Longest:
        return Longest(torch.tensor(0.0, dtype=torch.float64))

    def incoming(
        self, replies: Iterable[Any], state: Longest, u: Vector, round: Round
    ) -> Generator[Reply[Any] | MissingReply, None, Longest]:
        longest = state.norm
        for one in replies:
            longest = max(longest, torch.tensor(update_norm(one, u), dtype=torch.float64))
            yield one.with_weights(u + (one.w - u) / (1 + state.norm))
        return Longest(longest)


def experiment(**settings: Any) -> Experiment:
    return Experiment(
        **{
            "dataset": "digits",
            "rounds": 4,
            "model": {"name": "mlp", "hidden": [16]},
            "algorithm": "feddyn",
            "federation": {"clients": 6, "participation": 0.5},
            "local": {"epochs": 1, "lr": 0.02},
            "filter": [Coarse(), {"name": "clip", "norm": 5.0}],
            "engine": {"workers": 1},
            **settings,
        }
    )


def final(directory: Path) -> Any:
    return read_tensors(directory / "model.safetensors", "")[0]


def test_what_filters_keep_survives_an_interruption_and_worker_processes(tmp_path: Path) -> None:
    whole = run(experiment(), tmp_path / "whole")
    with start_run(experiment(), tmp_path / "resumed") as interrupted:
        next(interrupted.rounds)
        next(interrupted.rounds)
    run(experiment(engine={"workers": 2}), tmp_path / "resumed")
    ours, theirs = final(tmp_path / "whole"), final(tmp_path / "resumed")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    plain = run(experiment(filter=[]), tmp_path / "plain")
    assert plain.accuracy != whole.accuracy


@dataclass(frozen=True)
class Half(Filter):
    """Sends half of what it has and keeps the rest: unlike signs, this is smooth."""

    def memory(self, w: Vector) -> Residual:
        return Residual(w.zeros())

    def outgoing(self, reply: Any, memory: Residual, u: Vector, round: Round) -> Any:
        half = 0.5 * (reply.w - u + memory.e)
        return reply.with_weights(u + half), Residual(half)


def test_filters_work_in_a_stacked_cohort() -> None:
    filters = (Half(), Clip(norm=0.05))
    without = play(FedDyn(), ())[-1].server.w
    plain, stacked = play(FedDyn(), filters), play(FedDyn(), filters, Stacked)
    for a, b in zip(plain, stacked, strict=True):
        torch.testing.assert_close(a.server.w.flat, b.server.w.flat, atol=2e-5, rtol=1e-4)
    assert (plain[-1].server.w - without).norm() > 0.1


@dataclass(frozen=True)
class Replaces(Filter):
    replaces_replies = True


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"filter": [{"name": "clipp", "norm": 1.0}]}, r"filter.0 = 'clipp': is not known; did"),
        ({"filter": [{"name": "clip"}]}, r"filter.0.norm is missing; give norm, or quantile"),
        ({"filter": [{"name": "clip", "norm": 0.0}]}, r"filter.0.norm = 0.0: must be greater"),
        ({"filter": "clip"}, "filter = 'clip': must be a list of tables"),
        ({"filter": {"name": "clip", "norm": 1.0}}, "must be a list of tables"),
        (
            {"filter": [Replaces()], "algorithm": "fedexp"},
            "replaces replies by a result of several, but FedExP",
        ),
        (
            {"filter": [Replaces()], "algorithm": "scaffold"},
            "replaces the weights of replies, but clients of SCAFFOLD also send c; choose",
        ),
        (
            {"filter": [{"name": "clip", "norm": 1.0, "quantile": 0.5}]},
            "filter.0.quantile = 0.5: norm is given too; give one",
        ),
        (
            {"filter": [Replaces()], "algorithm": "fednova"},
            "replaces replies by a result of several, but FedNova",
        ),
        ({"deployment": {"norm_bound": 5.0}}, "deployment.norm_bound is now a filter.* norm = 5"),
        (
            {"server": {"optimizer": "adam"}, "algorithm": "feddyn"},
            "server.optimizer: FedDyn has a server step of its own",
        ),
    ],
)
def test_wrong_settings_are_refused_when_the_experiment_is_read(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        Experiment(**given)


def test_filters_are_part_of_the_resolved_experiment(tmp_path: Path) -> None:
    e = experiment(filter=[{"name": "norm_bound", "norm": 2.0}, Clip(norm=1.0)])
    assert e.filter == (NormBound(norm=2.0), Clip(norm=1.0))
    assert Experiment.read(e.table()) == e
    assert tomllib.loads(e.toml())["filter"][0] == {"name": "norm_bound", "norm": 2.0}


def test_a_clipped_update_is_never_longer_than_the_bound() -> None:
    """U + s·Δ is rounded: the server's bound of the same norm must not drop it."""
    rng = torch.Generator().manual_seed(0)
    layout = Layout(("w",), ((1000,),))
    for _ in range(100):
        u = Vector(torch.randn(1000, generator=rng), layout)
        w = Vector(u.flat + 0.1 * torch.randn(1000, generator=rng), layout)
        clipped = sent_by(Clip(norm=0.3), Reply(Weights(w), torch.tensor(3)), u)
        assert 0.3 * (1 - 1e-5) < update_norm(Reply(Weights(clipped), torch.tensor(3)), u) <= 0.3


def test_a_filter_that_forgets_its_duties_is_named() -> None:
    @dataclass(frozen=True)
    class Forgets(Filter):
        def incoming(
            self, replies: Iterable[Any], state: Any, u: Vector, round: Round
        ) -> Generator[Any, None, Any]:
            yield from replies

    @dataclass(frozen=True)
    class Swallows(Filter):
        def incoming(
            self, replies: Iterable[Any], state: Any, u: Vector, round: Round
        ) -> Generator[Any, None, Any]:
            yield from list(replies)[1:]
            return state

    with pytest.raises(BadInput, match=r"Forgets\.incoming must return its state: a tuple, not a"):
        play(FedAvg(), (Forgets(),))
    with pytest.raises(BadInput, match="must yield a reply for each reply"):
        play(FedAvg(), (Swallows(),))


def test_an_upload_is_checked_as_a_whole() -> None:
    """A control variate that is not finite would stay in the server's state for ever."""

    @dataclass(frozen=True)
    class Spoils(Filter):
        def outgoing(self, reply: Any, memory: Any, u: Vector, round: Round) -> Any:
            upload = reply.upload._replace(c=math.nan * reply.upload.c)
            return reply._replace(upload=upload), memory

    with pytest.raises(Fault, match=r"SCAFFOLD: client 0 diverged in round 1: its c are no longer"):
        play(SCAFFOLD(), (Spoils(),))
