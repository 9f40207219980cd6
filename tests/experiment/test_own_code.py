"""Algorithms of one's own: in scripts, inside of functions, and given wrongly."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import fedadb
from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment

SCRIPT = """
from dataclasses import dataclass
import fedadb

print("the script runs")

@dataclass(frozen=True)
class Mine(fedadb.Algorithm):
    pass

settings = {"rounds": 2, "model": "mlp", "local": {"epochs": 1}, "engine": {"workers": 1}}
for record in fedadb.rounds(fedadb.Experiment(algorithm=Mine(), **settings), "run"):
    print("round", record["round"])
    break
"""


@pytest.mark.integration
@pytest.mark.parametrize("words", [["script.py"], ["-m", "script"]])
def test_a_script_resumes_its_own_class_and_runs_once(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "the script runs\nround 1\n"


def test_a_class_inside_of_a_function_is_refused_before_it_trains(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Inner(fedadb.Algorithm):
        pass

    with pytest.raises(BadInput, match="Inner is defined inside of a function"):
        fedadb.run(Experiment(algorithm=Inner()), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_class_in_place_of_an_object_is_named() -> None:
    with pytest.raises(BadInput, match=r"algorithm: FedAvg is a class; give FedAvg\(\)"):
        Experiment(algorithm=fedadb.FedAvg)

    class Plain(fedadb.Algorithm):
        pass

    with pytest.raises(BadInput, match=r"own class Plain, write @dataclass\(frozen=True\) above"):
        Experiment(algorithm=Plain())
