"""What hooks can do beyond a loss: other starts, passes over the rows, uploads of their own."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fedadb.algorithms.fedavg import FedAvg
from fedadb.core.algorithm import Algorithm, Context, Round, broadcast_kind
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput
from fedadb.core.model import Model
from fedadb.core.optimizers import SGD
from fedadb.core.replies import Reply
from fedadb.core.server_optimizers import ServerAdam, ServerSGD
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.evaluate import TestSet
from fedadb.engine.federate import Snapshot, federate, initial
from fedadb.engine.local import Learner
from fedadb.engine.pool import Pool
from fedadb.engine.stacked import Stacked
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run, start_run
from fedadb.storage.records import read_records
from fedadb.storage.tensorfile import read_tensors
from tests.engine.test_pool import PLAN, require_equal
from tests.test_every_algorithm import CLIENTS, model, shards

ROWS = sum(len(shard) for shard in shards())


class Last(NamedTuple):
    w: Vector  # where the client ended last


class Features(NamedTuple):
    w: Vector
    means: Tensor  # classes × features: the mean feature vector of each class
    loss_before: Tensor
    seen: Tensor  # learning rate, momentum, number of steps


@dataclass(frozen=True)
class Everything(Algorithm[Weights, Weights, Last, Features]):
    """Starts between the received and the last weights, and makes passes over the rows."""

    def memory(self, w: Vector) -> Last:
        return Last(w)

    def start(self, ctx: Context[Weights, Last]) -> Vector:
        return 0.5 * (ctx.sent.w + ctx.memory.w)

    def batches(
        self, f: Model, data: Shard, ctx: Context[Weights, Last], rng: Stream
    ) -> Iterator[Any]:
        rows = slice(None) if ctx.round.t > 1 and ctx.memory.w is not ctx.sent.w else slice(0, 3)
        for batch in ctx.plan.batches(data, rng):
            yield batch._replace(x=batch.x[rows], y=batch.y[rows])

    def upload(self, f: Model, w: Vector, data: Shard, ctx: Context[Weights, Last]) -> Features:
        means = torch.zeros(f.classes, 8)
        loss = torch.zeros(())
        with torch.no_grad():
            for which in torch.split(torch.arange(len(data)), 4):
                batch = data.batch(which, torch.Generator())
                means.index_add_(0, batch.y, f(w, batch.x).features)
                loss += len(which) * self.loss(f, ctx.sent.w, batch, ctx)
        optimizer = ctx.plan.optimizer
        assert isinstance(optimizer, SGD)
        seen = torch.tensor([ctx.lr, optimizer.momentum, float(ctx.steps)])
        counts = ctx.counts.clamp(min=1)[:, None]
        return Features(w, means / counts, loss / len(data), seen)

    def remember(self, w: Vector, upload: Features, ctx: Context[Weights, Last]) -> Last:
        assert upload.w is w
        return Last(w)


def play(learner: Learner[Any, Any, Any, Any], cohort: Any) -> list[Snapshot[Any]]:
    return list(
        federate(
            learner,
            cohort,
            choose=lambda t: [3, 0, 2],
            rng=Stream(1),
            start=initial(learner, Round(0, 3, CLIENTS, ROWS)),
            inspect=lambda reply: reply,
        )
    )


def test_uploads_and_passes_over_the_rows_in_every_cohort() -> None:
    algorithm = Everything()
    f = model(algorithm)
    learner = Learner(algorithm, f, PLAN)
    plain = play(learner, OneByOne(learner, shards(), Stream(1)))
    test = shards()[0]
    test_set = TestSet(f, test.examples, test.transform, 16)
    with closing(Pool(learner, shards(), Stream(1), 2, test_set)) as pool:
        for ours, theirs in zip(play(learner, pool), plain, strict=True):
            require_equal(ours.server, theirs.server)
            for mine, other in zip(ours.replies, theirs.replies, strict=True):
                require_equal(mine.inspected, other.inspected)
                assert mine.bytes == other.bytes > 4 * len(f.weights().flat) + 4 * 3 * 8
    stacked = play(learner, Stacked(learner, shards(), Stream(1)))
    for ours, theirs in zip(stacked, plain, strict=True):
        torch.testing.assert_close(ours.server.w.flat, theirs.server.w.flat, atol=2e-5, rtol=1e-4)
        for mine, other in zip(ours.replies, theirs.replies, strict=True):
            got, expected = mine.inspected.upload, other.inspected.upload
            torch.testing.assert_close(got.means, expected.means, atol=1e-4, rtol=1e-3)
    lr, momentum, steps = plain[1].replies[0].inspected.upload.seen.tolist()
    assert lr == pytest.approx(PLAN.lr * 0.99)
    assert momentum == pytest.approx(0.9)
    assert steps == len(PLAN.sizes(len(shards()[3])))


def test_an_upload_is_made_with_the_old_memory() -> None:
    class Count(NamedTuple):
        n: Tensor

    class Counted(NamedTuple):
        w: Vector
        n: Tensor

    class Counts(Algorithm[Weights, Weights, Count, Counted]):
        def memory(self, w: Vector) -> Count:
            return Count(torch.tensor(0))

        def upload(self, f: Model, w: Vector, data: Shard, ctx: Context[Any, Count]) -> Counted:
            return Counted(w, ctx.memory.n)

        def remember(self, w: Vector, upload: Counted, ctx: Context[Any, Count]) -> Count:
            return Count(ctx.memory.n + 1)

    learner = Learner(Counts(), model(FedAvg()), PLAN)
    rounds = play(learner, OneByOne(learner, shards(), Stream(1)))
    assert [int(now.replies[0].inspected.upload.n) for now in rounds] == [0, 1, 2]


class Growing(NamedTuple):
    w: Vector
    extra: Tensor


@dataclass(frozen=True)
class Grows(Algorithm[Weights, Weights, tuple[()], Growing]):
    """Its uploads have more rows in later rounds."""

    def upload(self, f: Model, w: Vector, data: Shard, ctx: Context[Weights]) -> Growing:
        return Growing(w, torch.zeros(max(ctx.round.t, 1), 5000))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_upload_whose_shape_changes_is_refused(workers: int, tmp_path: Path) -> None:
    e = Experiment(
        dataset="digits",
        rounds=8,
        algorithm=Grows(),
        federation={"clients": 4, "participation": 0.5},
        local={"epochs": 1},
        engine={"workers": workers},
    )
    sentence = (
        r"client \d in round 2: extra of its upload has shape \(2, 5000\), and \(1, 5000\) in an"
        r"|client \d in round \d: reply/upload/w.* must have the same shapes in every round"
    )
    for _ in range(3):  # a resumed run remembers the shapes
        with pytest.raises(BadInput, match=sentence):
            run(e, tmp_path / "run")
    assert len(read_records(tmp_path / "run" / "rounds.jsonl")) < 8


@dataclass(frozen=True)
class OnlyLoss(Algorithm):
    """All that a method on the clients' side needs."""

    def loss(self, f: Any, w: Any, batch: Any, ctx: Any) -> Tensor:
        return 2 * super().loss(f, w, batch, ctx)


