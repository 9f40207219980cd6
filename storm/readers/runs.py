"""The directories of runs: records, tensors, checkpoints, searches, exported models."""

import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import safetensors.torch
import torch

from fedadb.core.algorithm import Round
from fedadb.core.vector import Vector, Weights
from fedadb.engine.checkpoint import load_checkpoint, save_checkpoint
from fedadb.engine.federate import Snapshot
from fedadb.experiment.config import Experiment
from fedadb.experiment.toml_tables import parse_toml
from fedadb.export.classifier import card_from_strings, untrained_classifier
from fedadb.export.safetensors_file import read_safetensors
from fedadb.report.comparison import arrange
from fedadb.report.page_data import page_data
from fedadb.report.recorded_runs import collect_runs
from fedadb.report.tables import summary_table
from fedadb.storage.records import read_records
from fedadb.storage.searches import read_search
from fedadb.storage.tensorfile import read_tensors, write_tensors
from storm.readers.reader import Reader, in_file

RUN_FILES = ("experiment.toml", "partition.json", "environment.json", "rounds.jsonl")
SEARCH = json.dumps(
    {
        "algorithm": "fedavg", "experiment": {"rounds": 3}, "space": {"local.lr": [0.01, 0.03]},
        "sampler": "grid", "pruner": "none", "budget": 2, "complete": True,
        "trials": [{"run": "a", "values": {"local.lr": 0.01}, "state": "finished", "rounds": 3,
                    "score": 0.5}],
    }
).encode()  # fmt: skip


def _records() -> bytes:
    record = {
        "accuracy": 0.5, "loss": 1.0, "class_accuracy": [0.5, None], "clients": [0, 3],
        "lost": {"a": "why"}, "lr": 0.1, "seconds": 0.2, "bytes_down": 4, "bytes_up": 3,
    }  # fmt: skip
    return b"".join(json.dumps({"round": t, **record}).encode() + b"\n" for t in (1, 2, 3))


def _read_records(data: bytes, directory: Path) -> None:
    in_file("rounds.jsonl", read_records)(data, directory)


def run_files() -> dict[str, bytes]:
    return {
        "experiment.toml": Experiment(rounds=3).toml().encode(),
        "partition.json": b'{"classes": ["a", "b"], "counts": [[1, 2], [3, 4]], "domains": []}',
        "environment.json": b'{"fedadb": "0.1.0", "own_code": {"m:C": "0123456789"}}',
        "rounds.jsonl": _records(),
    }


def _run_file(name: str) -> bytes:
    """A file of a run's directory, after its name."""
    return name.encode() + b"\n" + run_files()[name]


def _read_run_directory(data: bytes, directory: Path) -> None:
    name, _, content = data.partition(b"\n")
    files = run_files()
    files[name.decode("latin-1") if name.decode("latin-1") in files else RUN_FILES[0]] = content
    for file, written in files.items():
        (directory / file).write_bytes(written)
    comparison = arrange(collect_runs([directory]).runs)
    page_data(comparison, "title")
    summary_table(comparison)


W = Vector.of({"a": torch.zeros(2, 3), "b": torch.zeros(4)})
BEFORE = Snapshot(Round(0, 5, 4, 80), Weights(W))


def _tensors() -> bytes:
    return safetensors.torch.save({"a": torch.zeros(2, 3), "b": torch.arange(4)})


def _signed(metadata: Mapping[str, str]) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "x"
        write_tensors(path, {"a": torch.zeros(2, 3)}, metadata)
        return path.read_bytes()


def _read_tensors(data: bytes, directory: Path) -> None:
    path = directory / "x.safetensors"
    path.write_bytes(data)
    read_tensors(path, "delete it")


def _metadata_of(data: bytes) -> dict[str, str]:
    """Metadata as a forger writes them: any JSON object, with texts for what is none."""
    try:
        table = json.loads(data)
    except (ValueError, RecursionError):
        table = {"round": data.decode("utf-8", "replace")}
    if not isinstance(table, dict):
        table = {"round": json.dumps(table)}
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in table.items()}


def _checkpoint_metadata() -> bytes:
    round = json.dumps(BEFORE.round._replace(t=2))
    return json.dumps(
        {"round": round, "memories": "[[0, 1]]", "data": "d", "kernels": "torch", "uploads": "{}"}
    ).encode()


def _read_checkpoint(data: bytes, directory: Path) -> None:
    path = directory / "checkpoint.safetensors"
    save_checkpoint(path, BEFORE, {}, "d")
    tensors, _ = read_tensors(path, "")
    write_tensors(path, tensors, _metadata_of(data))
    load_checkpoint(path, BEFORE, W, "d")


def _card() -> bytes:
    card = {
        "experiment": Experiment(model="mlp").toml(), "classes": '["a", "b"]',
        "shape": "[1, 28, 28]", "mean": "[0.5]", "std": "[0.5]", "frozen": "0",
    }  # fmt: skip
    return json.dumps(card).encode()


def _read_model(data: bytes, directory: Path) -> None:
    path = directory / "model.safetensors"
    write_tensors(path, _model_tensors(), _metadata_of(data))
    read_safetensors(path)


@cache
def _model_tensors() -> dict[str, torch.Tensor]:
    """The weights that belong to the card."""
    card = card_from_strings(json.loads(_card()), Path())
    model = untrained_classifier(parse_toml(card.experiment, "the card"), card, features=200)
    return {name: torch.zeros(weights.shape) for name, weights in model.state_dict().items()}


READERS = {
    "records": Reader(_read_records, [_records()], 2.0),
    "run directory": Reader(_read_run_directory, [_run_file(name) for name in RUN_FILES], 0.3),
    "search (JSON)": Reader(in_file("search.json", read_search), [SEARCH], 2.0),
    "tensors (safetensors)": Reader(_read_tensors, [_tensors(), _signed({"a": "b"})], 2.0),
    "checkpoint, checksum valid": Reader(_read_checkpoint, [_checkpoint_metadata()]),
    "exported model, checksum valid": Reader(_read_model, [_card()], 0.3),
}
