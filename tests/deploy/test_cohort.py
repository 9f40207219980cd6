"""Sites as a cohort, over Flower's messages: correct results, whatever goes wrong at a site."""

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message

from fedadb.algorithms import ALGORITHMS
from fedadb.core.errors import Fault
from fedadb.deploy.client_app import app
from fedadb.deploy.cohort import RETRY_SECONDS
from fedadb.deploy.messages import make_content, tensor_record, tensors_in
from fedadb.deploy.server_app import train_with_sites
from fedadb.experiment.build import sample_clients
from fedadb.experiment.run import run
from fedadb.storage.records import read_records
from fedadb.storage.tensorfile import read_tensors
from tests.deploy.conftest import Clock
from tests.deploy.fake_grid import FakeGrid, Handler, experiment, nodes, train
from tests.deploy.federation import require_equal_weights
from tests.test_every_algorithm import QUICK

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("clock")]


@pytest.mark.parametrize("name", [*ALGORITHMS, "fedadam"])
def test_every_algorithm_is_bit_identical_to_a_simulation(name: str, tmp_path: Path) -> None:
    settings = {"steps": 2} if name == "fedadb" else QUICK.get(name, {})
    e = experiment({"name": name, **settings})
    simulated = run(e, tmp_path / "simulated").rounds
    trained = train(e, tmp_path / "sites", FakeGrid(e.toml(), nodes()))
    for expected, actual in zip(simulated, trained, strict=True):
        for key in expected.keys() - {"seconds", "cag_seconds"}:
            assert actual[key] == expected[key], key
    require_equal_weights(tmp_path / "simulated", tmp_path / "sites")


@pytest.mark.parametrize("name", ["int8", "top_k"])
def test_compressed_replies_are_bit_identical_to_a_simulation(name: str, tmp_path: Path) -> None:
    """The messages carry the small form, and the sites keep what they did not send."""
    e = experiment(filters=[{"name": "clip", "norm": 1.0}, {"name": name}], median_bound=3.0)
    sent: list[set[str]] = []

    def noted(message: Message, context: Context) -> Message:
        reply = app(message, context)
        if message.metadata.message_type == "train":
            sent.append(set(tensors_in(reply.content)))
        return reply

    simulated = run(e, tmp_path / "simulated").rounds
    grid = FakeGrid(e.toml(), nodes(dict.fromkeys(range(4), noted)))
    trained = train(e, tmp_path / "sites", grid)
    for expected, actual in zip(simulated, trained, strict=True):
        for key in expected.keys() - {"seconds"}:
            assert actual[key] == expected[key], key
    require_equal_weights(tmp_path / "simulated", tmp_path / "sites")
    parts = {"int8": {"q", "a"}, "top_k": {"positions", "values"}}[name]
    assert sent == [{"examples", *(f"upload/{part}" for part in parts)}] * 6


def tampered(change: Any) -> Handler:
    """A site whose reply of round 2 is changed on its way."""

    def handle(message: Message, context: Context) -> Message:
        reply = app(message, context)
        if message.metadata.message_type == "train" and message.metadata.group_id == "2":
            tensors = change(tensors_in(reply.content))
            return Message(make_content({}, tensor_record(tensors)), reply_to=message)
        return reply

    return handle


def not_finite(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    name = next(name for name in tensors if name.startswith("upload/w/"))
    return {**tensors, name: tensors[name] * torch.nan}


def other_shape(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    name = next(name for name in tensors if name.startswith("upload/w/"))
    return {**tensors, name: tensors[name].flatten()[1:].clone()}


def other_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.replace("upload/w/body", "upload/w/torso"): t for name, t in tensors.items()}


def fewer_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    first = next(name for name in tensors if name.startswith("upload/w/"))
    return {name: tensor for name, tensor in tensors.items() if name != first}


def other_dtype(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n: t.double() if n.startswith("upload/w/") else t for n, t in tensors.items()}


def more_rows(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**tensors, "examples": tensors["examples"] * 1000}


def far_away(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n: t + 1 if n.startswith("upload/w/") else t for n, t in tensors.items()}


def other_kind(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        n: t.to(torch.float8_e4m3fn) if n.startswith("upload/w/") else t for n, t in tensors.items()
    }


def too_far(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n: t + 3e38 if n.startswith("upload/w/") else t for n, t in tensors.items()}


def more_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**tensors, "measured/../../x": torch.tensor(1.0)}