def test_a_method_that_overrides_only_the_loss(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "dataset": "digits",
        "rounds": 2,
        "federation": {"clients": 4, "participation": 0.5},
        "engine": {"workers": 1},
    }

    def weights(algorithm: Any, lr: float) -> dict[str, Tensor]:
        local = {"lr": lr, "weight_decay": 0.0}
        e = Experiment(algorithm=algorithm, local=local, **settings)
        return run(e, tmp_path / f"{type(algorithm).__name__}-{lr}").weights()

    once, slow, twice = weights(FedAvg(), 0.04), weights(FedAvg(), 0.02), weights(OnlyLoss(), 0.02)
    # Twice the loss at half the learning rate: a factor of two rounds nothing.
    assert all(torch.equal(once[name], twice[name]) for name in once)
    assert any(not torch.equal(slow[name], twice[name]) for name in once)
    own = Experiment(algorithm=OnlyLoss(), **settings)
    assert own.table()["algorithm"]["name"].endswith("test_hooks:OnlyLoss")


@pytest.mark.parametrize("algorithm", ["fedavg", "fedadb", "scaffold"])
def test_a_server_optimiser_works_with_methods_that_take_a_mean(
    algorithm: str, tmp_path: Path
) -> None:
    def experiment(**server: Any) -> Experiment:
        return Experiment(
            dataset="digits",
            rounds=4,
            model={"name": "mlp", "hidden": [16]},
            algorithm=algorithm,
            federation={"clients": 6, "participation": 0.5},
            local={"epochs": 1, "lr": 0.02},
            engine={"workers": 1},
            **({"server": {"optimizer": server}} if server else {}),
        )

    def weights(directory: Path) -> dict[str, Tensor]:
        return read_tensors(directory / "model.safetensors", "")[0]

    run(experiment(), tmp_path / "plain")
    run(experiment(name="sgd", lr=1.0, momentum=0.0), tmp_path / "same")
    run(experiment(name="yogi", lr=0.01), tmp_path / "yogi")
    with start_run(experiment(name="yogi", lr=0.01), tmp_path / "resumed") as interrupted:
        next(interrupted.rounds)
        next(interrupted.rounds)
    run(experiment(name="yogi", lr=0.01), tmp_path / "resumed")
    plain, same, yogi, resumed = (
        weights(tmp_path / name) for name in ("plain", "same", "yogi", "resumed")
    )
    assert all(torch.equal(plain[name], same[name]) for name in plain)
    assert all(torch.equal(yogi[name], resumed[name]) for name in yogi)
    assert any(not torch.equal(plain[name], yogi[name]) for name in plain)


