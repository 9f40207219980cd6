"""Personal models: which rows count for a client, what it trains, and what it must not change."""

import math
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from fedadb.algorithms import ALGORITHMS
from fedadb.algorithms.fedadb import FedADB
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import LocalPlan
from fedadb.core.errors import BadInput
from fedadb.core.model import Domain, Model, assemble
from fedadb.core.optimizers import SGD
from fedadb.core.stream import Stream
from fedadb.core.transform import Transform
from fedadb.core.vector import Vector, Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.evaluate import TestSet
from fedadb.engine.local import ClientMemory, Learner
from fedadb.engine.personal import (
    PersonalLearner,
    PersonalStart,
    count_hits,
    has_own_head,
    own_accuracy,
    personal_accuracies,
)
from fedadb.engine.pool import Pool
from tests.conftest import toy_model, toy_shard
from tests.test_every_algorithm import CLIENTS, model, shards

PLAN = LocalPlan(2, 8, lr=0.05, weight_decay=1e-3, optimizer=SGD(momentum=0.8))
ROUND = Round(3, 9, CLIENTS, 60)
CELLS = [shard.counts.tolist() for shard in shards()]


class Shift(NamedTuple):
    w: Vector  # where the client ended last


@dataclass(frozen=True)
class Remembering(Algorithm[Weights, Weights, Shift]):
    """Starts at what the client remembers; its own head is the first one."""

    def memory(self, w: Vector) -> Shift:
        return Shift(w)

    def start(self, ctx: Context[Weights, Shift]) -> Vector:
        return ctx.memory.w

    def remember(self, w: Vector, upload: Weights, ctx: Context[Weights, Shift]) -> Shift:
        return Shift(w)

    def personal(self, f: Model, w: Vector, x: Tensor) -> Tensor:
        return f(w, x).logits


@dataclass(frozen=True)
class WrongShape(Algorithm):
    def personal(self, f: Model, w: Vector, x: Tensor) -> Tensor:
        return f(w, x).features


def toy_test_set(f: Model) -> TestSet:
    test = toy_shard(50, seed=1)
    return TestSet(f, test.examples, test.transform, 16)


def learner_of(algorithm: Algorithm[Any, Any, Any, Any]) -> PersonalLearner:
    f = model(algorithm)
    return PersonalLearner(algorithm, f, PLAN, test_set=toy_test_set(f))


def start_of(learner: PersonalLearner) -> PersonalStart[Any]:
    s = learner.algorithm.init(learner.f.weights())
    sent = learner.algorithm.broadcast(s, learner.f, Stream(2))
    return PersonalStart(learner.algorithm.deployed(s), sent)


# what counts


def test_an_accuracy_in_the_proportions_of_a_client_by_hand() -> None:
    """Class 0: 3 of 6 are right; class 1: 6 of 8; client lacks 2, test set lacks 3."""
    assert own_accuracy([3, 6, 9, 0], [6, 8, 9, 0], [6, 2, 0, 4]) == (6 * 0.5 + 2 * 0.75) / 8
    assert own_accuracy([3, 6], [6, 8], [6, 2, 9, 4]) == (6 * 0.5 + 2 * 0.75) / 8
    assert math.isnan(own_accuracy([3, 0], [6, 0], [0, 4]))


def test_a_client_like_the_test_set_has_the_overall_accuracy() -> None:
    hits, tested = [3, 7, 1], [10, 20, 5]
    assert own_accuracy(hits, tested, [2 * m for m in tested]) == pytest.approx(11 / 35)


def test_on_a_balanced_test_set_test_rows_have_the_weights_of_fedrod() -> None:
    """Σ_i π(y_i) 1[correct] / Σ_i π(y_i)."""
    rng = torch.Generator().manual_seed(0)
    y, right = torch.arange(60) % 3, torch.rand(60, generator=rng) < 0.6
    rows = torch.tensor([5, 0, 11])
    weight = (rows / rows.sum())[y]
    expected = (weight * right).sum() / weight.sum()
    hits = torch.bincount(y, weights=right.double()).int().tolist()
    assert own_accuracy(hits, [20, 20, 20], rows.tolist()) == pytest.approx(float(expected))


