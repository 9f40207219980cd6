"""Every setting has one role, in its own field."""

from fedadb.experiment.config import Experiment
from fedadb.experiment.settings import affecting, role
from fedadb.experiment.toml_tables import flatten
from fedadb.roles import Role

SETTINGS = flatten(Experiment(algorithm="feddyn", dataset="cifar10", validation=0.1).table())


def having(**properties: object) -> set[str]:
    return {
        key
        for key in SETTINGS
        if all(getattr(role(key), name) == value for name, value in properties.items())
    }


def test_settings_without_effect_are_how_the_work_is_spread_and_how_sites_are_treated() -> None:
    deployment = {key for key in SETTINGS if key.startswith("deployment.")}
    engine = {"engine.workers", "engine.overlap", "engine.backend", "engine.address"}
    assert having(affects="nothing") == engine | deployment
    assert having(affects="records") == {
        "record_clients",
        "personal",
        "personal_every",
        "keep_broadcasts",
    }


def test_sites_must_share_what_changes_their_training() -> None:
    shared = having(shared=True)
    names = {key.partition(".")[0] for key in shared}
    assert names == {
        "rounds",
        "seed",
        "model",
        "local",
        "algorithm",
        "filter",
        "engine",
        "deployment",
    }
    assert {key for key in shared if key.startswith("engine.")} == {"engine.precision"}
    assert {key for key in shared if key.startswith("deployment.")} == {"deployment.evaluate"}
    assert all(key in shared for key in SETTINGS if key.startswith(("local.", "algorithm.")))


def test_the_servers_optimiser_is_its_own_and_changes_results() -> None:
    adam = flatten(Experiment(server={"optimizer": "adam"}).table())
    for key in ("server.optimizer.name", "server.optimizer.lr"):
        assert key in adam
        assert role(key) == Role(shared=False)
    assert "server.optimizer.name" in affecting(SETTINGS, "results")


def test_the_paper_varies_dataset_scenario_and_skew() -> None:
    varied = {key for key in having(fixed_by_paper=False) if role(key).affects == "results"}
    assert varied == {
        "dataset",
        "engine.device",
        "federation.clients",
        "federation.participation",
        "federation.partition.alpha",
    }


def test_validation_data_change_results_and_are_not_the_papers() -> None:
    assert role("validation") == Role(affects="results", shared=False, fixed_by_paper=True)


def test_a_setting_of_a_table_inherits_its_role() -> None:
    assert role("federation.partition.min_rows") == role("federation.partition")
    assert role("algorithm.anything") == Role()


def test_settings_are_selected_by_what_they_affect() -> None:
    assert "engine.workers" not in affecting(SETTINGS, "results", "records")
    assert "record_clients" in affecting(SETTINGS, "results", "records")
    assert "record_clients" not in affecting(SETTINGS, "results")
    assert affecting(SETTINGS, "results")["federation.partition.alpha"] == 0.1
