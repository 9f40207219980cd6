"""Attacks: the reference numbers, which clients attack, and what a run under attack looks like."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedadb.attacks import ATTACKS
from fedadb.attacks.alie import ALIE, hidden_z
from fedadb.attacks.gaussian import Gaussian
from fedadb.attacks.ipm import IPM
from fedadb.attacks.label_flip import LabelFlip
from fedadb.attacks.scaled import Scaled
from fedadb.attacks.sign_flip import SignFlip
from fedadb.core.attack import Attack, attackers_of, moments
from fedadb.core.data import Examples, Shard
from fedadb.core.errors import BadInput
from fedadb.core.replies import MissingReply, Replies
from fedadb.core.stream import Stream
from fedadb.core.transform import AsIs
from fedadb.core.vector import Weights
from fedadb.deploy.agreement import shared_experiment
from fedadb.engine.attacked import Attacked
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from fedadb.experiment.precheck import precheck
from fedadb.experiment.run import run, start_run
from fedadb.experiment.simulation import attackers, simulation
from fedadb.filters import robust
from fedadb.filters.trimmed_mean import TrimmedMean
from fedadb.progress import no_progress
from fedadb.storage.tensorfile import read_tensors
from tests.filters.test_filters import ROUND
from tests.filters.test_robust import X, close, received, sent, settings

H = X[:5]  # of honest clients; their mean is (1, 2, −1)
U = received(0.5, -0.25, 4.0)
RNG = Stream(0)


def attacked(attack: Attack, answers: list[Any], who: set[int], rows: Any = None) -> list[Any]:
    """What arrives of the answers of clients 0, 1, …"""
    rows = rows or [1] * len(answers)
    cohort = Attacked(lambda *_: Replies(answers, rows), attack, frozenset(who), RNG)
    return list(cohort(Weights(U), range(len(answers)), ROUND))


def updates(replies: list[Any]) -> Tensor:
    return torch.stack([one.w.flat.double() - U.flat.double() for one in replies])


def with_copies(attack: Attack) -> Tensor:
    """The honest updates, and those of two attackers."""
    return updates(attacked(attack, sent(X, U), {5, 6}))


# the numbers of the specification


def test_sign_flip() -> None:
    found = updates(attacked(SignFlip(clients=2), sent(X, U), {0, 3}))
    close(found[0], -1, -2, 1)
    close(found[3], -1.1, -1.9, 1.1)
    torch.testing.assert_close(found[[1, 2, 4, 5, 6]], X[[1, 2, 4, 5, 6]], atol=1e-6, rtol=0)


def test_scaled_replaces_the_model() -> None:
    target = torch.tensor([[0.0, 0.0, 5.0]]).double()
    rows = (10, 20, 30, 40, 50, 60)
    found = updates(attacked(Scaled(clients=1), sent(torch.cat([H, target]), U), {5}, rows))
    close(found[5], 0, 0, 17.5)
    close(robust.mean(found, torch.tensor(rows).double()), 0.690476, 1.452381, 4.295238)
    found = updates(attacked(Scaled(clients=1, factor=-10.0), sent(X, U), {0}))
    close(found[0], -10, -20, 10, atol=1e-5)


def test_gaussian_noise_follows_from_seed_round_and_client() -> None:
    noise, again = (updates(attacked(Gaussian(clients=2), sent(X, U), {1, 2})) for _ in range(2))
    assert torch.equal(noise, again)
    assert not torch.equal(noise[1], noise[2])
    many = Gaussian(clients=1, sigma=3.0).update(torch.zeros(100_000).double(), 1, 1, RNG)
    assert float(many.std()) == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize(
    ("m", "f", "z"),
    [
        (7, 2, 0.253347),
        (20, 4, 0.157311),
        (20, 8, 0.674490),
        (50, 10, 0.253347),
        (50, 24, 1.426077),
        (5, 1, 0.0),
        (10, 2, 0.0),
    ],
)
def test_how_far_attackers_can_hide(m: int, f: int, z: float) -> None:
    assert hidden_z(m - f, f) == pytest.approx(z, abs=1e-6)


def test_how_far_attackers_hide_is_finite_whatever_a_round_has() -> None:
    assert all(abs(hidden_z(honest, f)) < 3 for honest in range(1, 30) for f in range(1, 30))


@pytest.mark.parametrize(
    ("attack", "expected"),
    [
        (ALIE(clients=2), (0.959942, 1.959942, -1.040058)),
        (ALIE(clients=2, z=1.5), (0.762829, 1.762829, -1.237171)),
        (ALIE(clients=2, z=-1.5), (1.237171, 2.237171, -0.762829)),
        (IPM(clients=2), (-0.1, -0.2, 0.1)),
        (IPM(clients=2, epsilon=2.0), (-2, -4, 2)),
    ],
    ids=str,
)
def test_attackers_who_act_together_send_the_same(attack: Attack, expected: Any) -> None:
    found = with_copies(attack)
    close(found[5], *expected)
    assert torch.equal(found[5], found[6])
    torch.testing.assert_close(found[:5], H, atol=1e-6, rtol=0)


def test_what_inner_product_manipulation_does_to_means() -> None:
    weak, strong = with_copies(IPM(clients=2)), with_copies(IPM(clients=2, epsilon=2.0))
    close(robust.mean(weak), 0.685714, 1.371429, -0.685714)
    close(robust.median(weak), 0.9, 1.9, -0.9)
    close(robust.mean(strong), 0.142857, 0.285714, -0.142857)
    close(robust.trimmed_mean(strong, 2), 0.9, 1.9, -0.9)


def test_a_little_is_enough_to_win_krum() -> None:
    """A limit of Krum: the attackers' two copies are the nearest of all."""
    found = with_copies(ALIE(clients=2))
    squared = robust.squared_distances([found])
    scores = robust.krum_scores(squared, f=2)
    close(scores, 0.0396, 0.2528, 0.1576, 0.0836, 0.4017, 0.0316, 0.0316, atol=1e-4)
    assert int(robust.lowest(scores, 1)) in (5, 6)
    # Multi-Krum keeps both of them too, and here its mean is no nearer to the honest one.
    best = robust.lowest(scores, 5)
    assert {5, 6} < set(best.tolist())
    honest = torch.tensor([1, 2, -1]).double()
    mixed = robust.neighbour_mixing(squared, 2) @ found
    errors = {
        "krum": found[5] - honest,
        "multi-krum": robust.mean(found[best]) - honest,
        "nnm and trimmed mean": robust.trimmed_mean(mixed, 2) - honest,
        "trimmed mean": robust.trimmed_mean(found, 2) - honest,
        "mean": robust.mean(found) - honest,
    }
    found_errors = torch.stack([error.norm() for error in errors.values()])
    close(found_errors, 0.0694, 0.0793, 0.0604, 0.0463, 0.0198, atol=1e-4)


