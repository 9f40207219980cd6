"""Sites evaluate the model on their own test images."""

import json
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message

from fedadb.core.errors import BadInput
from fedadb.deploy.client_app import app
from fedadb.deploy.messages import make_content
from fedadb.experiment.stored import read_run
from fedadb.export.export_run import export_run
from fedadb.report.comparison import arrange
from fedadb.report.recorded_runs import read_recorded_run
from fedadb.report.tables import domain_table
from tests.deploy.fake_grid import CLIENTS, FakeGrid, FakeNode, experiment, nodes, train

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("clock")]


def test_sites_evaluate_for_a_server_without_data(tmp_path: Path) -> None:
    classes = ["a", "b", "c", "d"]
    rng = np.random.default_rng(0)
    for k in range(CLIENTS):
        y = np.repeat([k, (k + 1) % 4], 20)
        x = rng.integers(0, 60, (40, 28, 28), dtype=np.uint8)
        x[np.arange(40), y] += 150
        np.savez(tmp_path / f"{k}.npz", x=x, y=y, classes=np.array(classes))
    e = experiment(rounds=2, evaluate="sites", classes=classes, shape=[1, 28, 28])
    sites = [
        FakeNode(
            {"data": f"npz:{tmp_path / f'{k}.npz'}", "state": str(tmp_path / f"s{k}")}, f"h{k}"
        )
        for k in range(CLIENTS)
    ]
    out = tmp_path / "run"
    for record in train(e, out, FakeGrid(e.toml(), sites)):
        assert len(record["domain_accuracy"]) == CLIENTS
        mean = sum(record["domain_accuracy"]) / CLIENTS  # all sites have equally many rows
        assert record["accuracy"] == pytest.approx(mean)
        assert len(record["class_accuracy"]) == 4
    partition = json.loads((out / "partition.json").read_text())
    assert partition["domains"] == ["h0", "h1", "h2", "h3"]
    stored = read_run(out)
    assert stored.spec.classes == tuple(classes)
    with pytest.raises(BadInput, match="was trained by sites: their data are not here"):
        stored.require_data()
    export_run(out, tmp_path / "model.safetensors", None)
    assert (tmp_path / "model.safetensors").exists()


def test_a_site_without_a_valid_evaluation_has_no_accuracy(tmp_path: Path) -> None:
    def lying(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "evaluate":
            counts = {"loss": 0.0, "correct": [9] * 10, "rows": [1] * 10}
            return Message(make_content(counts), reply_to=message)
        return app(message, context)

    e = experiment(evaluate="both", rounds=2)
    records = train(e, tmp_path / "run", FakeGrid(e.toml(), nodes({1: lying})))
    # The other sites are simulated ones, which have no test images.
    assert records[-1]["domain_accuracy"] == [None] * CLIENTS
    assert domain_table(arrange([read_recorded_run(tmp_path / "run")])) is not None


def test_clients_cannot_be_recorded(tmp_path: Path) -> None:
    e = experiment().model_copy(update={"record_clients": True})
    with pytest.raises(BadInput, match="record_clients: a server does not know which classes"):
        train(e, tmp_path, FakeGrid(e.toml(), nodes()))


def test_personal_models_are_refused(tmp_path: Path) -> None:
    e = experiment().model_copy(update={"personal": True})
    with pytest.raises(BadInput, match="personal: a server does not have the rows of its sites"):
        train(e, tmp_path / "run", FakeGrid(e.toml(), nodes()))
    assert not (tmp_path / "run").exists()


def test_validation_data_are_refused(tmp_path: Path) -> None:
    e = experiment().model_copy(update={"validation": 0.1})
    with pytest.raises(BadInput, match=r"validation = 0\.1: sites train on all of their rows"):
        train(e, tmp_path / "run", FakeGrid(e.toml(), nodes()))
    assert not (tmp_path / "run").exists()
