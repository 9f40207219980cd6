"""What the storm found, each with the shortest input that showed it."""

import errno
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

import fedadb
from fedadb.core.errors import BadInput, Fault
from fedadb.datasets.own import load_npz
from fedadb.deploy import accepted_sites, site_keys
from fedadb.deploy.secret_random import LOG, open_secrets
from fedadb.experiment.disclosure import disclosures
from fedadb.experiment.settings import Federation
from fedadb.export.classifier import card_from_strings
from fedadb.export.safetensors_file import SafetensorsModel, read_safetensors
from fedadb.report.recorded_runs import read_recorded_run
from fedadb.storage.files import write_atomically
from fedadb.storage.tensorfile import write_tensors
from storm.readers.runs import run_files
from storm.traces import difference, results
from tests.command_line import invoke
from tests.test_cli_tune import TINY


def test_a_damaged_list_of_registered_sites(tmp_path: Path) -> None:
    (tmp_path / accepted_sites.REGISTERED).write_bytes(b"")
    with pytest.raises(Fault, match=r"registered\.json is damaged"):
        accepted_sites.registered_keys(tmp_path)


@pytest.mark.parametrize(
    ("file", "valid", "damaged"),
    [
        ("rounds.jsonl", '"bytes_down": 4', '"bytes_down": null'),
        ("rounds.jsonl", '"loss": 1.0', f'"loss": {10**400}'),
        ("experiment.toml", 'name = "sgd"', "name = []"),
    ],
)
def test_a_run_directory_with_a_value_that_is_none(
    file: str, valid: str, damaged: str, tmp_path: Path
) -> None:
    for name, content in run_files().items():
        (tmp_path / name).write_bytes(content)
    assert len(read_recorded_run(tmp_path).rounds) == 3
    text = (tmp_path / file).read_text()
    assert valid in text
    (tmp_path / file).write_text(text.replace(valid, damaged, 1))
    with pytest.raises(Fault, match=f"{file} is damaged"):
        read_recorded_run(tmp_path)


