"""Compressed uploads: their numbers, their bytes, and the same bits in every cohort."""

import math
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fedadb.algorithms import ALGORITHMS
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Algorithm, Round
from fedadb.core.errors import BadInput, Fault
from fedadb.core.filter import Compressor, Filter
from fedadb.core.packing import pack, size
from fedadb.core.replies import MissingReply
from fedadb.core.stream import Stream
from fedadb.core.vector import Layout, Vector, Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.evaluate import TestSet
from fedadb.engine.federate import Snapshot, federate, initial
from fedadb.engine.local import Learner
from fedadb.engine.memories import Memories
from fedadb.engine.pool import Pool
from fedadb.engine.stacked import Stacked
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.run import run, start_run
from fedadb.filters.clip import Clip
from fedadb.filters.int8 import Int8, quantise
from fedadb.filters.norm_bound import NormBound
from fedadb.filters.top_k import TopK, TopKUpdate, largest
from fedadb.models.lenet import LeNet
from fedadb.models.resnet import ResNet18
from tests.conftest import toy_shard
from tests.engine.test_pool import PLAN
from tests.filters.test_filters import ROWS, final, vector
from tests.test_every_algorithm import CLIENTS, model, shards

V = torch.tensor([0.9, -0.35, 0.1, 0.004, -1.27])
LENET, RESNET = 44_511, 11_173_962  # numbers; of 11 classes of grey images, and of 10 of colour

REFUSED = {"scaffold", "fednova", "fedcurv", "feddisco"}  # clients upload more than weights


def sent_by(
    one: Compressor, w: Vector, u: Vector, memory: Any = None, seed: int = 0, t: int = 1
) -> Any:
    kept = one.memory(u) if memory is None else memory
    return one.compress(w, u, kept, Round(t, 9, CLIENTS, ROWS), Stream(seed))


def compressed(one: Compressor, *update: float) -> Tensor:
    """What the server receives of an update from zero."""
    w = vector(*update)
    sent, _ = sent_by(one, w, w.zeros())
    return w.flat if isinstance(sent, Weights) else one.restore(sent, w.zeros()).flat


# int8


def test_int8_rounds_as_worked_out_by_hand() -> None:
    """The step is 1.27 / 127 = .01, so Δ / a = (90, −35, 10, .4, −127)."""
    a, q = quantise(V, torch.tensor([0.3, 0.6, 0.5, 0.5, 0.9]))
    assert float(a) == pytest.approx(0.01, rel=1e-6)
    assert q.dtype == torch.int8
    assert q.tolist() == [90, -35, 10, 0, -127]
    _, q = quantise(V, torch.tensor([0.3, 0.6, 0.5, 0.6, 0.0]))
    assert q[3] == 1
    assert q[4] == -127  # not −128, although a was rounded


def test_int8_is_unbiased() -> None:
    """The fourth number is 0 with probability .6 and a with .4: mean .004, variance 2.4e-5."""
    draws, exact = 200_000, V.double()
    uniform = torch.rand(draws, 5, dtype=torch.float64, generator=Stream(3).generator())
    a, q = quantise(V.expand(draws, 5), uniform)
    restored = float(a) * q.double()
    fraction = exact / float(a) % 1
    deviation = float(a) * torch.sqrt(fraction * (1 - fraction) / draws)
    assert ((restored.mean(0) - exact).abs() <= 4 * deviation + 1e-8).all()
    assert float(restored[:, 3].var()) == pytest.approx(2.4e-5, rel=0.02)


def test_int8_has_a_step_per_tensor() -> None:
    w = Vector.of({"body": V[:2], "head": V[2:4], "rest": torch.zeros(2, 2)})
    sent, _ = sent_by(Int8(), w, w.zeros())
    torch.testing.assert_close(sent.a, torch.tensor([0.9, 0.1, 0.0]) / 127)
    torch.testing.assert_close(Int8().restore(sent, w.zeros()).flat, w.flat, atol=0.9 / 127, rtol=0)


