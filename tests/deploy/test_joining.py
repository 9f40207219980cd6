"""A site is revoked and accepted again while a run lasts, and the audit logs have it."""

from pathlib import Path

import pytest

from fedadb.deploy import keys
from fedadb.deploy.audit_log import AUDIT, compare_answers
from fedadb.deploy.server import RunningServer
from fedadb.experiment.config import Experiment
from fedadb.storage.hash_chain import read_chain
from tests.deploy.conftest import SHARED
from tests.deploy.federation import GUARD, RealFederation
from tests.deploy.scripted_site import HOLDING

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("federation")]


def test_a_site_is_revoked_and_joins_again_while_a_run_lasts(
    federation: RealFederation, running: RunningServer, tmp_path: Path
) -> None:
    table, out = SHARED.table(), tmp_path / "run"
    patient = {"min_replies": 1, "reconnect": 0.0}
    e = Experiment.read({**table, "deployment": {**table["deployment"], **patient}})
    public = running.directory / keys.SITES / "site-1.pub"
    key = public.read_bytes()
    federation.script(0, {3: "hold"})
    federation.script(1, {2: "hold"})
    before = {name: federation.log(name) for name in ("site-0", "site-1")}
    rounds = running.follow(running.submit(e, out), out, e.rounds, 0, lambda status: None)
    assert "lost" not in next(rounds)
    federation.wait_for_log("site-1", HOLDING, before["site-1"])
    public.unlink()
    assert next(rounds)["lost"] == {"site-1": "disconnected"}
    federation.script(1, {})  # its reply is refused
    assert federation.running.pop("site-1").wait(GUARD) == 1
    assert "no longer accepts this site's key" in federation.log("site-1")
    federation.wait_for_log("site-0", HOLDING, before["site-0"])
    public.write_bytes(key)
    assert running.update_sites() == ["site-1 is accepted"]
    connected = federation.log("site-1")
    federation.start_site(1, SHARED)
    federation.wait_for_log("site-1", "connected to", connected)
    federation.script(0, {})
    assert next(rounds)["lost"] == {"site-1": "is not connected"}
    assert not any("lost" in record for record in rounds)

    server = read_chain(running.directory / AUDIT)
    events = [(entry["event"], entry.get("site")) for entry in server.entries]
    assert ("started", None) in events
    assert ("revoked", "site-1") in events
    assert events[-1][0] == "finished"
    for k in range(2):
        site = read_chain(federation.site(k) / AUDIT)
        assert compare_answers(server, site, f"site-{k}").both >= e.rounds - 2
