import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fedadb import cli
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from fedadb.export.write import export

Fedadb = Callable[..., tuple[int, str, str]]


class Files(NamedTuple):
    """A small run, and its model in both formats."""

    run: Path
    safetensors: Path
    onnx: Path


@pytest.fixture
def fedadb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fedadb:
    """The command with these words, in this process: exit code, stdout, stderr."""

    def invoke(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedadb", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return invoke


@pytest.fixture(scope="session")
def two_heads(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """FedADB, which trains two heads and deploys one."""
    return _exported(tmp_path_factory.mktemp("fedadb"), "fedadb", None)


@pytest.fixture(scope="session")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """FedGELA, whose head has batch normalisation and a constant."""
    return _exported(tmp_path_factory.mktemp("fedgela"), "fedgela", 500)


def _exported(place: Path, algorithm: str, images: int | None) -> Files:
    local = {"epochs": 1}
    run(Experiment.read({"rounds": 3, "algorithm": algorithm, "local": local}), place / "run")
    files = Files(place / "run", place / "m.safetensors", place / "m.onnx")
    for file in (files.safetensors, files.onnx):
        export(files.run, file, images)
    return files