def test_the_server_s_step_starts_at_its_own_weights() -> None:
    """Δ is the proposal minus the server's weights, once per round."""
    learner = Learner(FedAvg(), model(FedAvg()), PLAN)

    def rounds(optimizer: Any) -> list[Snapshot[Any]]:
        cohort = OneByOne(learner, shards(), Stream(1))
        start = initial(learner, Round(0, 2, CLIENTS, ROWS), optimizer)
        choose: Callable[[int], list[int]] = lambda t: [0, 2]  # noqa: E731
        loop = federate(
            learner, cohort, choose=choose, rng=Stream(1), start=start, optimizer=optimizer
        )
        return list(loop)

    w_0 = learner.f.weights()
    plain, half = rounds(None), rounds(ServerSGD(lr=0.5, momentum=0.9))
    expected = w_0 + 0.5 * (plain[0].server.w - w_0)
    torch.testing.assert_close(half[0].server.w.flat, expected.flat)
    torch.testing.assert_close(half[0].optimizer_state.m.flat, (plain[0].server.w - w_0).flat)
    assert rounds(ServerAdam())[-1].optimizer_state.v.flat.min() > 0


def test_a_broadcast_of_one_s_own_needs_its_type_in_a_real_federation() -> None:
    class Plain(FedAvg):
        def broadcast(self, s, f, rng):  # type: ignore[no-untyped-def]
            return Weights(s.w)

    class Typed(FedAvg):
        def broadcast(self, s: Weights, f: Model, rng: Stream) -> Weights:
            return Weights(s.w)

    assert broadcast_kind(FedAvg()) is Weights
    assert broadcast_kind(Typed()) is Weights
    with pytest.raises(BadInput, match=r"Plain\.broadcast needs a return annotation"):
        broadcast_kind(Plain())


def test_replies_have_one_type_and_shape() -> None:
    algorithm = Everything()
    learner = Learner(algorithm, model(algorithm), PLAN)
    sent, round = Weights(learner.f.weights()), Round(1, 3, CLIENTS, ROWS)
    example = learner.example_reply(sent, round)
    (real,) = OneByOne(learner, shards(), Stream(1))(sent, [0], round)
    assert isinstance(real, Reply)
    assert type(example.upload) is type(real.upload)
    assert example.upload.means.shape == real.upload.means.shape
