import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedadb import cli
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from fedadb.export.export_run import export_run

Command = Callable[..., tuple[int, str, str]]


class ExportedFiles(NamedTuple):
    """A small run, and its model in both formats."""

    run: Path
    safetensors: Path
    onnx: Path


@pytest.fixture
def fedadb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command with these arguments: exit code, stdout and stderr."""

    def invoke(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedadb", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return invoke


@pytest.fixture(scope="session")
def two_heads(tmp_path_factory: pytest.TempPathFactory) -> ExportedFiles:
    """FedADB, which trains two heads and deploys one."""
    algorithm = {"name": "fedadb", "steps": 2}
    return _train_and_export(tmp_path_factory.mktemp("fedadb"), algorithm, None)


@pytest.fixture(scope="session")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> ExportedFiles:
    """FedGELA, whose head has batch normalisation and a constant."""
    return _train_and_export(tmp_path_factory.mktemp("fedgela"), {"name": "fedgela"}, 500)


def _train_and_export(folder: Path, algorithm: dict[str, Any], images: int | None) -> ExportedFiles:
    local = {"epochs": 1}
    run(Experiment.read({"rounds": 2, "algorithm": algorithm, "local": local}), folder / "run")
    files = ExportedFiles(folder / "run", folder / "m.safetensors", folder / "m.onnx")
    for file in (files.safetensors, files.onnx):
        export_run(files.run, file, images)
    return files
