"""Robust means: the reference numbers of the rules, and what holds for all of them."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.feddyn import FedDyn
from fedadb.algorithms.scaffold import Control
from fedadb.core.algorithm import Algorithm
from fedadb.core.errors import BadInput, Fault
from fedadb.core.filter import NOT_FINITE, Filter, receive_through
from fedadb.core.replies import MissingReply, Reply
from fedadb.core.vector import Layout, Vector, Weights
from fedadb.deploy.agreement import shared_experiment
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.run import run, start_run
from fedadb.filters import FILTERS, gathering, robust
from fedadb.filters.centred_clip import CentredClip
from fedadb.filters.clip import Clip
from fedadb.filters.geometric_median import GeometricMedian
from fedadb.filters.median import Median
from fedadb.filters.multi_krum import MultiKrum
from fedadb.filters.nnm import NNM
from fedadb.filters.norm_bound import NormBound
from fedadb.filters.trimmed_mean import TrimmedMean
from fedadb.storage.tensorfile import read_tensors
from tests.filters.test_filters import ROUND, play

X = torch.tensor(
    [
        (1, 2, -1),
        (1.2, 1.8, -0.9),
        (0.9, 2.1, -1.2),
        (1.1, 1.9, -1.1),
        (0.8, 2.2, -0.8),
        (-10, -20, 10),
        (5, 5, 5),
    ],
    dtype=torch.float64,
)
ROWS = (10, 20, 30, 40, 50, 60, 70)
U = (0.5, -0.25, 4.0)  # what clients receive


def close(found: Tensor, *numbers: float, atol: float = 1e-6) -> None:
    expected = torch.tensor(numbers, dtype=torch.float64)
    torch.testing.assert_close(found.double(), expected, atol=atol, rtol=0)


def received(*numbers: float) -> Vector:
    return Vector(torch.tensor(numbers), Layout(("w",), ((len(numbers),),)))


def sent(updates: Tensor, u: Vector, rows: Any = None) -> list[Reply[Weights]]:
    rows = rows or [1] * len(updates)
    w = (u.flat.double() + updates).float()
    return [
        Reply(Weights(Vector(one, u.layout)), torch.tensor(n))
        for one, n in zip(w, rows, strict=True)
    ]


def through(filters: Any, replies: Any, u: Vector, states: Any = None) -> list[Any]:
    filters = filters if isinstance(filters, tuple) else (filters,)
    states = [one.init(u) for one in filters] if states is None else states
    return list(receive_through(filters, replies, states, u, ROUND))


def result(filters: Any, updates: Tensor = X, rows: Any = None) -> Tensor:
    """The mean by rows of what the filters make of the updates."""
    u = received(*U)
    after = through(filters, sent(updates, u, rows), u)
    counted = [one for one in after if isinstance(one, Reply)]
    moved = torch.stack([one.w.flat.double() - u.flat.double() for one in counted])
    return robust.mean(moved, torch.tensor([float(one.examples) for one in counted]).double())


# the numbers of the specification, with and without rows as weights


def test_norms() -> None:
    norms = (2.449490, 2.343075, 2.580698, 2.455606, 2.473863, 24.494897, 8.660254)
    close(robust.norms([X]), *norms)


BY_ROWS = {"weights": "rows"}


@pytest.mark.parametrize(
    ("filters", "uniform", "by_rows"),
    [
        ((), (0, -0.714286, 1.428571), (-0.375, -1.946429, 2.864286)),
        (Clip(quantile=0.5), (0.768725, 1.331636, -0.358870), None),
        (Median(), (1, 2, -0.9), (0.9, 2.1, -0.8)),
        (TrimmedMean(f=1), (1, 2, 0.24), None),
        (TrimmedMean(f=2), (1, 2, -0.9), (1.0125, 1.9875, -0.85)),
        (MultiKrum(f=2), (1, 2, -1), (0.966667, 2.033333, -0.986667)),
        (MultiKrum(f=2, keep=3), (1, 2, -1.1), (1.0125, 1.9875, -1.125)),
        (
            GeometricMedian(steps=5000, tolerance=0),
            (1.001645, 1.996947, -0.996964),
            (0.991734, 1.988741, -0.814835),
        ),
        (CentredClip(tau=3.0), (0.786758, 1.326080, -0.291886), (0.688425, 0.997408, 0.166887)),
        (CentredClip(tau=3.0, steps=3), (1.050411, 1.743292, -0.335352), None),
        (CentredClip(tau=3.0, steps=10), (1.069545, 1.770373, -0.332112), None),
        (CentredClip(tau=1.0), (0.315654, 0.546049, -0.149012), None),
        (CentredClip(tau=1.0, steps=3), (0.860725, 1.563500, -0.565521), None),
        (CentredClip(tau=1e9), (0, -0.714286, 1.428571), None),
        (NNM(f=2), (0.805714, 1.451429, -0.502857), None),
        ((NNM(f=2), Median()), (1, 2, -1), None),
    ],
    ids=str,
)
def test_numbers(filters: Any, uniform: Any, by_rows: Any) -> None:
    close(result(filters), *uniform, atol=2e-6)
    if by_rows is None:
        return
    if isinstance(filters, Filter):
        filters = type(filters)(**{**vars(filters), **BY_ROWS})
    close(result(filters, rows=ROWS), *by_rows, atol=2e-6)


def test_a_fixed_norm_clips_at_the_client() -> None:
    u = received(0.0, 0.0, 0.0)
    clipped = [Clip(norm=2.0).outgoing(one, (), u, ROUND)[0].w.flat for one in sent(X, u)]
    close(robust.mean(torch.stack(clipped).double()), 0.631307, 1.092098, -0.298025)
    rows = torch.tensor(ROWS).double()
    close(robust.mean(torch.stack(clipped).double(), rows), 0.534247, 0.819861, 0.036484)


def test_the_median_of_an_even_number_is_between_the_two_middle_values() -> None:
    close(robust.median(X[:6]), 0.95, 1.95, -0.95)
    close(X[:6].median(0).values, 0.9, 1.9, -1.0)  # torch's is the lower one


def test_krum_scores() -> None:
    scores = robust.krum_scores(robust.squared_distances([X]), f=2)
    close(scores, 0.18, 0.42, 0.33, 0.18, 0.57, 2171.52, 179.61)
    krum = result(MultiKrum(f=2, keep=1))
    assert any(torch.allclose(krum, X[i], atol=1e-6) for i in (0, 3))  # equal up to rounding


@pytest.mark.parametrize(
    ("steps", "numbers"),
    [
        (1, (1.005754, 1.604354, -0.198409)),
        (3, (1.030009, 1.950303, -0.910371)),
        (8, (1.010095, 1.983359, -0.984463)),
        (32, (1.002433, 1.995540, -0.995587)),
    ],
)
def test_steps_of_weiszfeld_from_the_mean(steps: int, numbers: Any) -> None:
    (v,) = robust.geometric_median([X], [robust.mean(X)], steps=steps, tolerance=0)
    close(v, *numbers)


def test_the_geometric_median_has_the_smallest_mean_distance() -> None:
    (v,) = robust.geometric_median([X], [robust.median(X)], steps=5000, tolerance=0)
    assert float(robust.distances([X], [v]).mean()) == pytest.approx(5.117014, abs=1e-6)
    (default,) = robust.geometric_median([X], [robust.median(X)])
    close(default, *v.tolist(), atol=1e-4)


# what holds for all rules

RULES: dict[str, Filter] = {
    "clip": Clip(quantile=0.5),
    "median": Median(),
    "trimmed_mean": TrimmedMean(f=2),
    "multi_krum": MultiKrum(f=2),
    "geometric_median": GeometricMedian(),
    "centred_clip": CentredClip(),
    "nnm": NNM(f=2),
}
ONE_RESULT = [rule for name, rule in RULES.items() if name not in ("clip", "nnm")]
# these depend on where the zero is
CLIPPING = [rule for name, rule in RULES.items() if "clip" in name]


def test_every_filter_that_compares_replies_is_tested() -> None:
    assert RULES.keys() == FILTERS.keys() - {"norm_bound", "int8", "top_k", "dp"}


def drawn(m: int = 9, d: int = 40) -> Tensor:
    return torch.randn(m, d, generator=torch.Generator().manual_seed(0)).double()


def of(rule: Filter, updates: Tensor) -> Tensor:
    """The mean of what the rule makes of updates from zero."""
    u = Vector(torch.zeros(updates.shape[1]), Layout(("w",), ((updates.shape[1],),)))
    replies = through(rule, sent(updates, u), u)
    return torch.stack([one.w.flat for one in replies]).double().mean(0)


@pytest.mark.parametrize("rule", RULES.values(), ids=str)
def test_the_order_of_replies_does_not_matter(rule: Filter) -> None:
    x = drawn()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(of(rule, x), of(rule, x[order]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("rule", RULES.values(), ids=str)
def test_a_rule_follows_scale_and_translation(rule: Filter) -> None:
    x, b = drawn(), 0.0 if rule in CLIPPING else torch.linspace(-1, 1, 40).double()
    torch.testing.assert_close(of(rule, 3 * x + b), 3 * of(rule, x) + b, atol=1e-5, rtol=0)


@pytest.mark.parametrize("rule", RULES.values(), ids=str)
def test_of_equal_replies_the_result_is_that_reply(rule: Filter) -> None:
    u, one = received(*U), torch.tensor([0.1, 0.2, 0.3]).double()
    for after in through(rule, sent(one.repeat(7, 1), u), u):
        torch.testing.assert_close(after.w.flat, u.flat + one.float(), atol=1e-7, rtol=0)
    still = received(0.0, 0.0, 0.0)
    for after in through(rule, sent(torch.zeros(7, 3).double(), still), still):
        assert torch.equal(after.w.flat, still.flat)


def test_a_trimmed_mean_that_drops_nothing_is_the_mean_bit_by_bit() -> None:
    x, weights = drawn(), torch.arange(1, 10).double()
    assert torch.equal(robust.trimmed_mean(x, 0), robust.mean(x))
    assert torch.equal(robust.trimmed_mean(x, 0, weights), robust.mean(x, weights))


@pytest.mark.parametrize(
    "rule",
    [Median(), TrimmedMean(f=1), MultiKrum(f=1), MultiKrum(f=1, keep=1), GeometricMedian()],
    ids=str,
)
@pytest.mark.parametrize("position", [0, 4, 8])
def test_one_huge_reply_leaves_the_result_within_the_honest_range(
    rule: Filter, position: int
) -> None:
    """Squared, 1e30 is infinite in float32."""
    x = drawn()
    honest = torch.cat([x[:position], x[position + 1 :]])
    x[position] = 1e30
    found = of(rule, x)
    assert (found >= honest.min(0).values - 1e-6).all()
    assert (found <= honest.max(0).values + 1e-6).all()


def test_krum_tells_honest_replies_apart_beside_a_huge_one() -> None:
    """From inner products, all distances between the others would be 0."""
    x = drawn()
    alone = robust.squared_distances([x[1:]])
    x[0] = 1e30
    assert torch.equal(robust.squared_distances([x])[1:, 1:], alone)


@pytest.mark.parametrize("rule", RULES.values(), ids=str)
def test_pieces_change_nothing(rule: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawn()
    whole = of(rule, x)
    monkeypatch.setattr(gathering, "PIECE", 7)
    monkeypatch.setattr("fedadb.filters.centred_clip.PIECE", 7)
    torch.testing.assert_close(of(rule, x), whole, atol=1e-7, rtol=0)


@pytest.mark.parametrize("rule", ONE_RESULT, ids=str)
def test_there_are_as_many_replies_as_before_and_they_share_one_tensor(rule: Filter) -> None:
    u = received(*U)
    replies: list[Any] = sent(X, u, ROWS)
    replies.insert(2, MissingReply("it is away"))
    after = through(rule, replies, u)
    assert after[2] == MissingReply("it is away")
    weights = [one.w for one in after if isinstance(one, Reply)]
    assert len(weights) == 7
    assert all(w is weights[0] for w in weights)
    assert [int(one.examples) for one in after if isinstance(one, Reply)] == list(ROWS)


def test_mixed_replies_count_alike_unless_rows_are_asked_for() -> None:
    u = received(*U)
    alike, by_rows = (
        [int(one.examples) for one in through(NNM(f=2, weights=weights), sent(X, u, ROWS), u)]
        for weights in ("uniform", "rows")
    )
    assert (alike, by_rows) == ([1] * 7, list(ROWS))


# replies that are not finite, and too few of them


@pytest.mark.parametrize("rule", RULES.values(), ids=str)
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_reply_that_is_not_finite_is_dropped(rule: Filter, broken: float) -> None:
    u, updates = received(*U), X[[0, 1, 2, 3, 4, 5]]
    replies = sent(updates, u)
    replies.insert(1, replies[0].with_weights(received(broken, 0.0, 0.0)))
    after = through(rule, replies, u)
    assert after[1] == NOT_FINITE
    assert all(bool(one.w.flat.isfinite().all()) for one in after[:1] + after[2:])


def test_a_reply_that_is_not_finite_is_one_of_those_assumed_to_be_faulty() -> None:
    """Of f = 2 one is found, so the others are trimmed by one: also after another filter."""
    u = received(*U)
    replies: list[Any] = sent(X[:6], u)
    replies.append(replies[0].with_weights(received(math.nan, 0.0, 0.0)))
    expected = robust.trimmed_mean(X[:6], 1)
    for filters in ((TrimmedMean(f=2),), (NormBound(norm=1e9), TrimmedMean(f=2))):
        after = through(filters, replies, u)
        close(after[0].w.flat.double() - u.flat.double(), *expected.tolist(), atol=2e-6)
    five = [*replies[:4], replies[6]]  # 2f + 1, and one of them is found
    assert isinstance(through((NNM(f=2), TrimmedMean(f=2)), five, u)[0], Reply)


def test_replies_that_are_all_broken_are_all_dropped() -> None:
    u = received(*U)
    broken = [one.with_weights(received(math.nan, 0.0, 0.0)) for one in sent(X, u)]
    for rule in RULES.values():
        assert through(rule, broken, u) == [NOT_FINITE] * 7


@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        (Median(), 3),
        (GeometricMedian(), 3),
        (CentredClip(), 3),
        (TrimmedMean(f=2), 5),
        (TrimmedMean(), 5),
        (NNM(f=3), 7),
        (NNM(), 5),
        (MultiKrum(f=2), 7),
        (MultiKrum(), 5),
        (MultiKrum(f=1, keep=5), 6),
        (MultiKrum(keep=6), 7),
    ],
    ids=str,
)
def test_too_few_replies_are_refused(rule: Filter, needed: int) -> None:
    u = received(*U)
    assert len(through(rule, sent(X[:needed], u), u)) == needed
    with pytest.raises(Fault, match=rf"round 1 has {needed - 1} replies, but .* needs {needed}"):
        through(rule, sent(X[: needed - 1], u), u)
    enough = {"clients": needed, "participation": 1.0}
    Experiment(filter=[rule], federation=enough)
    few = {"clients": needed - 1, "participation": 1.0}
    sentence = (
        rf"filter: .* needs at least {needed} replies per round, but a round has {needed - 1}"
    )
    with pytest.raises(BadInput, match=sentence):
        Experiment(filter=[rule], federation=few)


def test_the_defaults_of_a_dataset_may_have_too_few_clients(tmp_path: Path) -> None:
    """A site reads an experiment without its federation, so this is found when it runs."""
    with pytest.raises(BadInput, match="a round has 4 of the 20 clients; change"):
        run(Experiment(dataset="digits", filter=[TrimmedMean()]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_auto_assumes_a_quarter() -> None:
    u = received(*U)
    x = torch.arange(9).double()[:, None] * torch.ones(3)
    x[0] = -100.0
    auto, two = (through(TrimmedMean(f=f), sent(x, u), u)[0].w.flat for f in ("auto", 2))
    assert torch.equal(auto, two)


# with algorithms


@pytest.mark.parametrize("algorithm", ["fedexp", "fednova", "feddisco"])
@pytest.mark.parametrize("rule", [*ONE_RESULT, NNM(f=2)], ids=lambda rule: type(rule).__name__)
def test_methods_that_need_single_replies_refuse_robust_rules(rule: Filter, algorithm: str) -> None:
    with pytest.raises(BadInput, match="replaces replies by a result of several, but Fed"):
        Experiment(filter=[rule], algorithm=algorithm)


@pytest.mark.parametrize("algorithm", ["scaffold", "fedcurv"])
def test_methods_that_send_more_than_weights_refuse_robust_rules(algorithm: str) -> None:
    with pytest.raises(BadInput, match="Median replaces the weights of replies, but clients of"):
        Experiment(filter=[Median()], algorithm=algorithm)
    assert Experiment(filter=[Median()], algorithm="fedrod").filter == (Median(),)


def test_an_upload_of_unknown_type_is_refused_when_it_arrives() -> None:
    u = received(*U)
    replies = [Reply(Control(one.w, one.w), one.examples) for one in sent(X, u)]
    with pytest.raises(BadInput, match=r"Median replaces the weights of replies.*are a Control"):
        through(Median(), replies, u)


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(f=1), GeometricMedian(), CentredClip()],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("algorithm", [FedAvg(), FedDyn()], ids=lambda one: one.name)
def test_algorithms_train_with_a_robust_mean(rule: Filter, algorithm: Algorithm[Any]) -> None:
    plain, robustly = play(algorithm, ()), play(algorithm, (rule,))
    assert robustly[-1].clients == [0, 2, 3]
    moved = float((robustly[-1].server.w - plain[0].server.w).norm())
    assert 0 < moved < 10 * float((plain[-1].server.w - plain[0].server.w).norm())


def test_a_trimmed_mean_of_all_is_fedavg_but_for_rounding() -> None:
    plain, robustly = play(FedAvg(), ()), play(FedAvg(), (TrimmedMean(f=0, weights="rows"),))
    torch.testing.assert_close(plain[-1].server.w.flat, robustly[-1].server.w.flat)


def settings(**more: Any) -> dict[str, Any]:
    return {
        "dataset": "digits",
        "rounds": 4,
        "model": {"name": "mlp", "hidden": [16]},
        "algorithm": "fedavg",
        "federation": {"clients": 6, "participation": 1.0},
        "local": {"epochs": 1, "lr": 0.02},
        "engine": {"workers": 1},
        **more,
    }


def test_centred_clipping_resumes_bit_by_bit(tmp_path: Path) -> None:
    """What it clips around is the result of the last round."""
    experiment = Experiment(**settings(filter=[CentredClip(tau=0.1)]))
    run(experiment, tmp_path / "whole")
    with start_run(experiment, tmp_path / "resumed") as interrupted:
        next(interrupted.rounds)
        next(interrupted.rounds)
    run(experiment, tmp_path / "resumed")
    ours, theirs = (
        read_tensors(tmp_path / name / "model.safetensors", "")[0] for name in ("whole", "resumed")
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    state = CentredClip(tau=0.1).init(received(*U))
    states = [state]
    first = through(CentredClip(tau=0.1), sent(X, received(*U)), received(*U), states)
    second = through(CentredClip(tau=0.1), sent(X, received(*U)), received(*U), states)
    assert not torch.equal(first[0].w.flat, second[0].w.flat)


def test_settings_are_written_and_read_back() -> None:
    seven = {"clients": 7, "participation": 1.0}
    for rule in RULES.values():
        rules = [Clip(quantile=0.5), rule, Clip(norm=1.0)]
        e = Experiment(**settings(filter=rules, federation=seven))
        assert Experiment.read(e.table()) == e
        assert e.filter == tuple(rules)
        assert e.table()["filter"][-1] == {"name": "clip", "norm": 1.0}
        assert e.table()["filter"][0] == {"name": "clip", "quantile": 0.5}


@pytest.mark.parametrize("rule", ONE_RESULT, ids=str)
def test_a_rule_among_equal_replies_is_refused(rule: Filter) -> None:
    """In this order, nnm would do nothing without a word."""
    Experiment(filter=[NNM(f=2), rule])
    name = type(rule).__name__
    with pytest.raises(BadInput, match=f"after {name} all .* nothing; put NNM before {name}"):
        Experiment(filter=[rule, NNM(f=2)])
    with pytest.raises(BadInput, match=f"after {name} all .* so Median changes nothing; keep one"):
        Experiment(filter=[rule, Median()])


def test_a_run_that_clips_keeps_its_name() -> None:
    """`clip` had no `quantile` before, and a name is made of all settings."""
    e = Experiment(**settings(filter=[{"name": "clip", "norm": 1.0}]))
    assert run_name(e) == "digits-fedavg-seed0-c4ed233a"


def test_a_site_does_not_know_how_many_replies_a_round_has() -> None:
    """It reads the shared settings alone, whose default federation is smaller."""
    many = {"clients": 9, "participation": 1.0}
    shared = shared_experiment(Experiment(**settings(filter=[MultiKrum(f=3)], federation=many)))
    assert shared.filter == (MultiKrum(f=3),)
    assert shared.federation.sampled < MultiKrum(f=3).replies_needed
