"""A site whose process is killed and started again in the middle of a round."""

import signal
from pathlib import Path

import pytest

from fedadb.deploy.server import RunningServer
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import History
from tests.deploy.conftest import SHARED
from tests.deploy.federation import RealFederation, require_equal_weights
from tests.deploy.scripted_site import HOLDING

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("federation")]


def test_a_site_that_was_killed_in_a_round_is_asked_again(
    federation: RealFederation, running: RunningServer, simulated: History, tmp_path: Path
) -> None:
    """The deadline is an hour, so the round ends only because the site is asked again."""
    table = SHARED.table()
    patient = {"deadline": 3600.0, "reconnect": 3600.0, "min_replies": 2}
    e = Experiment.read({**table, "deployment": {**table["deployment"], **patient}})
    out = tmp_path / "run"
    federation.script(1, {1: "hold"})
    before = federation.log("site-1")
    rounds = running.follow(running.submit(e, out), out, e.rounds, 0, lambda status: None)
    federation.wait_for_log("site-1", HOLDING, before)
    federation.stop("site-1", signal.SIGKILL)
    federation.script(1, {})
    federation.start_site(1, SHARED)
    assert not any("lost" in record for record in rounds)
    require_equal_weights(simulated.directory, out)