def complex_numbers(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**tensors, "measured/x": torch.tensor(1j)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (not_finite, " is not finite"),
        (other_shape, "; expected is torch.float32 of shape"),
        (other_names, "is not part of a reply"),
        (fewer_names, "is missing; found"),
        (other_dtype, "is torch.float64 of shape"),
        (more_rows, "rows, but has"),
        (far_away, "away from the received ones; norm_bound is 50"),
        (too_far, "away from the received ones; by the"),
        (other_kind, "is torch.float8_e4m3fn of shape"),
        (more_names, "is not part of a reply"),
        (complex_numbers, "is not part of a reply"),
    ],
)
def test_an_invalid_reply_is_dropped_and_its_reason_is_recorded(
    change: Any, reason: str, tmp_path: Path
) -> None:
    e = experiment(filters=[{"name": "norm_bound", "norm": 50.0}])
    k, *others = sample_clients(e.federation, e.seed, 2)
    grid = FakeGrid(e.toml(), nodes({k: tampered(change)}))
    records = train(e, tmp_path / "run", grid)
    assert reason in records[1]["lost"][f"client-{k}"]
    assert records[1]["clients"] == others
    assert "lost" not in records[2]
    assert read_records(tmp_path / "run" / "rounds.jsonl") == records
    weights, _ = read_tensors(tmp_path / "run" / "model.safetensors", "")
    assert all(tensor.isfinite().all() for tensor in weights.values())


def steps(factor: float) -> Any:
    return lambda tensors: {**tensors, "upload/a": tensors["upload/a"] * factor}


def same_position(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**tensors, "upload/positions": torch.zeros_like(tensors["upload/positions"])}


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("int8", steps(1e6), "away from the received ones; by the"),
        ("int8", steps(torch.nan), "upload/a is not finite"),
        ("int8", lambda t: {**t, "upload/a": torch.full_like(t["upload/a"], 3e38)}, "weights are"),
        ("int8", lambda t: {**t, "upload/q": t["upload/q"].float()}, "upload/q is torch.float32"),
        ("top_k", same_position, "its positions do not increase from 0"),
        ("top_k", lambda t: {**t, "upload/values": t["upload/values"] * 1e6}, "; by the"),
    ],
)
def test_an_invalid_compressed_reply_is_dropped(
    name: str, change: Any, reason: str, tmp_path: Path
) -> None:
    e = experiment(filters=[{"name": name}], rounds=2)
    k, *others = sample_clients(e.federation, e.seed, 2)
    records = train(e, tmp_path / "run", FakeGrid(e.toml(), nodes({k: tampered(change)})))
    assert reason in records[1]["lost"][f"client-{k}"]
    assert records[1]["clients"] == others


def failing(message: Message, context: Context) -> Message:
    if message.metadata.message_type == "train":
        raise ZeroDivisionError("of all things")
    return app(message, context)


def silent(message: Message, context: Context) -> Message:
    if message.metadata.message_type == "train":
        raise TimeoutError
    return app(message, context)


def offline(message: Message, context: Context) -> Message:
    if message.metadata.message_type == "train":
        raise ConnectionError
    return app(message, context)


@pytest.mark.parametrize(
    ("handle", "reason"),
    [
        (failing, "ZeroDivisionError: of all things"),
        (silent, "did not reply within 40 s"),
        (offline, "disconnected"),
    ],
)
def test_a_site_that_fails_does_not_stop_the_others(
    handle: Handler, reason: str, tmp_path: Path
) -> None:
    e = experiment(deadline=40.0)
    records = train(e, tmp_path, FakeGrid(e.toml(), nodes({0: handle})))
    lost = [record["lost"] for record in records if "lost" in record]
    assert lost
    assert all(of_round == {"client-0": reason} for of_round in lost)


def test_the_deadline_is_measured_from_the_message(clock: Clock, tmp_path: Path) -> None:
    e = experiment(rounds=1, deadline=40.0, min_replies=1, retries=0)
    asked = sample_clients(e.federation, e.seed, 1)
    train(e, tmp_path, FakeGrid(e.toml(), nodes({asked[0]: silent})))
    assert 40 <= clock.now < 41


