"""What each party of a federation learns, and that protection changes it."""

from typing import Any

import pytest

from fedadb.experiment.config import Experiment
from fedadb.experiment.disclosure import disclosures, markdown


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


def test_noise_limits_what_the_model_tells_and_not_what_the_server_learns() -> None:
    private = table(filter=[{"name": "dp", "norm": 1.0, "noise": 1.0}])
    (users,) = (one for one in disclosures(private) if one.party == "Whoever has the model")
    assert "within the ε and δ" in users.does_not_learn[0]
    assert "each site's update" in learned(private, "server")
    assert "before the noise" in learned(private, "server")


@pytest.mark.parametrize(("clients", "known"), [(2, True), (3, False)])
def test_of_two_sites_each_learns_the_others_update(clients: int, known: bool) -> None:
    two = table(federation={"clients": clients, "participation": 1.0})
    assert ("the other site's update" in learned(two, "other sites")) == known


def test_as_markdown_every_party_has_a_row() -> None:
    text = markdown(table())
    assert all(f"| {one.party} |" in text for one in disclosures(table()))