@pytest.mark.parametrize(
    "update", [(0.0, 0.0, 0.0), (0.0,), (-7.5,), (1e-40, -1e-40), (1e-45, 0.0)]
)
def test_int8_of_zeros_of_one_number_and_of_tiny_ones(update: tuple[float, ...]) -> None:
    restored = compressed(Int8(), *update)
    # float32 has steps of 1.4e-45 near zero
    torch.testing.assert_close(restored, torch.tensor(update), rtol=1e-3, atol=1e-43)


def test_int8_has_the_expected_error_on_a_gaussian() -> None:
    """About a / √6 per number: 1.3 % of the norm if the largest of 44 511 is 4.1, as is usual."""
    v = torch.randn(LENET, generator=torch.Generator().manual_seed(0))
    w = Vector(v, Layout(("w",), ((LENET,),)))
    sent, _ = sent_by(Int8(), w, w.zeros())
    error = (Int8().restore(sent, w.zeros()) - w).norm() / w.norm()
    assert float(error) == pytest.approx(float(v.abs().max()) / 127 / math.sqrt(6), rel=0.02)
    assert 0.012 < float(error) < 0.016


@pytest.mark.parametrize("broken", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("one", [Int8(), TopK(share=0.5)])
def test_what_diverged_stays_recognisable(one: Compressor, broken: float) -> None:
    assert not compressed(one, 0.0, broken, 1.0, 0.0).isfinite().all()


# top_k


def test_top_k_sends_what_it_left_out_later() -> None:
    u, w = vector(0.0, 0.0, 0.0, 0.0), vector(1.0, -0.6, 0.3, 0.1)
    one = TopK(share=0.25)
    memory: Any = None
    found = []
    for _ in range(4):
        sent, memory = sent_by(one, w, u, memory)
        found.append((int(sent.positions), float(sent.values)))
    assert found == [(0, 1.0), (1, pytest.approx(-1.2)), (0, 2.0), (1, pytest.approx(-1.2))]
    torch.testing.assert_close(memory.e.flat, torch.tensor([1.0, 0.0, 1.2, 0.4]))


def test_top_k_loses_nothing() -> None:
    """In each round, what is sent and what is kept are exactly e + Δ; in sum, they are Σ Δ."""
    rng = torch.Generator().manual_seed(1)
    layout = Layout(("w",), ((1000,),))
    u, one = Vector(torch.zeros(1000), layout), TopK(share=0.03)
    memory = one.memory(u)
    updates, arrived = torch.zeros(1000), torch.zeros(1000)
    for _ in range(20):
        w = Vector(torch.randn(1000, generator=rng), layout)
        sent, kept = sent_by(one, w, u, memory)
        received = one.restore(sent, u)
        assert torch.equal((received + kept.e).flat, (memory.e + (w - u)).flat)
        assert len(sent.positions) == 30
        assert kept.e.flat.abs().max() <= sent.values.abs().min()
        memory, updates, arrived = kept, updates + w.flat, arrived + received.flat
    torch.testing.assert_close(arrived + memory.e.flat, updates, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("decay", "t", "sent", "left"),
    [
        (None, 4, (1, -1.2), (1.0, 0.0, 0.6, 0.2)),
        (0.9, 2, (1, -1.2), (1.0, 0.0, 0.6, 0.2)),  # it was not away
        (0.9, 4, (1, -1.086), (1.0, 0.0, 0.543, 0.181)),  # e · 0.9²
        (0.0, 4, (0, 1.0), (0.0, -0.6, 0.3, 0.1)),  # e is forgotten
        (0.0, 2, (1, -1.2), (1.0, 0.0, 0.6, 0.2)),
    ],
)
def test_what_was_not_sent_decays_while_a_client_is_away(
    decay: float | None, t: int, sent: tuple[int, float], left: tuple[float, ...]
) -> None:
    """In round 1 it sends 1 of (1, −.6, .3, .1), and learns the same when it is back."""
    u, w = vector(0.0, 0.0, 0.0, 0.0), vector(1.0, -0.6, 0.3, 0.1)
    one = TopK(share=0.25, decay=decay)
    _, memory = sent_by(one, w, u, t=1)
    again, after = sent_by(one, w, u, memory, t=t)
    assert [int(again.positions), float(again.values)] == pytest.approx(sent)
    torch.testing.assert_close(after.e.flat, torch.tensor(left))


def test_a_run_without_decay_keeps_its_name() -> None:
    """`top_k` had no `decay` before, and a name is made of all settings."""
    plain = experiment(filter=["top_k"])
    assert plain.table()["filter"] == [{"name": "top_k", "share": 0.01}]
    assert run_name(plain) != run_name(experiment(filter=[{"name": "top_k", "decay": 0.5}]))


def test_of_equal_numbers_the_first_are_sent() -> None:
    assert largest(torch.tensor([1.0, -2.0, 2.0, -1.0, 1.0]), 3).tolist() == [0, 1, 2]
    assert largest(torch.zeros(5), 2).tolist() == [0, 1]
    assert largest(torch.tensor([1.0, math.nan, math.inf, 3.0]), 2).tolist() == [1, 2]
    many = torch.ones(10_000)
    assert torch.equal(largest(many, 5_000), torch.arange(5_000))


def test_k_is_a_share_rounded_up() -> None:
    assert [TopK(share=s).count(100) for s in (0.001, 0.01, 0.07, 0.071, 1.0)] == [1, 1, 7, 8, 100]


@pytest.mark.parametrize(
    "positions", [[-1, 3], [3, 9], [3, 3], [4, 3], [0, 2_000_000_000], [-(2**31), 0]]
)
def test_positions_that_no_client_sends_are_refused(positions: list[int]) -> None:
    sent = TopKUpdate(torch.tensor(positions, dtype=torch.int32), torch.ones(2))
    with pytest.raises(Fault, match="its positions do not increase from 0 to at most 8"):
        TopK().restore(sent, vector(*[0.0] * 9))


# bytes


def numbers_of(architecture: Any, shape: tuple[int, ...], classes: int) -> Vector:
    body = architecture.body(shape)
    tensors = dict(body.named_parameters())
    features = body(torch.zeros(2, *shape)).shape[1]
    tensors["head.weight"], tensors["head.bias"] = (
        torch.zeros(classes, features),
        torch.zeros(classes),
    )
    return Vector.of(tensors)


@pytest.mark.parametrize(
    ("one", "lenet", "resnet"), [(Int8(), 44_551, 11_174_210), (TopK(), 3_568, 893_920)]
)
def test_the_bytes_of_an_upload(one: Compressor, lenet: int, resnet: int) -> None:
    for architecture, shape, classes, count, expected in (
        (LeNet(), (1, 28, 28), 11, LENET, lenet),
        (ResNet18(), (3, 32, 32), 10, RESNET, resnet),
    ):
        w = numbers_of(architecture, shape, classes)
        assert w.flat.numel() == count
        assert size(sent_by(one, w, w.zeros())[0]) == expected


# rounds


def learner(filters: tuple[Filter, ...], algorithm: Any = None) -> Learner[Any, Any, Any, Any]:
    algorithm = algorithm or FedAvg()
    return Learner(algorithm, model(algorithm), PLAN, filters)


def play(one: Learner[Any, Any, Any, Any], cohort: Any, rounds: int = 3) -> list[Snapshot[Any]]:
    start = initial(one, Round(0, rounds, CLIENTS, ROWS))
    return list(
        federate(
            one,
            cohort,
            choose=lambda t: [3, 0, 2, 1][: 2 + t % 3],
            rng=Stream(1),
            start=start,
            inspect=lambda reply: reply.w.flat.clone(),
        )
    )


def one_by_one(*filters: Filter, kind: Any = OneByOne) -> list[Snapshot[Any]]:
    return play(learner(filters), kind(learner(filters), shards(), Stream(1)))


CHAINS: list[tuple[Filter, ...]] = [
    (Clip(norm=0.2), Int8(), NormBound(norm=9.0)),
    (NormBound(norm=9.0), Clip(norm=0.2), TopK(share=0.1)),
]


@pytest.mark.parametrize("filters", CHAINS)
def test_workers_are_bit_identical_to_one_process(filters: tuple[Filter, ...]) -> None:
    one = learner(filters)
    plain = OneByOne(one, shards(), Stream(1))
    expected = play(one, plain)
    test = toy_shard(50)
    test_set = TestSet(one.f, test.examples, test.transform, batch_size=8)
    with closing(Pool(one, shards(), Stream(1), 2, test_set)) as cohort:
        for ours, theirs in zip(play(one, cohort), expected, strict=True):
            assert torch.equal(ours.server.w.flat, theirs.server.w.flat)
            for mine, other in zip(ours.replies, theirs.replies, strict=True):
                assert mine.bytes == other.bytes
                assert torch.equal(mine.inspected, other.inspected)
        assert sorted(cohort.memories) == sorted(plain.memories)
        for k, memory in plain.memories.items():
            ours_packed = pack(cohort.memories[k])
            assert all(torch.equal(t, ours_packed[name]) for name, t in pack(memory).items())


@pytest.mark.parametrize("filters", CHAINS)
def test_a_stacked_cohort_compresses_with_the_same_random_numbers(
    filters: tuple[Filter, ...],
) -> None:
    """Its sums differ by rounding, so a few numbers may fall on another step."""
    exact, stacked = one_by_one(*filters), one_by_one(*filters, kind=Stacked)
    for a, b in zip(exact, stacked, strict=True):
        assert [note.bytes for note in a.replies] == [note.bytes for note in b.replies]
        torch.testing.assert_close(a.server.w.flat, b.server.w.flat, atol=1e-2, rtol=0)
    different = (exact[0].server.w - stacked[0].server.w).flat.abs() > 2e-5
    assert float(different.float().mean()) < 0.02


def test_replies_are_small_and_the_server_sees_weights() -> None:
    plain = one_by_one()
    for one, part in ((Int8(), 0.30), (TopK(share=0.1), 0.25)):
        small = one_by_one(one)
        assert small[0].replies[0].bytes < part * plain[0].replies[0].bytes
        for a, b in zip(plain[0].replies, small[0].replies, strict=True):
            assert a.inspected.shape == b.inspected.shape
            assert not torch.equal(a.inspected, b.inspected)


def test_the_batches_do_not_depend_on_int8() -> None:
    plain, rounded = one_by_one(), one_by_one(Int8())
    u = model(FedAvg()).weights().flat
    for a, b in zip(plain[0].replies, rounded[0].replies, strict=True):
        step = (a.inspected - u).abs().max() / 127
        assert (a.inspected - b.inspected).abs().max() <= step * (1 + 1e-4)


def test_clients_and_rounds_have_random_numbers_of_their_own() -> None:
    w = vector(*V.tolist())
    draws = [int(sent_by(Int8(), w, w.zeros(), seed=seed)[0].q[3]) for seed in range(20)]
    assert set(draws) == {0, 1}
    assert draws == [int(sent_by(Int8(), w, w.zeros(), seed=seed)[0].q[3]) for seed in range(20)]


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - REFUSED - {"feddyn"}))
def test_a_share_of_one_changes_no_bit(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    whole, plain = learner((TopK(share=1.0),), algorithm), learner((), algorithm)
    ours = play(whole, OneByOne(whole, shards(), Stream(1)), rounds=2)
    theirs = play(plain, OneByOne(plain, shards(), Stream(1)), rounds=2)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.server.w.flat, b.server.w.flat)
        assert [note.bytes for note in a.replies] == [note.bytes for note in b.replies]


