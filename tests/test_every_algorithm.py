"""What holds for every algorithm. A new one is tested by being registered."""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedadb
from fedadb.algorithms import ALGORITHMS
from fedadb.algorithms.fedopt import FedOpt
from fedadb.core.algorithm import Algorithm, Context, Round
from fedadb.core.data import LocalPlan, Shard
from fedadb.core.errors import BadInput
from fedadb.core.model import Domain, Model, assemble
from fedadb.core.packing import kind_of, pack, unpack
from fedadb.core.schedules import Exponential
from fedadb.core.server_optimizers import ServerAdam
from fedadb.core.stream import Stream
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.evaluate import evaluate
from fedadb.engine.federate import Snapshot, federate, initial
from fedadb.engine.local import Learner
from fedadb.experiment import run as runs
from fedadb.experiment.config import Experiment
from fedadb.kernels.body import fast_body
from fedadb.storage.records import REQUIRED
from fedadb.storage.tensorfile import read_tensors, write_tensors
from tests.conftest import toy_shard

CLIENTS, CLASSES = 4, 3
Any_ = Algorithm[Any, Any, Any, Any]

NEUTRAL: dict[str, dict[str, float] | None] = {
    "feddyn": {"alpha": 0.0},
    "fedasam": {"rho": 0.0},
    "fedntd": {"beta": 0.0},
    "fedlmd": {"beta": 0.0},
    "feddecorr": {"lam": 0.0},
    "fedacg": {"lam": 0.0, "beta": 0.0},
    "fedsol": {"rho": 0.0},
    "fedexp": {"eps": 1e12},
    "fedprox": {"mu": 0.0},
    "fedlc": {"tau": 0.0},
    "fedrs": {"alpha": 1.0},
    "feddisco": {"a": 0.0, "b": 0.0},
    "fedgela": None,
    "fedadb": None,
    "scaffold": None,  # its first round is FedAvg's: see tests/algorithms/test_scaffold.py
    "moon": {"mu": 0.0},
    "fednova": None,  # the clients of a round need equally many steps
    "fedcurv": {"lam": 0.0},
    "fedrod": {"gamma": 0.0},
    "fedvls": None,  # without its two terms, classes are still balanced
    "fedcog": {"first_round": 1000},
}
"""Settings that turn a method into FedAvg; None where there are none, as with other heads."""


QUICK: dict[str, dict[str, Any]] = {"fedcog": {"first_round": 2, "images": 12, "steps": 2}}
"""Settings by which a method differs from FedAvg after few rounds, and in little time."""


def quick(name: str) -> Any_:
    return ALGORITHMS[name](**QUICK.get(name, {}))


@pytest.fixture(params=[*ALGORITHMS, "fedadam"])
def algorithm(request: pytest.FixtureRequest) -> Any_:
    """FedAdam stands for all methods that are FedAvg with a server optimiser."""
    name = request.param
    return FedOpt(ServerAdam()) if name == "fedadam" else quick(name)


def shards() -> list[Shard]:
    """Clients with two, one, all and two classes, the last with a single row left over."""
    whole = toy_shard(rows=60, classes=CLASSES)
    y = whole.examples.y
    rows = [
        torch.nonzero((y == 0) | (y == 1)).flatten()[:14],
        torch.nonzero(y == 2).flatten()[:9],
        torch.arange(30, 45),
        torch.nonzero((y == 0) | (y == 2)).flatten()[-9:],
    ]
    return [replace(whole, rows=r) for r in rows]


def model(algorithm: Any_) -> Model:
    with Stream(5).seeded():
        body = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh())
    domain = Domain((1, 4, 4), torch.tensor(-1.0), torch.tensor(1.0))
    return assemble(body, algorithm.heads, domain, CLASSES, Stream(5))