def test_an_npz_file_with_a_long_damaged_header(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00\xff\xff" + b"x" * 65_535)
    with pytest.raises(BadInput, match=r"is not an \.npz file") as refused:
        load_npz(path)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("note", [b"1", b"{}", b'{"round": "1"}', b"[" * 100_000])
def test_notes_of_a_private_run_that_are_none(note: bytes, tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(note + b"\n")
    with pytest.raises(Fault, match="lacks notes of the 1 recorded rounds"):
        open_secrets(tmp_path, Federation(10, 0.5), 1)


def test_a_report_of_a_run_whose_settings_are_damaged() -> None:
    table = fedadb.Experiment(rounds=3).table()
    table["deployment"]["min_replies"] = ""
    assert disclosures(table)


def test_an_npz_file_with_a_member_that_is_no_array(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, y=np.arange(20) % 2)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", b"")
    with pytest.raises(BadInput, match="file of plain arrays: 'x' is none"):
        load_npz(path)


@pytest.mark.parametrize("experiment", ["", "model = 1", "[model]\nname = 3\n[algorithm]\n"])
def test_an_exported_model_without_an_algorithm(experiment: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    card = {"classes": ["a"], "shape": [1, 28, 28], "mean": [0.5], "std": [0.5], "frozen": 0}
    strings = {name: json.dumps(value) for name, value in card.items()}
    write_tensors(path, {"a": torch.zeros(2)}, {**strings, "experiment": experiment})
    with pytest.raises(BadInput, match="has no model or no algorithm; export it again"):
        read_safetensors(path)


@pytest.mark.parametrize(("hidden", "side"), [([1_000_000_000, 1_000_000_000], 28), ([9], 65_535)])
def test_an_exported_model_that_no_machine_could_hold(
    hidden: list[int], side: int, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    card = {"classes": ["a"], "shape": [1, side, side], "mean": [0.5], "std": [0.5], "frozen": 0}
    strings = {name: json.dumps(value) for name, value in card.items()}
    experiment = f'[model]\nname = "mlp"\nhidden = {hidden}\n[algorithm]\nname = "fedavg"\n'
    weights = {"head.weight": torch.zeros(1, 9), "head.bias": torch.zeros(1)}
    write_tensors(path, weights, {**strings, "experiment": experiment})
    with pytest.raises(Fault, match="its weights do not fit its experiment; export it again"):
        read_safetensors(path)


def test_an_exported_model_whose_head_takes_other_features_than_its_body_has(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.safetensors"
    card = {"classes": ["a"], "shape": [1, 2, 2], "mean": [0.5], "std": [0.5], "frozen": 0}
    strings = {name: json.dumps(value) for name, value in card.items()}
    experiment = '[model]\nname = "mlp"\nhidden = []\n[algorithm]\nname = "fedavg"\n'
    weights = {"head.weight": torch.zeros(1, 9), "head.bias": torch.zeros(1)}
    write_tensors(path, weights, {**strings, "experiment": experiment})
    with pytest.raises(Fault, match="its weights do not fit its experiment; export it again"):
        SafetensorsModel(path).probabilities(np.zeros((3, 1, 2, 2), np.float32))


@pytest.mark.parametrize("side", [0, -3, 65_536, 10**12])
def test_an_exported_model_for_images_that_cannot_be(side: int) -> None:
    card = {"classes": ["a"], "shape": [1, side, side], "mean": [0.5], "std": [0.5], "frozen": 0}
    strings = {name: json.dumps(value) for name, value in card.items()}
    with pytest.raises(BadInput, match="was not written by `fedadb export`"):
        card_from_strings({**strings, "experiment": ""}, Path("model.safetensors"))


def test_a_key_of_another_kind_is_no_key_of_a_site(tmp_path: Path) -> None:
    """The proxy would have ended with an AssertionError."""
    key = ed25519.Ed25519PrivateKey.generate()
    public, private = tmp_path / "site.pub", tmp_path / "site.key"
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    for path, require in (
        (public, site_keys.read_public_key),
        (private, site_keys.read_private_key),
    ):
        with pytest.raises(BadInput, match="it is of another kind"):
            require(path)


COMPRESSED = (
    b"ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABheOtbnuB+"
    b"dabs8IfxiykmXtIcOboJOrORjh49Dh2gPyNNQaBgc17XZxny/sPRv7P8H4yUag/dxYd9LkBkk/Ywg8y6"
    b"jujeQFXf5QNUBiXmOOpg4V+9K9ut5ZumZyVyEcf06g=="
)


def test_a_public_key_with_a_damaged_point(tmp_path: Path) -> None:
    """Cryptography raises NotImplementedError."""
    path = tmp_path / "site.pub"
    path.write_bytes(COMPRESSED)
    with pytest.raises(BadInput, match="is not a site's public key"):
        site_keys.read_public_key(path)


def test_a_write_of_a_search_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "searches/a.json")

    monkeypatch.setattr("fedadb.experiment.search.write_search", fail)
    words = ["tune", *TINY, "--algorithms", "fedavg", "--budget", 1, "--out", tmp_path / "out"]
    code, _, err = invoke(*words)
    assert code == 1
    assert err.startswith("fedadb: FedAvg: searches/a.json: Disk quota exceeded; finished rounds")
    assert "Traceback" not in err


def test_ctrl_c_during_a_write_leaves_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a", b"1")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_killed_after_its_last_checkpoint_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = fedadb.Experiment(
        algorithm="feddyn",
        rounds=4,
        local={"epochs": 1},
        federation={"clients": 4, "participation": 0.5},
        engine={"workers": 1},
    )

    def killed(directory: Path, t: int) -> None:
        if t == e.rounds:
            raise KeyboardInterrupt

    fedadb.run(e, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("fedadb.experiment.run.remove_old_checkpoints", killed)
        with pytest.raises(KeyboardInterrupt):
            fedadb.run(e, tmp_path / "struck")
    assert difference(results(tmp_path / "whole"), results(tmp_path / "struck"))
    fedadb.run(e, tmp_path / "struck")
    assert difference(results(tmp_path / "whole"), results(tmp_path / "struck")) == ""


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"federation": {"clients": 10**400}}, "federation.clients = 1"),
        ({"model": {"name": "mlp", "hidden": [10**30]}}, "model.hidden.0 = 1"),
    ],
)
def test_numbers_beyond_all_machines(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as refused:
        fedadb.Experiment.read(table)
    assert str(refused.value).startswith(sentence)
    assert "must be less than or equal to 1000000000" in str(refused.value)


def test_an_exported_model_whose_card_is_nested_too_deeply() -> None:
    with pytest.raises(BadInput, match="was not written by `fedadb export`"):
        card_from_strings({"classes": "[" * 100_000}, Path("model.safetensors"))
