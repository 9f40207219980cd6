"""Differentially private federations of real sites: secret chance, and records that hide it."""

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy.client_app import app
from fedadb.deploy.messages import make_content, table_in, tensor_record, tensors_in
from fedadb.deploy.secret_random import LOG, normals, open_secrets, uniforms
from fedadb.deploy.server_app import reported, status_file, train_with_sites
from fedadb.experiment.config import Experiment
from fedadb.experiment.settings import Federation
from fedadb.filters.accounting import Accountant
from fedadb.report.comparison import arrange
from fedadb.report.page_data import page_data
from fedadb.report.recorded_runs import collect_runs
from fedadb.storage.records import Record, read_records
from fedadb.storage.tensorfile import read_tensors
from tests.deploy.fake_grid import CLIENTS, FakeGrid, Handler, nodes

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("clock")]

ACCOUNTANT = Accountant(CLIENTS, 0.5, poisson=True)
DELTA = CLIENTS**-1.1


def private(algorithm: str = "fedavg", **federation: Any) -> Experiment:
    return Experiment.read(
        {
            "rounds": 4,
            "algorithm": algorithm,
            "filter": [{"name": "dp", "norm": 0.02, "noise": 1.0}],
            "local": {"epochs": 1},
            "federation": {
                "clients": CLIENTS,
                "participation": 0.5,
                "sampling": "poisson",
                **federation,
            },
        }
    )


def train(e: Experiment, folder: Path, handles: dict[int, Handler] | None = None) -> list[Record]:
    grid = FakeGrid(e.toml(), nodes(handles))
    return list(train_with_sites(grid, e, folder / "run", private=folder / "private"))


def secrets_of(folder: Path) -> Path:
    (directory,) = (folder / "private").iterdir()
    return directory


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (secrets_of(folder) / LOG).read_text().splitlines()]


# chance


def test_normal_numbers_are_those_of_the_published_key() -> None:
    expected = [0.57882063, 0.90129747, 0.36552661, -2.09055404, 0.23125376, 1.06552924]
    np.testing.assert_allclose(normals(bytes(32), 6), expected, atol=1e-8)
    np.testing.assert_allclose(normals(bytes(32), 5), expected[:5], atol=1e-8)


def test_drawn_numbers_have_the_moments_that_they_should() -> None:
    normal, uniform = normals(bytes(32), 200_000), uniforms(bytes(32), 200_000)
    assert abs(normal.mean()) < 0.01
    assert abs(normal.std() - 1) < 0.01
    assert abs((normal**4).mean() - 3) < 0.1
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.005


def test_a_round_that_is_tried_again_draws_other_clients_and_other_noise(tmp_path: Path) -> None:
    """The same noise on other replies would reveal how the replies differ."""
    federation = Federation(clients=1000, participation=0.5, sampling="poisson")
    source = open_secrets(tmp_path / "secrets", federation, 0)
    first, noise = source.sample(1), source.normals(1, "update", 4)
    assert source.releases(1) == 1
    assert torch.equal(noise, source.normals(1, "update", 4))
    assert not torch.equal(noise, source.normals(1, "count", 4))
    second = source.sample(1)
    assert source.releases(1) == 2
    assert first != second
    assert not torch.equal(noise, source.normals(1, "update", 4))
    assert open_secrets(tmp_path / "secrets", federation, 1).releases(1) == 2


def test_a_server_that_was_restored_from_a_backup_draws_other_noise(tmp_path: Path) -> None:
    """Its notes are those of before, so that nothing on the disk may decide on the noise."""
    noise = []
    for name in ("server", "backup"):
        source = open_secrets(tmp_path / name, Federation(clients=3), 0)
        source.sample(1)
        noise.append(source.normals(1, "update", 4))
    assert not torch.equal(*noise)


