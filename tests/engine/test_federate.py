from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.model import Model
from fedadb.core.schedules import Exponential
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights, is_finite
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.evaluate import evaluate
from fedadb.engine.federate import Snapshot, federate
from fedadb.engine.local import Learner
from tests.conftest import toy_model, toy_shard


class Tally(NamedTuple):
    rounds: torch.Tensor


@dataclass(frozen=True)
class Counting(Algorithm[Weights, Weights, Tally]):
    """FedAvg whose clients count the rounds they took part in."""

    def memory(self, w: Vector) -> Tally:
        return Tally(torch.tensor(0))

    def remember(self, w: Vector, upload: Weights, ctx: Context[Weights, Tally]) -> Tally:
        return Tally(ctx.memory.rounds + 1)


def shards(n: int = 4) -> list[Shard]:
    whole = toy_shard(rows=8 * n)
    return [Shard(whole.examples, torch.arange(8) + 8 * k, 3, whole.transform) for k in range(n)]


def start(f: Model, rounds: int) -> Snapshot[Weights]:
    return Snapshot(Round(0, rounds, 4, 40), Weights(f.weights()))


def test_rounds_are_counted_and_clients_are_those_chosen() -> None:
    f = toy_model()
    cohort = OneByOne(Learner(FedAvg(), f, LocalPlan(1, 4)), shards(), Stream(0))
    chosen = {1: [0, 2], 2: [3], 3: [1, 0]}
    seen = list(
        federate(
            cohort.learner, cohort, choose=chosen.__getitem__, rng=Stream(0), start=start(f, 3)
        )
    )
    assert [s.round for s in seen] == [Round(t, 3, 4, 40, 0.99 ** (t - 1)) for t in (1, 2, 3)]
    assert [s.clients for s in seen] == list(chosen.values())
    assert [len(s.replies) for s in seen] == [2, 1, 2]


def test_resuming_from_a_snapshot_is_the_same_as_not_stopping() -> None:
    f = toy_model()
    cohort = OneByOne(Learner(FedAvg(), f, LocalPlan(1, 4)), shards(), Stream(0))

    def rounds(begin: Snapshot[Weights]) -> list[Snapshot[Weights]]:
        return list(
            federate(cohort.learner, cohort, choose=lambda t: [t % 4], rng=Stream(0), start=begin)
        )

    whole = rounds(start(f, 5))
    rest = rounds(whole[1])
    assert torch.equal(whole[-1].server.w.flat, rest[-1].server.w.flat)


def test_the_order_in_which_clients_run_does_not_matter() -> None:
    f = toy_model()
    cohort = OneByOne(Learner(FedAvg(), f, LocalPlan(2, 3)), shards(), Stream(0))
    sent, now = Weights(f.weights()), Round(1, 1, 4, 40)
    forwards = list(cohort(sent, [0, 1, 2], now))
    backwards = list(cohort(sent, [2, 1, 0], now))
    for a, b in zip(forwards, backwards[::-1], strict=True):
        assert torch.equal(a.w.flat, b.w.flat)


def test_memory_belongs_to_the_client() -> None:
    f = toy_model()
    cohort = OneByOne(Learner(Counting(), f, LocalPlan(1, 4)), shards(), Stream(0))
    chosen = {1: [0, 2], 2: [0], 3: [0, 3]}
    for _ in federate(
        cohort.learner, cohort, choose=chosen.__getitem__, rng=Stream(0), start=start(f, 3)
    ):
        pass
    assert {k: int(memory.algorithm.rounds) for k, memory in cohort.memories.items()} == {
        0: 3,
        2: 1,
        3: 1,
    }


def test_a_client_that_diverges_is_named() -> None:
    f = toy_model()
    cohort = OneByOne(Learner(FedAvg(), f, LocalPlan(5, 4, lr=1e30)), shards(), Stream(0))
    with pytest.raises(Fault, match="FedAvg: client 2 diverged in round 1"):
        list(
            federate(cohort.learner, cohort, choose=lambda _: [2], rng=Stream(0), start=start(f, 3))
        )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", [0, 7, -1])
def test_a_number_that_is_not_finite_is_found_anywhere(value: float, where: int) -> None:
    numbers = torch.zeros(15)
    assert is_finite(numbers)
    numbers[where] = value
    assert not is_finite(numbers)
    assert is_finite(torch.zeros(0))
    assert is_finite(torch.arange(3))


def test_a_client_that_fails_is_named() -> None:
    f = toy_model()
    broken = [Shard(s.examples, s.rows + 1000, 3, s.transform) for s in shards()]
    cohort = OneByOne(Learner(FedAvg(), f, LocalPlan()), broken, Stream(0))
    with pytest.raises(IndexError) as caught:
        list(cohort(Weights(f.weights()), [1], Round(7, 9, 4, 40)))
    assert caught.value.__notes__ == ["This was client 1 in round 7."]


def test_shards_that_cannot_train_are_named() -> None:
    f, whole = toy_model(), toy_shard(rows=8, classes=4)
    empty = Shard(whole.examples, torch.arange(0), 3, whole.transform)
    beyond = Shard(whole.examples, torch.arange(8), 3, whole.transform)
    cohort = OneByOne(Learner(FedAvg(), f, LocalPlan()), [empty, beyond], Stream(0))
    with pytest.raises(BadInput, match="client 0 in round 7: it has no rows"):
        list(cohort(Weights(f.weights()), [0], Round(7, 9, 2, 40)))
    with pytest.raises(BadInput, match="client 1 in round 7: it has a row of class 3"):
        list(cohort(Weights(f.weights()), [1], Round(7, 9, 2, 40)))


def test_the_pieces_compute_in_one_thread_and_restore_the_setting() -> None:
    f, data = toy_model(), toy_shard()
    cohort = OneByOne(Learner(FedAvg(), f, LocalPlan(1, 4)), shards(), Stream(0))
    torch.set_num_threads(2)
    seen = []
    for _ in federate(
        cohort.learner, cohort, choose=lambda _: [0], rng=Stream(0), start=start(f, 2)
    ):
        seen.append(torch.get_num_threads())  # noqa: PERF401  # within the loop
    assert seen == [1, 1]
    assert torch.get_num_threads() == 2
    evaluate(f, f.weights(), data.examples, data.transform, 8)
    assert torch.get_num_threads() == 2


def test_the_learning_rate_of_a_round_follows_from_the_plan_alone() -> None:
    f = toy_model()
    plan = LocalPlan(1, 4, schedule=Exponential(0.5))
    cohort = OneByOne(Learner(FedAvg(), f, plan), shards(), Stream(0))
    begin = start(f, 3)._replace(round=Round(0, 3, 4, 40, lr_factor=7.0))  # has no effect
    rounds = federate(cohort.learner, cohort, choose=lambda _: [0], rng=Stream(0), start=begin)
    assert [now.round.lr_factor for now in rounds] == [1, 0.5, 0.25]