@dataclass
class Federation:
    algorithm: Any_
    plan: LocalPlan = field(default_factory=lambda: LocalPlan(2, 8, lr=0.05))
    seen: list[Snapshot[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.f = model(self.algorithm)
        learner = Learner(self.algorithm, self.f, self.plan)
        self.cohort: OneByOne[Any, Any, Any, Any] = OneByOne(learner, shards(), Stream(0))

    def start(self, total: int) -> Snapshot[Any]:
        rows = sum(len(shard) for shard in self.cohort.shards)
        before = Round(0, total, CLIENTS, rows)
        return initial(self.cohort.learner, before)

    def play(self, start: Snapshot[Any], chosen: Sequence[int] = (0, 2, 3)) -> list[Snapshot[Any]]:
        return list(
            federate(
                self.cohort.learner,
                self.cohort,
                choose=lambda t: [(k + t) % CLIENTS for k in chosen],
                rng=Stream(0),
                start=start,
                inspect=lambda reply: reply,
            )
        )


def test_the_same_seed_is_bit_identical(algorithm: Any_) -> None:
    ends = []
    for _ in range(2):
        federation = Federation(algorithm)
        ends.append(federation.play(federation.start(3))[-1].server.w.flat)
    assert torch.equal(*ends)


def test_the_order_of_clients_does_not_matter(algorithm: Any_) -> None:
    replies = []
    for order in ([0, 2, 3], [3, 0, 2]):
        federation = Federation(algorithm)
        first = federation.play(federation.start(1), chosen=(0, 1, 2, 3))[-1]
        sent = algorithm.broadcast(first.server, federation.f, Stream(1))
        found = federation.cohort(sent, order, Round(2, 3, CLIENTS, first.round.examples))
        replies.append(dict(zip(order, found, strict=True)))
    for k, reply in replies[0].items():
        assert torch.equal(reply.w.flat, replies[1][k].w.flat)


def test_every_measurement_is_declared(algorithm: Any_) -> None:
    """A server records no other measurement of a site."""
    federation = Federation(algorithm)
    last = federation.play(federation.start(2))[-1]
    assert all(tuple(reply.measured) == algorithm.measures for reply in last.replies)
    assert not set(algorithm.measures) & {*REQUIRED, "lost", "bytes_down", "bytes_up"}


def test_clients_state_what_their_rows_imply(algorithm: Any_) -> None:
    """A server drops the reply of a site that states another number."""
    federation = Federation(algorithm)
    for reply in federation.play(federation.start(1))[-1].replies:
        for name, number in algorithm.implied(federation.plan, int(reply.examples)).items():
            assert float(getattr(reply.inspected.upload, name)) == pytest.approx(number, rel=1e-6)
        assert algorithm.spread.keys() <= set(reply.inspected.upload._fields)


def test_states_survive_a_file(algorithm: Any_, tmp_path: Path) -> None:
    federation = Federation(algorithm)
    last = federation.play(federation.start(2))[-1]
    layout = federation.f.layout
    trees = [
        last.server,
        last.sent,
        last.replies[0].inspected,
        *federation.cohort.memories.values(),
    ]
    for i, tree in enumerate(trees):
        path = tmp_path / f"{i}.safetensors"
        write_tensors(path, pack(tree), {})
        back = unpack(kind_of(tree), read_tensors(path, "")[0], layout)
        before, after = pack(tree), pack(back)
        assert set(before) == set(after)
        for name in before:
            torch.testing.assert_close(after[name], before[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.integration
def test_a_run_resumes_from_any_round(algorithm: Any_, tmp_path: Path) -> None:
    table = {
        "rounds": 4,
        "model": {"name": "mlp", "hidden": [16]},
        "local": {"epochs": 1},
        "federation": {"clients": 6, "participation": 0.5},
    }
    experiment = Experiment.read({**table, "algorithm": algorithm})
    fedadb.run(experiment, tmp_path / "whole")
    for _ in range(3):
        with runs.start_run(experiment, tmp_path / "broken") as active:
            next(active.rounds)
    fedadb.run(experiment, tmp_path / "broken")
    for name in ("checkpoint.safetensors", "model.safetensors"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    broken, whole = (
        {path.name: path.read_bytes() for path in (tmp_path / run / "memories").glob("*")}
        for run in ("broken", "whole")
    )
    assert broken == whole


@pytest.mark.parametrize("name", [name for name, settings in NEUTRAL.items() if settings])
def test_neutral_settings_are_fedavg_to_the_bit(name: str) -> None:
    neutral = ALGORITHMS[name](**(NEUTRAL[name] or {}))
    ours, theirs = Federation(neutral), Federation(ALGORITHMS["fedavg"]())
    for mine, plain in zip(ours.play(ours.start(2)), theirs.play(theirs.start(2)), strict=True):
        assert torch.equal(mine.server.w.flat, plain.server.w.flat)


def test_every_method_says_how_it_becomes_fedavg() -> None:
    assert set(ALGORITHMS) == set(NEUTRAL) | {"fedavg"}


@pytest.mark.usefixtures("needs_kernels")
def test_our_own_kernels_train_every_algorithm_as_torch_does(algorithm: Any_) -> None:
    with Stream(5).seeded():
        body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 8))
    domain = Domain((1, 4, 4), torch.tensor(-1.0), torch.tensor(1.0))
    torchs = assemble(body, algorithm.heads, domain, CLASSES, Stream(5))
    ours = replace(torchs, fast_body=fast_body(body, domain.shape))
    assert ours.fast_body is not None
    uploads = []
    for f in (torchs, ours):
        sent = algorithm.broadcast(algorithm.init(f.weights()), f, Stream(0))
        learner = Learner(algorithm, f, LocalPlan(2, 8, lr=0.05))
        reply, _ = learner.train(shards()[0], sent, None, Round(2, 4, 4, 60), Stream(1))
        uploads.append(reply.w.flat)
    torch.testing.assert_close(*uploads, atol=5e-4, rtol=1e-3)


def test_clients_that_are_not_sampled_keep_their_memory(algorithm: Any_) -> None:
    federation = Federation(algorithm)
    first = federation.play(federation.start(1), chosen=(0, 1, 2, 3))[-1]
    before = {k: pack(m) for k, m in federation.cohort.memories.items()}
    copies = {k: {n: t.clone() for n, t in m.items()} for k, m in before.items()}
    rest = first._replace(round=first.round._replace(total=2))
    federation.play(rest, chosen=(0,))  # in round 2, client 2 alone
    for k in (0, 1, 3):
        after = pack(federation.cohort.memories[k])
        assert all(torch.equal(after[n], t) for n, t in copies[k].items())


@pytest.mark.parametrize("rows", [[0], [0, 3, 6], [0, 1, 2, 3, 4, 5, 6, 7, 8]])
def test_odd_clients_train(algorithm: Any_, rows: list[int]) -> None:
    """One row; one class; a last batch of one."""
    f = model(algorithm)
    data = replace(toy_shard(12, CLASSES), rows=torch.tensor(rows))
    sent = algorithm.broadcast(algorithm.init(f.weights()), f, Stream(0))
    learner = Learner(algorithm, f, LocalPlan(2, 4, lr=0.05))
    reply, _ = learner.train(data, sent, None, Round(2, 5, 4, 40), Stream(0))
    assert reply.w.flat.isfinite().all()
    assert int(reply.examples) == len(rows)
    assert not torch.equal(reply.w.flat, sent.w.flat)


def test_the_loss_falls_on_a_separable_problem(algorithm: Any_) -> None:
    federation = Federation(algorithm, LocalPlan(2, 8, lr=0.02, schedule=Exponential(decay=0.95)))
    start = federation.start(25)
    test = toy_shard(90, CLASSES, seed=1)
    rounds = federation.play(start, chosen=(0, 1, 2, 3))

    def score(server: Any) -> tuple[float, float]:
        w = algorithm.deployed(server)
        scores = evaluate(federation.f, w, test.examples, test.transform, 30)
        return scores.loss, scores.accuracy

    assert score(rounds[-1].server)[0] < score(start.server)[0]
    assert score(rounds[-1].server)[1] > 0.85


def test_a_high_learning_rate_gives_numbers(algorithm: Any_) -> None:
    federation = Federation(algorithm, LocalPlan(2, 8, lr=0.1))
    assert federation.play(federation.start(3))[-1].server.w.flat.isfinite().all()


def test_broadcast_and_loss_change_nothing_and_repeat(algorithm: Any_) -> None:
    federation = Federation(algorithm)
    last = federation.play(federation.start(2))[-1]
    f, data = federation.f, federation.cohort.shards[0]
    numbers = torch.get_rng_state()

    def frozen(tree: Any) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in pack(tree).items()}

    before = frozen(last.server)
    first, second = (frozen(algorithm.broadcast(last.server, f, Stream(3))) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)

    sent = algorithm.broadcast(last.server, f, Stream(3))
    memory = algorithm.memory(sent.w)
    ctx: Context[Any, Any] = Context(
        sent, memory, data.counts, Round(2, 5, CLIENTS, 40), LocalPlan(1, 8), torch.tensor(2)
    )
    batch = next(iter(algorithm.batches(f, data, ctx, Stream(0))))
    w = 1.1 * algorithm.start(ctx)
    losses = [algorithm.loss(f, w, batch, ctx) for _ in range(2)]
    steps = [algorithm.gradient(f, w, batch, ctx).flat for _ in range(2)]
    assert torch.equal(*losses)
    assert torch.equal(*steps)
    uploads = [frozen(algorithm.upload(f, w, data, ctx)) for _ in range(2)]
    assert all(torch.equal(tensor, uploads[1][name]) for name, tensor in uploads[0].items())
    for tree, kept in ((last.server, before), (sent, first)):
        assert all(torch.equal(tensor, kept[name]) for name, tensor in pack(tree).items())
    assert torch.equal(torch.get_rng_state(), numbers)


@pytest.fixture
def _only_new_objects() -> Iterator[None]:
    """Hide what exists already from the garbage collector, so that it has little to look at."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_only_new_objects")
def test_what_a_federation_holds_does_not_grow(algorithm: Any_) -> None:
    federation = Federation(algorithm)
    numbers = []
    for now in federate(
        federation.cohort.learner,
        federation.cohort,
        choose=lambda _: list(range(CLIENTS)),
        rng=Stream(0),
        start=federation.start(6),
    ):
        gc.collect()
        numbers.append(sum(o.numel() for o in gc.get_objects() if type(o) is torch.Tensor))
        del now
    assert numbers[-1] <= numbers[1]
    assert numbers[1] > 0


@pytest.mark.integration
def test_every_algorithm_meets_the_same_clients(tmp_path: Path) -> None:
    seen = set()
    for name in ALGORITHMS:
        table = {"rounds": 2, "local": {"epochs": 1}, "model": {"name": "mlp", "hidden": [16]}}
        experiment = Experiment.read({**table, "algorithm": name, "engine": {"workers": 1}})
        history = fedadb.run(experiment, tmp_path / name)
        seen.add(str([record["clients"] for record in history.rounds]))
    assert len(seen) == 1


IMPOSSIBLE = [
    ("feddyn", "alpha", -0.1),
    ("feddyn", "variant", "other"),
    ("fedasam", "rho", -1),
    ("fedasam", "eta", -1),
    ("fedasam", "scope", "none"),
    ("fedntd", "beta", -1),
    ("fedntd", "tau", 0),
    ("fedgela", "temperature", 0),
    ("fedexp", "eps", -1e-3),
    ("fedlmd", "beta", -1),
    ("fedlmd", "tau", 0),
    ("feddecorr", "lam", -0.1),
    ("fedacg", "lam", 1.0),
    ("fedacg", "lam", -0.1),
    ("fedacg", "beta", -1),
    ("fedsol", "rho", -1),
    ("fedsol", "tau", 0),
    ("fedprox", "mu", -1),
    ("scaffold", "eta", 0),
    ("scaffold", "weighted", "rows"),
    ("fedlc", "tau", -0.1),
    ("fedlc", "missing", "drop"),
    ("fedrs", "alpha", 1.1),
    ("fedrs", "alpha", -0.1),
    ("fedrs", "variant", "hard"),
    ("feddisco", "a", -0.1),
    ("feddisco", "b", -0.1),
    ("moon", "mu", -1),
    ("moon", "tau", 0),
    ("fedcurv", "lam", -1),
    ("fedcurv", "size", 0),
    ("fedcurv", "fisher", "rows"),
    ("fedrod", "gamma", -1),
    ("fedvls", "lam", -1),
    ("fedvls", "beta", -1),
    ("fedcog", "first_round", 0),
    ("fedcog", "images", 0),
    ("fedcog", "steps", 0),
    ("fedcog", "eta", 0),
    ("fedcog", "lam", -1),
    ("fedcog", "tau", 0),
]


@pytest.mark.parametrize(("name", "key", "value"), IMPOSSIBLE)
def test_impossible_settings_are_refused_when_they_are_read(
    name: str, key: str, value: object
) -> None:
    with pytest.raises(BadInput, match=rf"algorithm\.{key} = .*: must be "):
        Experiment.read({"algorithm": {"name": name, key: value}})


@pytest.mark.parametrize("name", ["feddyn", "fedgela"])
@pytest.mark.parametrize("value", [0, -1])
def test_an_impossible_clip_is_refused_when_it_is_read(name: str, value: float) -> None:
    with pytest.raises(BadInput, match=r"local\.clip = .*: must be "):
        Experiment.read({"algorithm": name, "local": {"clip": value}})


def test_every_number_of_every_method_has_its_bounds_tested() -> None:
    numbers = {
        (name, f.name)
        for name, cls in ALGORITHMS.items()
        for f in fields(cls)  # type: ignore[arg-type]
        if name != "fedadb" and "Annotated" in str(f.type)
    }
    assert numbers <= {(name, key) for name, key, _ in IMPOSSIBLE}