def experiment(**settings: Any) -> Experiment:
    return Experiment(
        **{
            "dataset": "digits",
            "rounds": 4,
            "model": {"name": "mlp", "hidden": [16]},
            "algorithm": "fedavg",
            "federation": {"clients": 6, "participation": 0.5},
            "local": {"epochs": 1, "lr": 0.02},
            "engine": {"workers": 1},
            **settings,
        }
    )


@pytest.mark.parametrize("name", ["int8", "top_k", "top_k with decay"])
def test_a_resumed_run_is_bit_identical(name: str, tmp_path: Path) -> None:
    small = {"name": "top_k", "decay": 0.5} if "decay" in name else name
    e = experiment(filter=[{"name": "clip", "norm": 1.0}, small])
    whole = run(e, tmp_path / "whole")
    with start_run(e, tmp_path / "resumed") as interrupted:
        next(interrupted.rounds)
        next(interrupted.rounds)
    resumed = run(experiment(filter=e.filter, engine={"workers": 2}), tmp_path / "resumed")
    ours, theirs = final(tmp_path / "whole"), final(tmp_path / "resumed")
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    uploaded = [record["bytes_up"] for record in whole.rounds]
    assert uploaded == [record["bytes_up"] for record in resumed.rounds]
    numbers = sum(t.numel() for t in ours.values())
    rows = 8  # the bytes of n_k
    expected = numbers + 4 * len(ours) if name == "int8" else 8 * math.ceil(0.01 * numbers)
    assert uploaded == [expected + rows] * 4