@pytest.mark.parametrize("algorithm", ["feddyn", "scaffold"])
def test_too_few_replies_end_the_run_which_can_be_resumed(
    algorithm: str, clock: Clock, tmp_path: Path
) -> None:
    e = experiment(algorithm, min_replies=2, retries=1)
    train(e, tmp_path / "complete", FakeGrid(e.toml(), nodes()))
    k = sample_clients(e.federation, e.seed, 2)[0]
    attempts: list[float] = []

    def broken(message: Message, context: Context) -> Message:
        if message.metadata.group_id == "2":
            attempts.append(clock.now)
            raise RuntimeError("not today")
        return app(message, context)

    sites = nodes({k: broken})
    grid = FakeGrid(e.toml(), sites)
    with pytest.raises(
        Fault, match=rf"round 2: 1 of 2 sites replied, but 2 are needed \(client-{k}:"
    ):
        train(e, tmp_path / "run", grid)
    first, second = attempts
    assert second - first >= RETRY_SECONDS
    assert len(read_records(tmp_path / "run" / "rounds.jsonl")) == 1
    sites[k].handle = app
    # The other site trained in the failed round. It repeats the round from its earlier memory.
    train(e, tmp_path / "run", grid)
    require_equal_weights(tmp_path / "complete", tmp_path / "run")
    run(e, tmp_path / "simulated")
    require_equal_weights(tmp_path / "simulated", tmp_path / "run")


def test_a_measurement_cannot_replace_another_key_of_the_record(tmp_path: Path) -> None:
    e = experiment()

    def forge(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {**tensors, "measured/accuracy": torch.tensor(2.0), "measured/round": torch.ones(())}

    honest = train(e, tmp_path / "honest", FakeGrid(e.toml(), nodes()))
    k = sample_clients(e.federation, e.seed, 2)[0]
    forged = train(e, tmp_path / "forged", FakeGrid(e.toml(), nodes({k: tampered(forge)})))
    assert [record["accuracy"] for record in forged] == [record["accuracy"] for record in honest]
    assert [record["round"] for record in forged] == [1, 2, 3]


@pytest.mark.parametrize("algorithm", ["feddyn", "scaffold"])
def test_a_dropped_reply_does_not_change_the_sites_memory(algorithm: str, tmp_path: Path) -> None:
    """The result is as if the site had been away: FedDyn's h has no part of that g either."""
    e = experiment(algorithm, rounds=6)
    k = sample_clients(e.federation, e.seed, 2)[0]

    def away(message: Message, context: Context) -> Message:
        if message.metadata.group_id == "2":
            raise RuntimeError("away")
        return app(message, context)

    train(e, tmp_path / "away", FakeGrid(e.toml(), nodes({k: away})))
    train(e, tmp_path / "dropped", FakeGrid(e.toml(), nodes({k: tampered(not_finite)})))
    require_equal_weights(tmp_path / "away", tmp_path / "dropped")


def test_a_disconnected_site_is_lost_until_it_reconnects(tmp_path: Path) -> None:
    e = experiment(min_replies=1)
    grid = FakeGrid(e.toml(), nodes())
    rounds = train_with_sites(grid, e, tmp_path)
    first = next(rounds)
    away = sample_clients(e.federation, e.seed, 2)[0]
    grid.nodes[100 + away].connected = False
    second = next(rounds)
    grid.nodes[100 + away].connected = True
    third = next(rounds)
    assert "lost" not in first
    assert second["lost"] == {f"client-{away}": "is not connected"}
    assert "lost" not in third


def test_a_round_waits_for_sites_without_which_it_cannot_begin(
    clock: Clock, tmp_path: Path
) -> None:
    """A site that is restarted between two rounds is not there for a while."""
    e = experiment(min_replies=2, retries=0, reconnect=60.0)
    grid, statuses = FakeGrid(e.toml(), nodes()), list[str]()
    rounds = train_with_sites(grid, e, tmp_path, on_status=statuses.append)
    next(rounds)
    k = sample_clients(e.federation, e.seed, 2)[0]
    node = grid.nodes[100 + k]
    node.connected = False
    clock.at(clock.now + 59, lambda: setattr(node, "connected", True))
    assert "lost" not in next(rounds)
    assert f"round 2: waits for client-{k} to connect" in statuses
    assert clock.now < 70


def test_a_round_waits_for_no_longer_than_reconnect(clock: Clock, tmp_path: Path) -> None:
    e = experiment(min_replies=2, retries=0, reconnect=60.0)
    grid = FakeGrid(e.toml(), nodes())
    rounds = train_with_sites(grid, e, tmp_path)
    next(rounds)
    k = sample_clients(e.federation, e.seed, 2)[0]
    grid.nodes[100 + k].connected = False
    began = clock.now
    with pytest.raises(Fault, match=f"client-{k}: is not connected"):
        next(rounds)
    assert 60 <= clock.now - began < 65