def test_label_flip() -> None:
    examples = Examples(torch.randn(6, 2), torch.tensor([0, 1, 2, 3, 0, 1]))
    shards = [Shard(examples, rows, 4, AsIs()) for rows in torch.split(torch.arange(6), 2)]
    flipped, same = LabelFlip(clients=2).poison([shards[0], shards[2]])
    assert flipped.labels.tolist() == [3, 2]
    assert flipped.counts.tolist() == [0, 0, 1, 1]
    assert same.examples is flipped.examples
    assert flipped.examples.x is examples.x
    assert shards[0].labels.tolist() == [0, 1]


def test_a_targeted_label_flip() -> None:
    examples = Examples(torch.randn(6, 2), torch.tensor([0, 1, 2, 3, 0, 1]))
    shard = Shard(examples, torch.arange(6), 4, AsIs())
    (flipped,) = LabelFlip(clients=1, source=0, target=3).poison([shard])
    assert flipped.labels.tolist() == [3, 1, 2, 3, 3, 1]
    with pytest.raises(BadInput, match=r"attack\.target = 4: the classes are 0 to 3"):
        LabelFlip(clients=1, source=0, target=4).poison([shard])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"source": 1}, "source and target belong together"),
        ({"target": 1}, "source and target belong together"),
        ({"source": 1, "target": 1}, "target = 1: is the source itself"),
    ],
)
def test_half_a_target_is_refused(given: dict[str, int], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        LabelFlip(clients=1, **given)


def test_honest_moments() -> None:
    found = moments(sent(H, U), U)
    close(found.mean, *H.mean(0).tolist())
    close(found.sd, *H.std(0).tolist())
    one = moments(sent(H[:1], U), U)
    close(one.sd, 0, 0, 0)


# who attacks


def test_a_missing_reply_stays_missing_and_a_round_may_have_no_attackers() -> None:
    answers: list[Any] = sent(X, U)
    answers[5] = MissingReply("it is away")
    for name, kind in ATTACKS.items():
        attack = kind(clients=2)  # type: ignore[call-arg]
        after = attacked(attack, answers, {5, 6})
        assert after[5] == answers[5], name
        assert all(a is b for a, b in zip(after[:5], answers[:5], strict=True))
        none = attacked(attack, answers, {17})
        assert all(a is b for a, b in zip(none, answers, strict=True))


def test_only_what_arrives_of_colluding_attackers_waits_for_the_others() -> None:
    """Other attacks hold one reply at a time."""
    read = 0

    def stream() -> Any:
        nonlocal read
        for one in sent(X, U):
            read += 1
            yield one

    def first(attack: Attack) -> int:
        nonlocal read
        read = 0
        cohort = Attacked(lambda *_: Replies(stream(), [1] * 7), attack, frozenset({0}), RNG)
        next(iter(cohort(Weights(U), range(7), ROUND)))
        return read

    assert [first(SignFlip(clients=1)), first(IPM(clients=1))] == [1, 7]


def test_the_seed_draws_attackers() -> None:
    drawn = [attackers_of(SignFlip(clients=4), 20, Stream(seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 4
    assert drawn[0] < attackers_of(IPM(clients=8), 20, Stream(0))  # the first of the same order
    assert attackers_of(SignFlip(clients=(3, 0)), 20, Stream(0)) == {0, 3}


# settings


def under(attack: Any, **more: Any) -> Experiment:
    return Experiment(**settings(attack=attack, **more))


def test_a_run_without_an_attack_keeps_its_name() -> None:
    """The name is made of all settings: a key that all runs have would change every name."""
    plain = Experiment(**settings())
    assert run_name(plain) == "digits-fedavg-seed0-a6a0d77c"
    assert run_name(Experiment()) == "digits-fedadb-seed0-47561e68"
    assert run_name(under("none")) == run_name(under(None)) == run_name(plain)
    assert "attack" not in plain.table()
    names = {run_name(under(SignFlip(clients=n))) for n in (1, 2)}
    assert len(names | {run_name(plain)}) == 3


def test_an_attack_is_written_and_read_back() -> None:
    e = under({"name": "scaled", "clients": [0, 2], "factor": 3.0})
    assert e.attack == Scaled(clients=(0, 2), factor=3.0)
    assert Experiment.read(tomllib.loads(e.toml())) == e
    assert tomllib.loads(e.toml())["attack"] == {"name": "scaled", "clients": [0, 2], "factor": 3.0}


@pytest.mark.parametrize(
    ("attack", "sentence"),
    [
        ("sign_flip", "attack.clients is missing"),
        ({"name": "sign_flop", "clients": 1}, "attack = 'sign_flop': is not known; did you mean"),
        ({"name": "sign_flip", "clients": 0}, "attack.clients = 0: must be greater than or equal"),
        ({"name": "gaussian", "clients": 1, "sigma": 0.0}, "attack.sigma = 0.0: must be greater"),
        ({"name": "ipm", "clients": 1, "eps": 1.0}, "attack.eps is not a setting"),
    ],
)
def test_wrong_settings_are_answered_without_torch(attack: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        under(attack)
    with pytest.raises(BadInput, match=sentence):
        precheck(settings(attack=attack))


@pytest.mark.parametrize(
    ("attack", "sentence"),
    [
        (SignFlip(clients=6), "attack.clients = 6: must be fewer than the 6 clients"),
        (SignFlip(clients=(1, 6)), r"attack.clients = \[1, 6\]: there is no client 6; the clients"),
        (SignFlip(clients=(1, 1)), r"attack.clients = \[1, 1\]: names a client twice"),
        (SignFlip(clients=()), r"attack.clients = \[\]: must name at least one client"),
        (SignFlip(clients=tuple(range(6))), "must name at least one client, and not all 6"),
        (TrimmedMean(), "must be derived from fedadb.Attack"),
        (SignFlip, "attack: SignFlip is a class; give"),
    ],
)
def test_attackers_must_be_some_of_the_clients(attack: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        under(attack)


def test_real_sites_refuse_an_attack() -> None:
    sentence = "attacks are for simulations, and these sites are real; leave it out"
    with pytest.raises(BadInput, match=sentence):
        shared_experiment(under(SignFlip(clients=1)))


# runs


def final(directory: Path) -> Any:
    return read_tensors(directory / "model.safetensors", "")[0]


@pytest.mark.parametrize("name", ATTACKS)
def test_a_small_run_of_each_attack(name: str, tmp_path: Path) -> None:
    """It changes the result, a robust mean takes it, and it resumes bit by bit."""
    table = {"name": name, "clients": 2}
    if name == "alie":
        table |= {"z": 1.5}  # with 2 of 6 attackers, the automatic one is small
    e = under(table, rounds=2, filter=[{"name": "trimmed_mean", "f": 2}])
    whole = run(e, tmp_path / "whole")
    partition = json.loads((tmp_path / "whole" / "partition.json").read_text())
    assert partition["attackers"] == sorted(attackers(e))
    with start_run(e, tmp_path / "resumed") as interrupted:
        next(interrupted.rounds)
    run(e, tmp_path / "resumed")
    ours, theirs = final(tmp_path / "whole"), final(tmp_path / "resumed")
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    honest = run(under(None, rounds=2, filter=[{"name": "trimmed_mean", "f": 2}]), tmp_path / "no")
    assert whole.rounds[-1]["loss"] != honest.rounds[-1]["loss"]


def test_the_mean_fails_where_a_robust_mean_does_not(tmp_path: Path) -> None:
    partition = {"name": "iid"}
    federation = {"clients": 6, "participation": 1.0, "partition": partition}
    given = {"federation": federation, "rounds": 3, "local": {"epochs": 2, "lr": 0.1}}
    noise = {"name": "gaussian", "clients": 1, "sigma": 10.0}
    mean = run(under(noise, **given), tmp_path / "mean").accuracy[-1]
    median = run(under(noise, filter=[{"name": "median"}], **given), tmp_path / "median")
    assert mean < 0.5 < median.accuracy[-1]


def test_workers_and_stacked_cohorts_are_attacked_too(tmp_path: Path) -> None:
    e = under(SignFlip(clients=2), rounds=1)
    one = run(e, tmp_path / "one")
    two = run(under(SignFlip(clients=2), rounds=1, engine={"workers": 2}), tmp_path / "two")
    assert one.accuracy == two.accuracy
    stacked = under(SignFlip(clients=2), rounds=1, engine={"cohort": "stacked"})
    loss = run(stacked, tmp_path / "stacked").rounds[-1]["loss"]
    assert loss == pytest.approx(one.rounds[-1]["loss"], rel=1e-3)


def test_attackers_train_on_flipped_labels_and_others_do_not() -> None:
    e = under(LabelFlip(clients=2))
    with simulation(e, no_progress) as flipped, simulation(under(None), no_progress) as plain:
        for k, shard in enumerate(flipped.federated.shards):
            labels = plain.federated.shards[k].labels
            assert torch.equal(shard.labels, 9 - labels if k in attackers(e) else labels)
        assert flipped.data == plain.data


def test_an_attacker_does_not_clip_its_own_update(tmp_path: Path) -> None:
    clip = [{"name": "clip", "norm": 0.01}]
    noise = Gaussian(clients=1, sigma=1.0)
    end = run(under(noise, rounds=1, filter=clip), tmp_path / "noise").weights()
    start = run(under(None, rounds=1, filter=clip), tmp_path / "plain").weights()
    assert sum(float((end[key] - start[key]).square().sum()) for key in end) > 1


def test_an_attack_of_ones_own_is_part_of_the_name() -> None:
    e = under({"name": "tests.attacks.own_attack:Lazy", "clients": 1})
    assert e.table()["attack"]["name"] == "tests.attacks.own_attack:Lazy"
    assert run_name(e) != run_name(Experiment(**settings()))


def test_an_attack_on_compressed_uploads_is_refused() -> None:
    settings = {"attack": {"name": "sign_flip", "clients": 1}, "filter": [{"name": "int8"}]}
    with pytest.raises(BadInput, match="attack: attackers replace whole weights, but Int8"):
        Experiment.read(settings)
