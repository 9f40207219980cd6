"""Clients stacked under vmap do what they do one by one."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedadb.algorithms import ALGORITHMS
from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Context, Round
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput, Fault
from fedadb.core.model import Model
from fedadb.core.optimizers import SGD, Adam, AdamW, Optimizer
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.local import Learner
from fedadb.engine.stacked import Stacked
from tests.engine.test_pool import PLAN, play
from tests.test_every_algorithm import CLIENTS, model, quick, shards


@pytest.mark.parametrize("name", ALGORITHMS)
def test_stacked_is_one_by_one_but_for_rounding(name: str) -> None:
    algorithm = quick(name)
    cohorts: list[Any] = [
        kind(Learner(algorithm, model(algorithm), PLAN), shards(), Stream(1))
        for kind in (OneByOne, Stacked)
    ]
    for plain, stacked in zip(*(play(algorithm, cohort) for cohort in cohorts), strict=True):
        torch.testing.assert_close(stacked.server.w.flat, plain.server.w.flat, atol=2e-5, rtol=1e-4)
        for ours, theirs in zip(stacked.replies, plain.replies, strict=True):
            assert ours.examples == theirs.examples
            measured = {key: float(value) for key, value in theirs.measured.items()}
            assert dict(ours.measured) == pytest.approx(measured, rel=1e-6, abs=0, nan_ok=True)
    assert sorted(cohorts[0].memories) == sorted(cohorts[1].memories)


@pytest.mark.parametrize("optimizer", [SGD(nesterov=True), Adam(eps=1e-3), AdamW(eps=1e-3)])
def test_stacked_takes_the_steps_of_the_plans_optimiser(optimizer: Optimizer) -> None:
    plan = replace(PLAN, optimizer=optimizer)
    plain, stacked = (
        list(play(FedAvg(), kind(Learner(FedAvg(), model(FedAvg()), plan), shards(), Stream(1))))
        for kind in (OneByOne, Stacked)
    )
    for one, other in zip(plain, stacked, strict=True):
        torch.testing.assert_close(other.server.w.flat, one.server.w.flat, atol=2e-5, rtol=1e-4)


@dataclass(frozen=True)
class RaisesIn(FedAvg):
    """Raises in one of its hooks, for clients that hold one class only."""

    hook: str = "batches"
    kind: type[Exception] = Fault

    def batches(self, f: Model, data: Shard, ctx: Context[Any], rng: Stream) -> Any:
        one_class = len(data.counts.nonzero()) == 1
        for step, batch in enumerate(ctx.plan.batches(data, rng)):
            if self.hook == "batches" and one_class and step == 1:
                raise self.kind("no more")
            yield batch

    def loss(self, f: Model, w: Vector, batch: Any, ctx: Context[Any]) -> Tensor:
        if self.hook == "loss":
            raise self.kind("no more")
        return super().loss(f, w, batch, ctx)

    def remember(self, w: Vector, upload: Weights, ctx: Context[Any]) -> tuple[()]:
        if self.hook == "remember":
            raise self.kind("no more")
        return ()


@pytest.mark.parametrize(("hook", "client"), [("batches", "1"), ("loss", "0"), ("remember", "0")])
def test_failures_name_client_and_round(hook: str, client: str) -> None:
    for kind in (Fault, BadInput):
        algorithm = RaisesIn(hook, kind)
        cohort = Stacked(Learner(algorithm, model(algorithm), PLAN), shards(), Stream(1))
        with pytest.raises(kind, match=rf"client {client}[\d, ]* in round 2: no more"):
            list(cohort(Weights(cohort.learner.f.weights()), [0, 1], Round(2, 9, CLIENTS, 60)))
    algorithm = RaisesIn(hook, ZeroDivisionError)
    cohort = Stacked(Learner(algorithm, model(algorithm), PLAN), shards(), Stream(1))
    with pytest.raises(ZeroDivisionError) as caught:
        list(cohort(Weights(cohort.learner.f.weights()), [0, 1], Round(2, 9, CLIENTS, 60)))
    assert any(f"client {client}" in note for note in caught.value.__notes__)


def test_a_client_without_rows_is_named() -> None:
    empty = [replace(shard, rows=shard.rows[:0]) for shard in shards()]
    cohort = Stacked(Learner(FedAvg(), model(FedAvg()), PLAN), empty, Stream(1))
    with pytest.raises(BadInput, match="client 2 in round 1: it has no rows to train on"):
        list(cohort(Weights(cohort.learner.f.weights()), [2], Round(1, 9, CLIENTS, 60)))