def test_the_secrets_belong_to_their_owner(tmp_path: Path) -> None:
    source = open_secrets(tmp_path / "secrets", Federation(clients=3), 0)
    source.sample(1)
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == [LOG]  # and no key
    assert stat.S_IMODE((tmp_path / "secrets" / LOG).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    assert source.keys[1].hex() not in (tmp_path / "secrets" / LOG).read_text()
    assert "keys" not in repr(source)


def test_a_status_which_names_the_asked_sites_belongs_to_its_owner(tmp_path: Path) -> None:
    with reported(tmp_path / "run") as write_status:
        write_status("round 3: asked hospital-of-x")
        assert stat.S_IMODE(status_file(tmp_path / "run").stat().st_mode) == 0o600


def test_without_its_notes_a_run_cannot_be_counted(tmp_path: Path) -> None:
    federation = Federation(clients=3)
    open_secrets(tmp_path, federation, 0).sample(1)
    (tmp_path / LOG).unlink()
    with pytest.raises(Fault, match="without which ε cannot be counted"):
        open_secrets(tmp_path, federation, 1)


def test_a_note_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    """The process ended while it wrote the note, before anything was drawn."""
    federation = Federation(clients=3)
    open_secrets(tmp_path, federation, 0).sample(1)
    with (tmp_path / LOG).open("a") as file:
        file.write('{"rou')
    source = open_secrets(tmp_path, federation, 1)
    assert source.releases(1) == 1
    source.sample(2)
    assert open_secrets(tmp_path, federation, 2).releases(2) == 2


def test_whose_replies_were_used_is_known_after_a_restart(tmp_path: Path) -> None:
    source = open_secrets(tmp_path, Federation(clients=3), 0)
    for t, clients in ((1, [0, 2]), (2, [1]), (2, [0]), (3, [1])):
        source.sample(t)
        source.use(t, clients)
    assert open_secrets(tmp_path, Federation(clients=3), 2).used(2) == {1: [0, 2], 2: [0]}


# runs


def test_records_promise_epsilon_and_hide_who_took_part(tmp_path: Path) -> None:
    rounds = train(private("fedadb"), tmp_path)
    for t, record in enumerate(rounds, 1):
        assert record["epsilon"] == ACCOUNTANT.epsilon(1.0, t, DELTA)
        assert record["privacy"] == "one client added or removed"
        assert record["clients"] == []
        assert record["seconds"] is None
        assert not {"lost", "bytes_up", "tau", "gamma", "beta"} & record.keys()
    partition = json.loads((tmp_path / "run" / "partition.json").read_text())
    assert partition["counts"] == []
    assert LOG not in [path.name for path in (tmp_path / "run").rglob("*")]
    _, metadata = read_tensors(tmp_path / "run" / "model.safetensors", "")
    assert "simulated" not in metadata["privacy"]
    shown = page_data(arrange(collect_runs([tmp_path / "run"]).runs), "a title")
    assert shown["tables"]["privacy"]["rows"]
    asked = [line["asked"] for line in log(tmp_path) if "asked" in line]
    assert len(asked) == 4
    assert all(0 <= k < CLIENTS for clients in asked for k in clients)


def test_the_seed_does_not_tell_the_noise(tmp_path: Path) -> None:
    e = private()
    one, other = (train(e, tmp_path / name)[-1]["loss"] for name in ("one", "other"))
    assert one != other


def test_a_round_that_failed_counts_as_a_release(tmp_path: Path) -> None:
    """It may have been shown to someone, and its replies may have been others."""
    e = private(participation=1.0)

    def fails(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train" and message.metadata.group_id == "3":
            raise RuntimeError("out of memory")
        return app(message, context)

    with pytest.raises(Fault, match="round 3: 0 of 4 sites replied"):
        train(e, tmp_path, dict.fromkeys(range(CLIENTS), fails))
    train(e, tmp_path)
    everyone = Accountant(CLIENTS, 1.0, poisson=True)
    recorded = [r["epsilon"] for r in read_records(tmp_path / "run" / "rounds.jsonl")]
    assert recorded == [everyone.epsilon(1.0, n, DELTA) for n in (1, 2, 4, 5)]


def test_a_noisy_model_is_saved_before_a_site_receives_it(tmp_path: Path) -> None:
    """So a crash afterwards cannot make another model of the same noise."""
    saved: list[tuple[int, int]] = []

    def looks(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train":
            checkpoint = tmp_path / "run" / "checkpoint.safetensors"
            t = 0
            if checkpoint.exists():
                _, metadata = read_tensors(checkpoint, "")
                t = json.loads(metadata["round"])[0]
            saved.append((int(message.metadata.group_id), t))
        return app(message, context)

    train(private(participation=1.0), tmp_path, {0: looks})
    assert saved == [(1, 0), (2, 1), (3, 2), (4, 3)]


def test_sites_are_not_told_the_number_of_all_rows(tmp_path: Path) -> None:
    told: set[int] = set()

    def notes(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train":
            _, _, _, examples, _ = table_in(message.content)["round"]
            told.add(examples)
        return app(message, context)

    e = private(participation=1.0)
    grid = FakeGrid(e.toml(), nodes({0: notes}))
    next(train_with_sites(grid, e, tmp_path / "run", private=tmp_path / "private"))
    assert told == {CLIENTS}  # as if each had one row


def test_no_reply_is_dropped_because_of_the_others(tmp_path: Path) -> None:
    """deployment.median_bound compares replies; clipping bounds each by itself."""

    def far(message: Message, context: Context) -> Message:
        reply = app(message, context)
        if message.metadata.message_type != "train":
            return reply
        tensors = {
            name: t * 1e6 if name.startswith("upload/w/") else t
            for name, t in tensors_in(reply.content).items()
        }
        return Message(make_content({}, tensor_record(tensors)), reply_to=message)

    train(private(participation=1.0), tmp_path, {0: far})
    used = [line["used"] for line in log(tmp_path) if "used" in line]
    assert used == [[0, 1, 2, 3]] * 4


@pytest.mark.parametrize(
    ("federation", "place", "message"),
    [
        ({"sampling": "seeded"}, True, "use 'poisson', or participation = 1"),
        ({}, False, "use `fedadb deploy server`"),
    ],
)
def test_what_gives_chance_away_is_refused(
    tmp_path: Path, federation: dict[str, Any], place: bool, message: str
) -> None:
    e = private(**federation)
    secrets = tmp_path / "private" if place else None
    with pytest.raises(BadInput, match=message):
        list(train_with_sites(FakeGrid(e.toml(), nodes()), e, tmp_path / "run", private=secrets))


def test_without_the_filter_nothing_is_secret(tmp_path: Path) -> None:
    e = Experiment.read({**private().table(), "filter": []})
    rounds = train(e, tmp_path)
    assert all("epsilon" not in record for record in rounds)
    assert any(record["clients"] for record in rounds)
    assert not (tmp_path / "private").exists()
