"""What the server and its sites agree on: settings, the form of the data, the application."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from fedadb.core.data import DataSpec
from fedadb.core.errors import BadInput
from fedadb.core.transform import Transform
from fedadb.deploy.agreement import (
    federation_data,
    require_same_settings,
    shared_experiment,
    shared_settings,
    write_application,
)
from fedadb.deploy.node import application_hash
from fedadb.deploy.site_rules import read_spec
from fedadb.experiment.config import Experiment
from fedadb.experiment.settings import role
from fedadb.experiment.stored import spec_to_table
from tests.deploy.federation import ROOT


def test_the_data_spec_survives_json() -> None:
    spec = DataSpec(("cat", "dog", "owl"), (1, 4, 4), Transform(mean=(0.5,), std=(0.5,)))
    assert read_spec(json.loads(json.dumps(spec_to_table(spec))), Experiment()) == spec


def test_a_server_without_data_names_classes_and_shape() -> None:
    given = {"classes": ["a", "b"], "shape": [3, 32, 32], "evaluate": "sites"}
    spec, test = federation_data(Experiment.read({"deployment": given}))
    assert (spec.classes, spec.shape, test) == (("a", "b"), (3, 32, 32), None)
    with pytest.raises(BadInput, match="needs both classes and shape"):
        federation_data(
            Experiment.read({"deployment": {"classes": ["a", "b"], "evaluate": "sites"}})
        )
    with pytest.raises(BadInput, match="a server without data cannot evaluate; use 'sites'"):
        federation_data(Experiment.read({"deployment": {**given, "evaluate": "server"}}))


def test_only_what_a_site_computes_has_to_be_the_same() -> None:
    one = Experiment.read({"dataset": "digits", "engine": {"workers": 1}})
    other = Experiment.read({"dataset": "digits", "deployment": {"wait": 1.0}})
    require_same_settings(shared_settings(one), shared_settings(other))
    another = Experiment.read({"dataset": "digits", "seed": 4})
    with pytest.raises(BadInput, match="seed is 4 there and 0 here"):
        require_same_settings(shared_settings(one), shared_settings(another))


def test_shared_settings_follow_from_the_roles() -> None:
    e = Experiment.read({"dataset": "npz:x.npz", "algorithm": "feddyn", "local": {"lr": 0.5}})
    settings = shared_settings(e)
    assert all(role(key).shared for key in settings)
    assert {"rounds", "seed", "local.lr", "algorithm.name", "engine.precision"} <= settings.keys()
    assert not {"dataset", "deployment.wait", "engine.workers", "record_clients"} & settings.keys()
    assert shared_settings(shared_experiment(e)) == settings


def test_the_docs_name_all_shared_settings() -> None:
    text = (ROOT / "docs" / "deploying.md").read_text()
    sentence = text[text.index("must agree on") :].partition(", because")[0]
    tables = {"model", "local", "algorithm"}
    keys = {key.partition(".")[0] for key in shared_settings(Experiment.read({}))} & tables
    keys |= {k for k in shared_settings(Experiment.read({})) if k.partition(".")[0] not in tables}
    assert set(re.findall(r"`([\w.]+)`", sentence)) == keys


def hash_of(e: Experiment, directory: Path) -> str:
    write_application(directory / "application", shared_experiment(e))
    return application_hash(directory / "application")


def test_the_application_is_the_same_wherever_it_is_made(tmp_path: Path) -> None:
    here = {"dataset": "npz:test.npz", "deployment": {"wait": 5.0}, "engine": {"workers": 2}}
    there = {"dataset": "npz:/srv/test.npz", "engine": {"device": "cpu"}}
    one = hash_of(Experiment.read(here), tmp_path / "a")
    assert one == hash_of(Experiment.read(there), tmp_path / "b")
    assert one != hash_of(Experiment.read({**there, "seed": 1}), tmp_path / "c")
    assert one != hash_of(Experiment.read({**there, "local": {"lr": 0.2}}), tmp_path / "d")


def test_filters_are_shared_in_their_order() -> None:
    filters = [{"name": "clip", "norm": 2.0}, {"name": "norm_bound", "norm": 5.0}]
    e = Experiment(dataset="digits", filter=filters)
    assert shared_experiment(e).filter == e.filter
    assert shared_settings(shared_experiment(e)) == shared_settings(e)
    assert shared_settings(e)["filter.1.norm"] == 5.0
    with pytest.raises(BadInput, match=r"filter\.0\.norm is 2\.0 there and 3\.0 here"):
        require_same_settings(
            {**shared_settings(e), "filter.0.norm": 3.0}, shared_settings(shared_experiment(e))
        )


def test_a_server_refuses_vectors_that_no_request_can_describe(tmp_path: Path) -> None:
    path = tmp_path / "wide.npz"
    np.savez(path, x=np.zeros((40, 20_001), np.float32), y=np.arange(40) % 2)
    with pytest.raises(BadInput, match=r"have 20001 values each; .* at most 20000"):
        federation_data(Experiment(dataset=f"npz:{path}"))
