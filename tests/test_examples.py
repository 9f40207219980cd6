"""The programs in examples/ run, and their models learn."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "reached"),
    [("own_data_and_model", 0.85), ("own_algorithm", 0.5), ("table", 0.9), ("embeddings", 0.8)],
)
def test_example_learns(name: str, reached: float, capsys: pytest.CaptureFixture[str]) -> None:
    program = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)
    assert program["main"]() > reached
    assert capsys.readouterr().out