@dataclass(frozen=True)
class DropsFirst(Filter):
    """The server does not use the first reply of round 2."""

    def incoming(
        self, replies: Iterable[Any], state: Any, u: Vector, round: Round
    ) -> Generator[Any, None, Any]:
        for i, one in enumerate(replies):
            yield MissingReply("a test") if (round.t, i) == (2, 0) else one
        return state


def test_a_dropped_reply_restores_what_was_not_sent(tmp_path: Path) -> None:
    one = learner((TopK(share=0.1), DropsFirst()))
    w = one.f.weights()
    memories: Memories[Any] = Memories(tmp_path, one.first_memory(w), w, {})
    start = initial(one, Round(0, 3, CLIENTS, ROWS))
    cohort = OneByOne(one, shards(), Stream(1), memories)
    kept = []
    for now in federate(one, cohort, choose=lambda t: [0, 2], rng=Stream(1), start=start):
        memories.commit(now.clients)
        kept.append([memories[k].filters[0].e.flat for k in (0, 2)])
    first, second, third = kept
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])
    assert not torch.equal(second[0], third[0])


# what is refused


class Own(NamedTuple):
    w: Vector
    more: Tensor


@dataclass(frozen=True)
class NotAnnotated(Algorithm[Any, Any, Any, Any]):
    def upload(self, f, w, data, ctx):  # type: ignore[no-untyped-def]
        return Own(w, torch.zeros(1))


