"""`fedadb deploy describe` and `combine`: from tables at sites to their experiment."""

from pathlib import Path

import pytest
import torch

from fedadb.core.transform import Bounded
from fedadb.datasets.own import load_own
from fedadb.deploy.agreement import federation_data, shared_experiment
from fedadb.deploy.site import check_data
from fedadb.experiment.config import Experiment
from fedadb.experiment.toml_tables import load_toml
from tests.command_line import invoke


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for site, first in (("north", 0), ("south", 7)):
        lines = [f"{first + i},{'no' if i % 2 else 'yes'},{'ab'[i % 3 == 0]}" for i in range(30)]
        text = "\n".join(["mean.radius,smokes,kind", *lines])
        Path(f"{site}.csv").write_text(text)
        assert invoke("deploy", "describe", f"{site}.csv#kind").code == 0


def combined() -> Experiment:
    ended = invoke("deploy", "combine", "north.json", "south.json")
    assert ended.code == 0, ended.err
    return Experiment.read(load_toml(Path("experiment.toml")))


def test_the_combined_experiment_suits_all_sites() -> None:
    e = combined()
    assert e.deployment.classes == ("a", "b")
    assert e.federation.clients == 2
    for site in ("north", "south"):
        check_data(e, f"csv:{site}.csv#kind")
    spec, test = federation_data(e)
    assert (spec.shape, test) == ((3,), None)
    assert isinstance(spec.transform, Bounded)


def test_all_settings_of_columns_are_shared_also_with_dots_in_names() -> None:
    e = combined()
    assert shared_experiment(e).deployment.columns == e.deployment.columns
    assert "mean.radius" in e.deployment.columns


def test_numbers_are_standardised_over_all_sites() -> None:
    e = combined()
    spec, _ = federation_data(e)
    parts = [
        load_own(f"csv:{s}.csv#kind", spec, e.deployment.columns)[0].x for s in ("north", "south")
    ]
    x = torch.cat(parts)
    assert x[:, 0].mean().item() == pytest.approx(0, abs=1e-4)
    assert x[:, 0].std(correction=0).item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("describe", "north.csv"), "has no column 'label'"),
        (("combine", "north.json", "north.json"), "a file is given twice"),
        (("combine", "north.json", "north.csv"), "north.csv"),
        (("combine", "north.json", "--out", "south.csv"), "exists; name another file"),
    ],
)
def test_wrong_files_are_named(words: tuple[str, ...], reason: str) -> None:
    ended = invoke("deploy", *words)
    assert ended.code in (1, 2)
    assert reason in " ".join(ended.err.split())
