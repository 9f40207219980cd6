"""What secure aggregation excludes is refused when an experiment is read; runs resume."""

import importlib.util
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import fedadb
from fedadb.core.errors import BadInput
from fedadb.deploy.agreement import shared_experiment, shared_settings
from fedadb.experiment.config import Experiment
from fedadb.experiment.identity import run_name
from tests.deploy.federation import require_equal_weights

FEDERATION = {"clients": 5, "participation": 1.0}


def experiment(secure: bool = True, **settings: Any) -> Experiment:
    deployment = {"secure_aggregation": secure, **settings.pop("deployment", {})}
    table = {"rounds": 2, "algorithm": "fedavg", "federation": FEDERATION, **settings}
    return Experiment.read({**table, "deployment": deployment})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"filter": [{"name": name}]}, "needs single replies, .* drop one of the two")
        for name in ("median", "trimmed_mean", "multi_krum", "geometric_median", "centred_clip")
    ]
    + [
        ({"filter": [{"name": "nnm", "f": 1}]}, "needs single replies"),
        ({"filter": [{"name": "norm_bound", "norm": 5.0}]}, "NormBound.* needs single replies"),
        ({"filter": [{"name": "clip", "quantile": 0.5}]}, "Clip.* needs single replies"),
        ({"filter": [{"name": "dp", "quantile": 0.5, "noise": 0.1}]}, "DP.* needs single replies"),
        ({"filter": [{"name": "int8"}]}, "Int8 compresses .* drop the filter or deployment"),
        ({"filter": [{"name": "top_k"}]}, "TopK compresses"),
        ({"attack": {"name": "sign_flip", "clients": 1}}, "attack: attackers replace single"),
        ({"record_clients": True}, "record_clients: .* drop one of the two"),
        ({"deployment": {"median_bound": 5.0}}, r"median_bound = 5\.0: is about single replies"),
        ({"deployment": {"max_share": 0.4}}, r"max_share = 0\.4: is about"),
        ({"deployment": {"min_replies": 2}}, "min_replies = 2: is about"),
        ({"deployment": {"rows": {"north": 5}}}, "rows = .*: is about"),
        ({"federation": {"clients": 5, "participation": 0.6}}, "participation = 0.6: with"),
        ({"federation": {"clients": 2, "participation": 1.0}}, "clients = 2: .* is for 3 to 50"),
        ({"federation": {"clients": 51, "participation": 1.0}}, "clients = 51: .* 3 to 50"),
        ({"algorithm": "feddyn"}, "FedDyn needs more .* or set algorithm.variant = 'official'"),
    ],
)
def test_conflicts_are_refused(settings: dict[str, Any], sentence: str) -> None:
    experiment(False, **settings)  # each is right by itself, but not with two clients or fewer
    with pytest.raises(BadInput, match=sentence):
        experiment(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"filter": [{"name": "clip", "norm": 1.0}]},
        {"filter": [{"name": "dp", "norm": 1.0, "noise": 0.5}]},
        {"deployment": {"median_bound": "none", "max_share": 1.0}},
        {"deployment": {"median_bound": 10.0, "max_share": 0.5}},
        {"server": {"optimizer": {"name": "adam"}}},
        {"algorithm": "fedadb"},
    ],
)
def test_what_needs_only_the_sum_is_accepted(settings: dict[str, Any]) -> None:
    assert Experiment.read(experiment(**settings).table()) == experiment(**settings)


def test_a_run_without_it_keeps_its_name() -> None:
    assert "secure_aggregation" not in experiment(False).table()["deployment"]
    assert run_name(experiment(False)) == run_name(experiment(False, deployment={"retries": 1}))
    secure, wider = experiment(), experiment(deployment={"secure_range": 2.0})
    assert len({run_name(e) for e in (experiment(False), secure, wider)}) == 3


def test_server_and_sites_must_agree_on_it() -> None:
    assert shared_settings(experiment())["deployment.secure_aggregation"] is True
    assert shared_settings(experiment())["deployment.secure_range"] == 4.0
    at_a_site = shared_experiment(experiment())  # which does not know how many sites there are
    assert at_a_site.deployment.secure_aggregation


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"needs a package: `pip install 'fedadb\[federation\]'`"):
        fedadb.run(experiment(), tmp_path / "run")


def test_an_interrupted_run_resumes_bit_identically_with_other_keys(tmp_path: Path) -> None:
    e = experiment(dataset="digits", local={"epochs": 1}, engine={"workers": 1}, algorithm="fedavg")
    fedadb.run(e, tmp_path / "whole")
    rounds = fedadb.rounds(e, tmp_path / "resumed")
    assert len(list(islice(rounds, 1))) == 1
    rounds.close()
    fedadb.run(e, tmp_path / "resumed")
    require_equal_weights(tmp_path / "whole", tmp_path / "resumed")


def test_noise_is_added_to_the_sum(tmp_path: Path) -> None:
    """Differential privacy needs no single replies, and all clients count alike in both."""
    settings: dict[str, Any] = {
        "rounds": 1,
        "local": {"epochs": 1},
        "engine": {"workers": 1},
        "filter": [{"name": "dp", "norm": 0.1, "noise": 0.1}],
    }
    secure = fedadb.run(experiment(**settings), tmp_path / "secure")
    plain = fedadb.run(experiment(False, **settings), tmp_path / "plain")
    assert secure.rounds[0]["epsilon"] == plain.rounds[0]["epsilon"]
    for name, expected in plain.weights().items():
        torch.testing.assert_close(secure.weights()[name], expected, rtol=0, atol=1e-6)
