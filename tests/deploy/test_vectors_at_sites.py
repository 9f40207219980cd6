"""Sites whose inputs are vectors: what the server states about them, and what a site refuses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context

from fedadb.core.data import DataSpec
from fedadb.core.errors import BadInput
from fedadb.core.transform import Bounded
from fedadb.datasets.own import inspect_own, load_own
from fedadb.deploy.refusals import BAD_REQUEST, OTHER_EXPERIMENT
from fedadb.deploy.site_rules import read_spec
from fedadb.experiment.config import Experiment
from fedadb.experiment.stored import read_sites, spec_to_table
from tests.deploy.asked_site import AskedSite

SHAPE = (3, 2)
SPEC = DataSpec(("a", "b"), SHAPE, Bounded(low=(-1.5,) * 6, high=(0.1, 1.0, 2.0, 3.0, 4.0, -1.5)))


def write_vectors(path: Path, shape: tuple[int, ...] = SHAPE, rows: int = 40) -> str:
    x = np.random.default_rng(0).normal(size=(rows, *shape))
    y = np.arange(rows) % 2
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y, classes=np.array(["a", "b"]))
    return f"npz:{path}"


@pytest.fixture
def site(tmp_path: Path) -> AskedSite:
    write_vectors(tmp_path / "data.npz")
    table: dict[str, Any] = {
        "dataset": write_vectors(tmp_path / "server.npz", rows=60),
        "model": {"name": "mlp", "hidden": [4]},
        "rounds": 3,
        "algorithm": "feddyn",
        "local": {"epochs": 1},
        "federation": {"clients": 2, "participation": 1.0},
        "deployment": {"evaluate": "sites"},
    }
    return AskedSite(tmp_path, Experiment.read(table))


def test_bounds_survive_json() -> None:
    table = json.loads(json.dumps(spec_to_table(SPEC)))
    spec = read_spec(table, Experiment())
    assert (spec, hash(spec)) == (SPEC, hash(SPEC))


def test_bounds_survive_the_file_of_a_run_of_sites(tmp_path: Path) -> None:
    table = {"run": "1", "names": ["n"], "rows": [3], "data": spec_to_table(SPEC)}
    (tmp_path / "sites.json").write_text(json.dumps(table))
    assert read_sites(tmp_path / "sites.json")["data"] == SPEC


def test_an_honest_server_gets_replies(site: AskedSite) -> None:
    assert isinstance(site.spec.transform, Bounded)
    for kind in ("query", "train", "evaluate"):
        assert not site.ask(kind).has_error()


@pytest.mark.parametrize(
    "change",
    [
        {"shape": []},
        {"shape": [6, 2]},
        {"shape": [0, 2]},
        {"shape": [-3, -2]},
        {"shape": [1] * 9 + [6]},
        {"transform": {"low": [0.0] * 5, "high": [1.0] * 6}},
        {"transform": {"low": [0.0] * 6, "high": [1.0] * 7}},
        {"transform": {"low": [2.0] * 6, "high": [1.0] * 6}},
        {"transform": {"low": [float("-inf")] * 6, "high": [1.0] * 6}},
        {"transform": {"low": [0.0] * 6, "high": [float("nan")] * 6}},
        {"transform": {"low": ["0"] * 6, "high": [1.0] * 6}},
        {"transform": {"low": [0.0] * 6, "high": [1.0] * 6, "code": "x"}},
        {"transform": {"low": [0.0] * 6, "high": [1.0] * 6, "mean": [0.5], "std": [0.5]}},
        {"transform": {"mean": [0.5], "std": [0.5]}},
        {"shape": [1, 3, 2], "transform": {"low": [0.0] * 6, "high": [1.0] * 6}},
        {"shape": [20_001], "transform": {"low": [0.0] * 20_001, "high": [1.0] * 20_001}},
    ],
    ids=lambda change: str(change)[:60],
)
def test_invalid_bounds_are_refused(site: AskedSite, change: dict[str, Any]) -> None:
    data = {**json.loads(json.dumps(site.table("train")["data"])), **change}
    assert site.refusal("train", data=data).code == BAD_REQUEST


def test_a_site_takes_vectors_of_the_federations_shape_only(tmp_path: Path) -> None:
    train, _ = load_own(write_vectors(tmp_path / "a.npz"), SPEC)
    assert train.x.shape == (40, *SHAPE)
    other = write_vectors(tmp_path / "b.npz", (4,))
    with pytest.raises(BadInput, match=r"has rows of shape \(4,\); the federation's are \(3, 2\)$"):
        load_own(other, SPEC)
    with pytest.raises(BadInput, match="has images, and the federation's inputs are none; use npz"):
        load_own(f"folder:{tmp_path}", SPEC)


def test_a_table_needs_the_federations_columns(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("x,label\n1,a\n")
    for check in (lambda data: load_own(data, SPEC), inspect_own):
        with pytest.raises(BadInput, match="the experiment must say what each column becomes"):
            check(f"csv:{tmp_path / 'x.csv'}")


def test_a_site_trains_on_its_table_by_the_columns_of_its_own_experiment(tmp_path: Path) -> None:
    lines = [f"{i},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["x,label", *lines]))
    table: dict[str, Any] = {
        "model": {"name": "mlp", "hidden": [4]},
        "rounds": 3,
        "algorithm": "feddyn",
        "local": {"epochs": 1},
        "federation": {"clients": 2, "participation": 1.0},
        "deployment": {"evaluate": "sites", "classes": ["a", "b"], "columns": {"x": [20.0, 10.0]}},
    }
    site = AskedTable(tmp_path, Experiment.read(table))
    assert not site.ask("train").has_error()
    assert not site.ask("evaluate").has_error()
    data = {**json.loads(json.dumps(site.table("train")["data"])), "shape": [2]}
    data["transform"] = {"low": [0.0] * 2, "high": [1.0] * 2}
    assert site.refusal("train", data=data).code == OTHER_EXPERIMENT


class AskedTable(AskedSite):
    """A site whose data are a table."""

    @property
    def context(self) -> Context:
        context = super().context
        context.node_config["data"] = f"csv:{self.directory / 't.csv'}"
        return context