@dataclass(frozen=True)
class Forgets(Compressor):
    def compress(self, w: Vector, u: Vector, memory: Any, round: Round, rng: Stream) -> Any:
        return w


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"filter": [{"name": "top_k", "share": 0.0}]}, r"filter.0.share = 0.0: must be greater"),
        ({"filter": [{"name": "top_k", "share": 1.5}]}, r"filter.0.share = 1.5: must be less"),
        ({"filter": [{"name": "int8", "bits": 4}]}, r"filter.0.bits"),
        ({"filter": ["int8", "top_k"]}, "Int8 and TopK both compress uploads; keep one"),
        ({"filter": ["int8", "int8"]}, "Int8 and Int8 both compress uploads; keep one"),
        (
            {"filter": ["int8", {"name": "clip", "norm": 1.0}]},
            "Clip changes a client's update, so it must come before Int8, which compresses it",
        ),
        *(
            (
                {"filter": ["top_k"], "algorithm": name},
                "TopK compresses weights, but clients of .* upload more than weights; drop",
            )
            for name in sorted(REFUSED)
        ),
        (
            {"filter": ["int8"], "algorithm": "feddyn"},
            "Int8 changes the updates .*, but clients of FedDyn remember theirs unchanged; drop",
        ),
    ],
)
def test_wrong_settings_are_refused_when_the_experiment_is_read(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        Experiment(**{"dataset": "digits", **given})


def test_an_upload_that_is_not_annotated_is_refused_when_it_is_made() -> None:
    one = learner((Int8(),), NotAnnotated())
    with pytest.raises(BadInput, match="Int8 compresses weights, but the upload is a Own"):
        play(one, OneByOne(one, shards(), Stream(1)))


def test_a_compressor_that_forgets_its_memory_is_named() -> None:
    one = learner((Forgets(),))
    with pytest.raises(
        BadInput, match=r"Forgets\.compress must return a NamedTuple and its memory"
    ):
        play(one, OneByOne(one, shards(), Stream(1)))