def test_hits_are_counted_by_cell_and_predictions_that_are_not_finite_are_wrong() -> None:
    f = toy_model()
    test = toy_test_set(f)
    rows, right = torch.arange(50), nn.functional.one_hot(test.examples.y, 3).float()
    position = iter(torch.split(rows, 16))
    assert count_hits(test, lambda x: right[next(position)], rows).tolist() == test.counts
    with_domains = replace(test, domain=torch.arange(50) // 25)
    position = iter(torch.split(rows, 16))
    hits = count_hits(with_domains, lambda x: right[next(position)], rows)
    assert hits.tolist() == with_domains.counts
    assert len(hits) == 6
    nan = torch.tensor([1.0, 0.0, math.nan])
    assert count_hits(test, lambda x: nan.expand(len(x), 3), rows).sum() == 0


def test_rows_of_other_classes_are_left_out_and_change_nothing() -> None:
    learner = learner_of(FedAvg())
    data = shards()[1]  # one class
    seen = []

    def predict(x: Tensor) -> Tensor:
        seen.append(len(x))
        return learner.f(learner.f.weights(), x).logits

    hits = count_hits(learner.test_set, predict, learner._test_rows(data))
    assert sum(seen) == learner.test_set.counts[2]
    everything = count_hits(learner.test_set, predict, torch.arange(50))
    assert hits.tolist() == [0, 0, int(everything[2])]


def test_with_batch_statistics_all_rows_are_passed() -> None:
    body = nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), nn.Flatten())
    f = assemble(body, FedAvg().heads, Domain.unbounded((1, 4, 4)), 3, Stream(0))
    learner = PersonalLearner(FedAvg(), f, PLAN, test_set=toy_test_set(f))
    assert learner._test_rows(shards()[1]).tolist() == list(range(50))


# what is trained


def test_fine_tuning_is_one_epoch_of_cross_entropy_by_the_plan() -> None:
    """The same epoch, step by step: v ← μ v + g + λ w, w ← w − η v."""
    learner = learner_of(FedADB(steps=2))
    start, data, f = start_of(learner), shards()[0], learner.f
    reply, _ = learner.train(data, start._replace(sent=()), None, ROUND, Stream(4))
    batches = list(replace(PLAN, epochs=1).batches(data, Stream(4).at("tuned")))
    assert [len(batch.y) for batch in batches] == [8, 6]
    w, v = start.w.flat.clone(), torch.zeros_like(start.w.flat)
    for batch in batches:
        at = w.clone().requires_grad_()
        loss = nn.functional.cross_entropy(f(Vector(at, f.layout), batch.x).logits, batch.y)
        v = 0.8 * v + torch.autograd.grad(loss, at)[0] + PLAN.weight_decay * w
        w = w - PLAN.lr * 0.99**2 * v
    torch.testing.assert_close(reply.w.flat, w)
    assert list(reply.measured) == ["tuned"]
    test = learner.test_set
    logits = f(reply.w, test.transform.normalise(test.examples.x)).logits
    right = (logits.argmax(1) == test.examples.y) & (test.examples.y != 2)  # it lacks class 2
    expected = torch.bincount(test.examples.y[right], minlength=3)
    assert torch.equal(reply.measured["tuned"], expected)
    assert expected.sum() > 0


def test_the_head_is_that_of_a_local_round_of_the_algorithm() -> None:
    learner = learner_of(FedADB(steps=2))
    start, data = start_of(learner), shards()[0]
    reply, _ = learner.train(data, start, None, ROUND, Stream(4))
    plain = Learner(learner.algorithm, learner.f, PLAN)
    trained, _ = plain.train(data, start.sent, None, ROUND, Stream(4).at("head"))
    local = count_hits(
        learner.test_set,
        lambda x: learner.f(trained.w, x, "L").logits,
        learner._test_rows(data),
    )
    assert torch.equal(reply.measured["head"], local)


