"""What each party of a federation learns, and that protection changes it."""

from pathlib import Path
from typing import Any

import pytest

from fedadb.core.errors import BadInput
from fedadb.experiment.config import Experiment
from fedadb.experiment.disclosure import TITLE, disclosures, markdown
from tests.command_line import invoke


def table(**settings: Any) -> dict[str, Any]:
    return Experiment.read({"federation": {"clients": 5, "participation": 1.0}, **settings}).table()


def learned(experiment: dict[str, Any], party: str) -> str:
    return "; ".join(next(one.learns for one in disclosures(experiment) if party in one.party))


def test_without_protection_the_server_learns_each_update() -> None:
    assert "each site's update in every round" in learned(table(), "server")
    assert "test images" not in learned(table(), "server")


def test_tests_at_sites_tell_the_server_more() -> None:
    told = learned(table(deployment={"evaluate": "sites"}), "server")
    assert "how many test images of each class are right" in told


def test_secure_aggregation_leaves_the_server_the_sum() -> None:
    told = learned(table(deployment={"secure_aggregation": True}), "server")
    assert "the sum of all updates" in told
    assert "each site's" not in told


def test_a_secure_round_of_three_reveals_no_single_update() -> None:
    three = {"clients": 3, "participation": 1.0}
    told = learned(table(federation=three, deployment={"secure_aggregation": True}), "other sites")
    assert "update" not in told


def test_noise_limits_what_the_model_tells_and_not_what_the_server_learns() -> None:
    private = table(filter=[{"name": "dp", "norm": 1.0, "noise": 1.0}])
    (users,) = (one for one in disclosures(private) if one.party == "Whoever has the model")
    assert "within the ε and δ" in users.does_not_learn[0]
    assert "each site's update" in learned(private, "server")
    assert "before the noise" in learned(private, "server")


@pytest.mark.parametrize(
    ("federation", "deployment", "one", "two"),
    [
        ({"clients": 2, "participation": 1.0}, {"min_replies": 2}, False, True),
        ({"clients": 2, "participation": 1.0}, {}, True, True),
        ({"clients": 3, "participation": 1.0}, {}, False, True),  # one reply may be lost
        ({"clients": 3, "participation": 1.0}, {"min_replies": 3}, False, False),
        ({"clients": 5, "participation": 1.0}, {}, False, False),
        ({"clients": 5, "participation": 0.2}, {}, True, True),
        ({"clients": 5, "participation": 0.9, "sampling": "poisson"}, {}, True, True),
    ],
)
def test_in_small_rounds_sites_learn_single_updates(
    federation: dict[str, Any], deployment: dict[str, Any], one: bool, two: bool
) -> None:
    told = learned(table(federation=federation, deployment=deployment), "other sites")
    assert ("a site's update, if no other" in told) == one
    assert ("the other site's update, if two" in told) == two


def test_noise_hides_updates_from_other_sites_but_not_from_the_server() -> None:
    federation = {"clients": 2, "participation": 0.5, "sampling": "poisson"}
    dp = {"name": "dp", "norm": 1.0, "noise": 1.0}
    private = table(federation=federation, filter=[dp])
    assert "update" not in learned(private, "other sites")
    assert "rows" not in learned(private, "other sites")
    assert "each site's update" in learned(private, "server")
    assert "before the noise" in learned(private, "server")


def test_a_table_of_an_earlier_version_has_fewer_settings() -> None:
    now = table()
    earlier = {"federation": {"clients": 5, "participation": 1.0}}
    assert disclosures(earlier) == disclosures(now)


def test_as_markdown_every_party_has_a_row() -> None:
    text = markdown(table())
    assert all(f"| {one.party} |" in text for one in disclosures(table()))


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        ("server", "fedadb.deploy.server.start_server"),
        ("site", "fedadb.deploy.site.run_site"),
    ],
)
def test_a_server_and_a_site_show_it_before_anything_starts(
    command: str, starts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any) -> None:
        print("it starts")
        raise BadInput("a test")

    monkeypatch.setattr(starts, start)
    (tmp_path / "sites").mkdir()
    e = Experiment.read({"federation": {"clients": 5, "participation": 1.0}})
    (tmp_path / "e.toml").write_text(e.toml())
    options = {
        "server": ("--out", tmp_path / "run"),
        "site": ("--server", "localhost:1", "--data", "npz:x"),
    }
    code, out, err = invoke("deploy", command, tmp_path, tmp_path / "e.toml", *options[command])
    assert (code, "a test" in err) == (2, True)
    shown, _, after = out.partition("it starts")
    words = " ".join(shown.replace("│", " ").split())
    assert TITLE in words
    assert "it starts" in out
    assert not after.strip()
    assert "each site's update" in words
    for one in disclosures(e.table()):
        assert one.party.split()[-1] in words
