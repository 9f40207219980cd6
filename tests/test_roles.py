"""Which hyperparameters are worth a search, and in which range."""

import math
from pathlib import Path
from typing import Any

import pytest

from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.roles import Searched

WRONG: list[tuple[tuple[Any, ...], str]] = [
    ((1, 1), "low and high must be numbers, and low below high"),
    ((1, 0.1), "low and high must be numbers, and low below high"),
    ((0.1, math.nan), "low and high must be numbers, and low below high"),
    ((0.1, math.inf), "low and high must be numbers, and low below high"),
    ((0, 1), 'low must be above 0, or scale "linear"'),
    ((-1, 1), 'low must be above 0, or scale "linear"'),
    ((0.1, 1, "square"), "scale must be one of log, linear"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_a_wrong_range_is_refused_in_one_sentence(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        Searched(*arguments)
    assert "\n" not in str(error.value)


def test_a_wrong_range_of_ones_own_algorithm_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong_range.py").write_text(
        "from typing import Annotated\n"
        "from fedadb import FedAvg, Searched\n"
        "class Mine(FedAvg):\n"
        "    mu: Annotated[float, Searched(1, 0.1)] = 0.5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput) as error:
        Experiment.read({"algorithm": "wrong_range:Mine"})
    assert str(error.value) == (
        "algorithm = 'wrong_range:Mine': cannot be imported: Searched(low=1, high=0.1, "
        "scale='log'): low and high must be numbers, and low below high"
    )