def test_memories_are_read_and_not_changed() -> None:
    learner = learner_of(Remembering())
    start, data = start_of(learner), shards()[0]
    memory = ClientMemory(Shift(2 * start.w), ())
    kept = memory.algorithm.w.flat.clone()
    with_memory, after = learner.train(data, start, memory, ROUND, Stream(4))
    assert after is memory
    assert torch.equal(memory.algorithm.w.flat, kept)
    without, _ = learner.train(data, start, None, ROUND, Stream(4))
    assert torch.equal(with_memory.w.flat, without.w.flat)  # fine-tuning has no memory
    trained = [
        learner.fit(data, start.sent, m, ROUND, Stream(4).at("head")).w for m in (memory, None)
    ]
    assert not torch.equal(trained[0].flat, trained[1].flat)
    for reply, w in zip((with_memory, without), trained, strict=True):
        rows = learner._test_rows(data)
        hits = count_hits(learner.test_set, lambda x, w=w: learner.f(w, x).logits, rows)  # type: ignore[misc]
        assert torch.equal(reply.measured["head"], hits)


def test_augmentation_is_for_training_alone_and_repeats() -> None:
    learner = learner_of(FedAvg())
    rough = Transform((0.5,), (0.5,), zoom=0.6, pad=1, flip=True, cutout=2)
    data, start = replace(shards()[0], transform=rough), start_of(learner)._replace(sent=())
    learner = replace(learner, test_set=replace(learner.test_set, transform=rough))
    one, other = (learner.train(data, start, None, ROUND, Stream(4))[0] for _ in range(2))
    assert torch.equal(one.w.flat, other.w.flat)
    assert torch.equal(one.measured["tuned"], other.measured["tuned"])


# all clients


@pytest.mark.parametrize("algorithm", [FedADB(steps=2), Remembering()], ids=["fedadb", "memory"])
def test_worker_processes_give_the_same_numbers(algorithm: Any) -> None:
    learner = learner_of(algorithm)
    start = start_of(learner)
    memories = {2: learner.first_memory(2 * start.w)}  # the others have not taken part
    plain = OneByOne(learner, shards(), Stream(1), dict(memories))
    expected = personal_accuracies(plain, start, ROUND, learner.test_set, CELLS)
    assert list(expected) == ["global", "tuned", "head"]
    assert all(len(of_clients) == CLIENTS for of_clients in expected.values())
    assert len(set(expected["tuned"])) > 1
    with closing(Pool(learner, shards(), Stream(1), 2, learner.test_set, dict(memories))) as pool:
        assert personal_accuracies(pool, start, ROUND, learner.test_set, CELLS) == expected


def test_a_client_without_rows_has_no_accuracy_and_trains_nothing() -> None:
    learner = learner_of(FedAvg())
    none = replace(shards()[0], rows=torch.empty(0, dtype=torch.int64))
    data, cells = [shards()[0], none, shards()[2]], [CELLS[0], [0, 0, 0], CELLS[2]]
    cohort = OneByOne(learner, data, Stream(1))
    start = start_of(learner)._replace(sent=())
    found = personal_accuracies(cohort, start, ROUND, learner.test_set, cells)
    assert [[math.isnan(a) for a in of] for of in found.values()] == [[False, True, False]] * 2


# the hook


@pytest.mark.parametrize("name", ALGORITHMS)
def test_clients_of_fedadb_and_fedrod_have_heads_of_their_own(name: str) -> None:
    algorithm: Any = ALGORITHMS[name]()
    assert has_own_head(algorithm, model(algorithm)) == (name in {"fedadb", "fedrod"})


def test_fedadb_s_own_head_is_its_local_branch_if_that_is_trained() -> None:
    f, x = model(FedADB()), torch.randn(5, 1, 4, 4)
    logits = FedADB().personal(f, f.weights(), x)
    assert logits is not None
    assert torch.equal(logits, f(f.weights(), x, "L").logits)
    assert not has_own_head(FedADB(calibrate=False), f)


def test_logits_of_a_wrong_shape_are_refused() -> None:
    with pytest.raises(BadInput, match=r"WrongShape\.personal returns logits of shape \(2, 8\)"):
        has_own_head(WrongShape(), model(WrongShape()))
