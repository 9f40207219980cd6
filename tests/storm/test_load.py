"""A short version of `python -m storm load`; it measures nothing that depends on the machine."""

from pathlib import Path

import pytest

from storm import load

pytestmark = pytest.mark.integration


def test_open_files_do_not_grow_with_rounds(tmp_path: Path) -> None:
    found = load.many_rounds(30, tmp_path)
    assert found["open files at the end"] == found["open files after a tenth"]


@pytest.mark.parametrize("name", ["clients in a round", "clients in a partition", "classes"])
def test_every_load_can_be_measured(name: str, tmp_path: Path) -> None:
    assert load.LOADS[name].measure(20, tmp_path)["s of the round"] > 0
