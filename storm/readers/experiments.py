"""Experiments, settings of the command line, and studies."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.precheck import precheck
from fedadb.experiment.study import read_study
from fedadb.experiment.toml_tables import load_toml, override
from storm.readers.reader import Reader, in_file

ASSIGNMENTS = [
    b"local.lr=0.05", b"algorithm=fedprox", b"algorithm.mu=0.1", b"rounds=3", b"seed=7",
    b'filter=[{name="clip", norm=1.0}]', b"federation.partition.alpha=0.3", b"model=lenet",
    b"deployment.rows={a=3, b=4}", b"local.optimizer=adam", b"engine.workers=auto",
    b"attack={name='sign_flip', clients=2}", b"server.optimizer=serveradam", b"validation=0.1",
]  # fmt: skip
STUDY = (
    b"[experiment]\nrounds = 2\nmodel = 'mlp'\nlocal = {epochs = 1}\n[vary]\nseed = [0, 1]\n"
    b"[[grid]]\nalgorithm = ['fedavg', 'fedprox']\n'federation.partition.alpha' = [0.5, 5.0]\n"
)


@cache
def _experiments() -> list[bytes]:
    whole = Experiment().toml().encode()
    small = b"dataset = 'digits'\nrounds = 3\n[algorithm]\nname = 'fedprox'\nmu = 0.1\n"
    return [whole, small]


def _read_experiment(data: bytes, directory: Path) -> None:
    table = in_file("e.toml", load_toml)(data, directory)
    _require_no_code(table)
    precheck(table)
    Experiment.read(table).toml()


def _read_assignment(data: bytes, directory: Path) -> None:
    table = override({}, data.decode(errors="surrogateescape"))
    _require_no_code(table)
    precheck(table)
    Experiment.read(table).toml()


def _read_study(data: bytes, directory: Path) -> None:
    path = directory / "study.toml"
    path.write_bytes(data)
    _require_no_code(load_toml(path))
    read_study(path)


def _require_no_code(table: Mapping[str, Any]) -> None:
    """`module:Class` in an experiment runs code, as documented: nothing is searched there."""
    if ":" in json.dumps(table, default=str).replace('": ', ""):
        raise BadInput("it may name code")


READERS = {
    "experiment (TOML)": Reader(_read_experiment, _experiments()),
    "--set": Reader(_read_assignment, ASSIGNMENTS),
    "study (TOML)": Reader(_read_study, [STUDY], 0.3),
}
