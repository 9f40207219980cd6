"""Sites as a cohort, over Flower's messages: the same numbers, whatever goes wrong at a site."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message

from fedadb.algorithms import ALGORITHMS
from fedadb.core.errors import BadInput, Fault
from fedadb.deploy import exchange, flower, sites, wire
from fedadb.deploy.client_app import app
from fedadb.deploy.server_app import federate_sites
from fedadb.storage.records import read_records
from fedadb.storage.tensorfile import read_tensors
from fedadb.experiment.build import sample
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from fedadb.export.write import export
from fedadb.report.groups import arrange
from fedadb.report.runs import read
from fedadb.report.tables import domains
from tests.deploy.grid import Handler, InProcess, Node

pytestmark = pytest.mark.integration

CLIENTS = 4


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "POLL", 0.01)
    monkeypatch.setattr(flower, "BREATH", 0.01)
    monkeypatch.setattr(sites, "PAUSE", 0.01)


def experiment(algorithm: Any = "fedavg", rounds: int = 3, **deployment: Any) -> Experiment:
    return Experiment.read(
        {
            "rounds": rounds,
            "algorithm": algorithm,
            "local": {"epochs": 1},
            "federation": {"clients": CLIENTS, "participation": 0.5},
            "deployment": deployment,
        }
    )


def nodes(handles: dict[int, Handler] | None = None) -> list[Node]:
    return [Node({"partition-id": k}, handle=(handles or {}).get(k, app)) for k in range(CLIENTS)]


def federate(e: Experiment, out: Path, grid: InProcess) -> list[dict[str, Any]]:
    return list(federate_sites(grid, e, out))


def weights(out: Path) -> dict[str, torch.Tensor]:
    return read_tensors(out / "model.safetensors", "")[0]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    e = experiment({"name": "fedadb", "steps": 2} if name == "fedadb" else name)
    here = run(e, tmp_path / "here")
    there = federate(e, tmp_path / "there", InProcess(e.toml(), nodes()))
    for one, other in zip(here.rounds, there, strict=True):
        for key in one.keys() - {"seconds", "cag_seconds"}:
            assert other[key] == one[key], key
    expected, got = weights(tmp_path / "here"), weights(tmp_path / "there")
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def spoiled(change: Any, when: int = 2) -> Handler:
    """A site whose reply of one round is changed on its way."""

    def handle(message: Message, context: Context) -> Message:
        answer = app(message, context)
        if message.metadata.message_type == "train" and message.metadata.group_id == str(when):
            tensors = change(wire.tensors_of(answer.content))
            return Message(wire.content({}, wire.payload(tensors)), reply_to=message)
        return answer

    return handle


def not_finite(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    name = next(name for name in tensors if name.startswith("w/"))
    return {**tensors, name: tensors[name] * torch.nan}


def other_shape(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    name = next(name for name in tensors if name.startswith("w/"))
    return {**tensors, name: tensors[name].flatten()[1:].clone()}


def other_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.replace("w/body", "w/torso"): t for name, t in tensors.items()}


def other_dtype(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n: t.double() if n.startswith("w/") else t for n, t in tensors.items()}


def more_rows(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**tensors, "examples": tensors["examples"] * 1000}


def far_away(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n: t + 100 if n.startswith("w/") else t for n, t in tensors.items()}


def other_kind(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n: t.to(torch.float8_e4m3fn) if n.startswith("w/") else t for n, t in tensors.items()}


def too_far(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n: t + 3e38 if n.startswith("w/") else t for n, t in tensors.items()}


def more_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**tensors, "measured/../../x": torch.tensor(1.0)}


def complex_numbers(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**tensors, "measured/x": torch.tensor(1j)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (not_finite, "its weights are not finite"),
        (other_shape, "the model has"),
        (other_names, "is missing; there is"),
        (other_dtype, "is torch.float64; the model's weights are torch.float32"),
        (more_rows, "it says that it trained on"),
        (far_away, "and deployment.norm_bound is 50"),
        (too_far, "its weights are inf from what was sent"),
        (other_kind, "is torch.float8_e4m3fn; the model's weights are"),
        (more_names, "is not what a reply has"),
        (complex_numbers, "is not what a reply has"),
    ],
)
def test_a_reply_that_is_wrong_is_dropped_and_told(
    change: Any, reason: str, tmp_path: Path
) -> None:
    e = experiment(norm_bound=50.0)
    whole = federate(e, tmp_path / "whole", InProcess(e.toml(), nodes()))
    k = whole[1]["clients"][0]
    grid = InProcess(e.toml(), nodes({k: spoiled(change)}))
    got = federate(e, tmp_path / "run", grid)
    assert reason in got[1]["lost"][f"client-{k}"]
    assert got[1]["clients"] == [c for c in whole[1]["clients"] if c != k]
    assert "lost" not in got[2]
    assert read_records(tmp_path / "run" / "rounds.jsonl") == got
    assert all(t.isfinite().all() for t in weights(tmp_path / "run").values())


def failing(message: Message, context: Context) -> Message:
    if message.metadata.message_type == "train":
        raise ZeroDivisionError("of all things")
    return app(message, context)


def silent(message: Message, context: Context) -> Message:
    if message.metadata.message_type == "train":
        raise TimeoutError
    return app(message, context)


@pytest.mark.parametrize(
    ("handle", "reason"),
    [(failing, "ZeroDivisionError: of all things"), (silent, "did not answer within 0.3 s")],
)
def test_a_site_that_fails_does_not_stop_the_others(
    handle: Handler, reason: str, tmp_path: Path
) -> None:
    e = experiment(deadline=0.3)
    got = federate(e, tmp_path, InProcess(e.toml(), nodes({0: handle})))
    lost = [line["lost"] for line in got if "lost" in line]
    assert lost
    assert all(of == {"client-0": reason} for of in lost)


def test_too_few_replies_end_the_run_and_it_goes_on_later(tmp_path: Path) -> None:
    e = experiment("feddyn", deadline=0.3, min_replies=2, retries=1)
    whole = federate(e, tmp_path / "whole", InProcess(e.toml(), nodes()))
    k = whole[1]["clients"][0]
    asked: list[int] = []

    def broken(message: Message, context: Context) -> Message:
        if message.metadata.group_id == "2":
            asked.append(k)
            raise RuntimeError("not today")
        return app(message, context)

    sites_ = nodes({k: broken})
    grid = InProcess(e.toml(), sites_)
    with pytest.raises(
        Fault, match=rf"round 2: 1 of 2 sites replied and 2 are needed \(client-{k}:"
    ):
        federate(e, tmp_path / "run", grid)
    assert len(asked) == 2  # once more than the first time
    assert len(read_records(tmp_path / "run" / "rounds.jsonl")) == 1
    sites_[k].handle = app
    # A site that trained in the failed round trains in it again, from what it knew before it.
    federate(e, tmp_path / "run", grid)
    expected, got = weights(tmp_path / "whole"), weights(tmp_path / "run")
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_what_a_site_measures_cannot_replace_what_is_recorded(tmp_path: Path) -> None:
    e = experiment()

    def boast(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {**tensors, "measured/accuracy": torch.tensor(2.0), "measured/round": torch.ones(())}

    honest = federate(e, tmp_path / "honest", InProcess(e.toml(), nodes()))
    k = honest[1]["clients"][0]
    got = federate(e, tmp_path / "run", InProcess(e.toml(), nodes({k: spoiled(boast)})))
    assert [line["accuracy"] for line in got] == [line["accuracy"] for line in honest]
    assert [line["round"] for line in got] == [1, 2, 3]


def test_a_dropped_reply_leaves_no_trace_in_what_the_site_remembers(tmp_path: Path) -> None:
    """As if the site had been away: FedDyn's h has no part of that g either."""
    e = experiment("feddyn", rounds=6)
    whole = federate(e, tmp_path / "whole", InProcess(e.toml(), nodes()))
    k = whole[1]["clients"][0]

    def away(message: Message, context: Context) -> Message:
        if message.metadata.group_id == "2":
            raise RuntimeError("away")
        return app(message, context)

    federate(e, tmp_path / "away", InProcess(e.toml(), nodes({k: away})))
    federate(e, tmp_path / "dropped", InProcess(e.toml(), nodes({k: spoiled(not_finite)})))
    expected, got = weights(tmp_path / "away"), weights(tmp_path / "dropped")
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def strange(said: dict[str, Any]) -> Handler:
    """A site that introduces itself in its own way."""

    def handle(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "query":
            return Message(wire.content(said), reply_to=message)
        return app(message, context)

    return handle


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"site": "x", "partition": 0}, "does not say who it is: 'rows'"),
        ({"site": "x", "partition": 0, "rows": "many"}, "does not say who it is: invalid literal"),
        ({"site": "x", "partition": 0, "rows": -5}, "it has -5 rows"),
        ({"site": "", "partition": -1, "rows": 5}, "its configuration must say site"),
    ],
)
def test_a_strange_introduction_is_refused(
    said: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    e = experiment(wait=0.2)
    with pytest.raises(Fault, match=reason):
        federate(e, tmp_path, InProcess(e.toml(), nodes({1: strange(said)})))


def test_a_site_that_is_away_is_lost_and_comes_back(tmp_path: Path) -> None:
    e = experiment(min_replies=1)
    grid = InProcess(e.toml(), nodes())
    rounds = federate_sites(grid, e, tmp_path)
    first = next(rounds)
    away = sample(e.federation, e.seed, 2)[0]
    grid.nodes[100 + away].connected = False
    second = next(rounds)
    grid.nodes[100 + away].connected = True
    third = next(rounds)
    assert "lost" not in first
    assert second["lost"] == {f"client-{away}": "is not connected"}
    assert "lost" not in third


def test_who_comes_is_checked_before_anything_is_trained(tmp_path: Path) -> None:
    e = experiment(wait=0.2)
    with pytest.raises(Fault, match=r"0\.2 s: 2 of 4 sites are here \(client-0, client-1\)"):
        federate(e, tmp_path, InProcess(e.toml(), nodes()[:2]))
    named = [Node({"partition-id": k}, name="north") for k in range(CLIENTS)]
    with pytest.raises(BadInput, match="nodes 100 and 101 both say that they are 'north'"):
        federate(e, tmp_path, InProcess(e.toml(), named))
    five = [Node({"partition-id": 0}, name=f"s{i}") for i in range(5)]
    with pytest.raises(BadInput, match=r"5 sites are connected .*federation\.clients = 4"):
        federate(e, tmp_path, InProcess(e.toml(), five))
    other = experiment(wait=0.2).table()
    other["local"]["lr"] = 0.5
    with pytest.raises(Fault, match=r"local\.lr is 0\.05 there and 0.5 here; give both the same"):
        federate(e, tmp_path, InProcess(Experiment.read(other).toml(), nodes()))
    assert not (tmp_path / "rounds.jsonl").exists()


def test_sites_test_the_model_on_their_own_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for k in range(CLIENTS):
        y = np.repeat([k, (k + 1) % 4], 20)
        x = rng.integers(0, 60, (40, 28, 28), dtype=np.uint8)
        x[np.arange(40), y] += 150
        np.savez(tmp_path / f"{k}.npz", x=x, y=y, classes=np.array(["a", "b", "c", "d"]))
    e = experiment(
        wait=2.0, evaluate="sites", classes=["a", "b", "c", "d"], shape=[1, 28, 28], rounds=2
    )
    own = [
        Node({"data": f"npz:{tmp_path / f'{k}.npz'}", "state": str(tmp_path / f"s{k}")}, f"h{k}")
        for k in range(CLIENTS)
    ]
    got = federate(e, tmp_path / "run", InProcess(e.toml(), own))
    for line in got:
        assert len(line["domain_accuracy"]) == CLIENTS
        pooled = sum(line["domain_accuracy"]) / CLIENTS  # all have as many
        assert line["accuracy"] == pytest.approx(pooled)
        assert len(line["class_accuracy"]) == 4
    held = json.loads((tmp_path / "run" / "partition.json").read_text())
    assert held["domains"] == ["h0", "h1", "h2", "h3"]
    # The server has no data, and yet a model that can be exported.
    export(tmp_path / "run", tmp_path / "model.safetensors", None)
    assert (tmp_path / "model.safetensors").exists()


def test_a_site_that_cannot_test_is_left_out_of_the_table(tmp_path: Path) -> None:
    def lying(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "evaluate":
            said = {"loss": 0.0, "right": [9] * 10, "rows": [1] * 10}
            return Message(wire.content(said), reply_to=message)
        return app(message, context)

    e = experiment(evaluate="both", rounds=2)
    got = federate(e, tmp_path / "run", InProcess(e.toml(), nodes({1: lying})))
    # Simulated sites have no test images at all, and the fourth of them says what cannot be.
    assert got[-1]["domain_accuracy"] == [None] * CLIENTS
    assert domains(arrange([read(tmp_path / "run")])) is not None
