"""Real processes with TLS and keys: results, faults and restarts."""

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy.ports import is_open
from fedadb.deploy.server import RunningServer
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import History, run
from fedadb.storage.files import locked
from fedadb.storage.records import Record, read_records
from tests.deploy.conftest import SHARED
from tests.deploy.federation import (
    GUARD,
    RealFederation,
    experiment,
    require_equal_weights,
    wait_for,
)
from tests.deploy.scripted_site import HOLDING

# On one worker: they share a federation, whose processes keep the machine busy enough.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("federation")]


def with_deployment(**deployment: object) -> Experiment:
    """The shared experiment with other settings of the server."""
    table = SHARED.table()
    return Experiment.read({**table, "deployment": {**table["deployment"], **deployment}})


def start(running: RunningServer, e: Experiment, out: Path) -> Iterator[Record]:
    """Submit the experiment; the iterator waits for its rounds."""
    return running.follow(running.submit(e, out), out, e.rounds, 0, lambda status: None)


def require_equal_runs(simulated: History, out: Path) -> None:
    records = read_records(out / "rounds.jsonl")
    for key in ("accuracy", "clients", "bytes_up"):
        assert [r[key] for r in records] == [r[key] for r in simulated.rounds]
    require_equal_weights(simulated.directory, out)


def test_a_killed_server_resumes(
    federation: RealFederation, simulated: History, tmp_path: Path
) -> None:
    """The result is bit-identical to a simulation, so sites and server resumed consistently."""
    federation.stop_server()
    file, out = tmp_path / "e.toml", tmp_path / "run"
    file.write_text(SHARED.toml())
    words = ["-m", "fedadb", "deploy", "server", str(federation.server_directory), str(file)]
    words += ["--out", str(out), "--listen", f"127.0.0.1:{federation.port}"]
    words += ["--track", "tensorboard"]

    def has_ended() -> bool:
        """Whether proxy and ServerApp ended with the server."""
        with suppress(BadInput), locked(out):
            return not is_open("127.0.0.1", federation.port)
        return False

    federation.script(1, {3: "hold"})
    before = federation.log("site-1")
    federation.start("server", words)
    federation.wait_for_log("site-1", HOLDING, before)
    wait_for(lambda: len(read_records(out / "rounds.jsonl")) == 2)
    federation.stop("server", signal.SIGKILL)
    wait_for(has_ended)
    federation.script(1, {})
    federation.start("server", words)
    assert federation.running.pop("server").wait(GUARD) == 0, federation.log("server")
    require_equal_runs(simulated, out)
    events = EventAccumulator(str(out / "tensorboard")).Reload()
    assert [e.step for e in events.Scalars("accuracy")] == [r["round"] for r in simulated.rounds]
    state = federation.site(0) / "state"
    assert list(state.glob("*/*.safetensors"))


def test_faults_at_a_site(
    federation: RealFederation, running: RunningServer, tmp_path: Path
) -> None:
    faults = {1: "nan", 2: "shape", 3: "raise", 4: "names", 5: "kill"}
    federation.script(1, faults)
    federation.script(0, {6: "hold"})
    before = federation.log("site-0")
    rounds = start(running, with_deployment(min_replies=1, reconnect=0.0), tmp_path / "run")
    reasons = [next(rounds)["lost"]["site-1"] for _ in range(4)]
    expected = ["is not finite", "of shape (3, 3)", "its log says why (RuntimeError)",
                "is not part of a reply"]  # fmt: skip
    for reason, part in zip(reasons, expected, strict=True):
        assert part in reason
    assert "the disk is full" in federation.log("site-1")  # it does not leave the site
    federation.running.pop("site-1").wait(GUARD)  # it kills itself in round 5
    federation.deactivate_site(1)
    assert next(rounds)["lost"] == {"site-1": "disconnected"}
    # In round 6, site 0 waits until site 1 has reconnected.
    federation.wait_for_log("site-0", HOLDING, before)
    federation.script(1, {})
    before = federation.log("site-1")
    federation.start_site(1, SHARED)
    federation.wait_for_log("site-1", "connected to", before)
    federation.script(0, {})
    assert next(rounds)["lost"] == {"site-1": "is not connected"}
    last = next(rounds)
    assert "lost" not in last, federation.log("site-1")
    assert sorted(last["clients"]) == [0, 1]
    assert not list(rounds)


def test_a_site_that_does_not_reply_and_is_killed(
    federation: RealFederation, running: RunningServer, simulated: History, tmp_path: Path
) -> None:
    """Its missing reply ends the run; after its restart the run resumes, with the same result."""
    out = tmp_path / "run"
    federation.script(1, {1: "hold"})
    hasty = with_deployment(deadline=2.0, min_replies=2, retries=0)
    # Site 0 may need more than two seconds as well.
    reason = r"round 1: [01] of 2 sites replied, but 2 are needed \(.*site-1: did not reply within"
    with pytest.raises(Fault, match=reason):
        list(start(running, hasty, out))
    federation.stop("site-1", signal.SIGKILL)
    federation.script(1, {})
    federation.start_site(1, SHARED)
    records = list(start(running, with_deployment(min_replies=2, retries=0), out))
    assert [record["round"] for record in records] == [1, 2, 3, 4, 5, 6, 7]
    require_equal_runs(simulated, out)


# Slow, because each starts a federation of its own. What they repeat: test_cohort.py checks every
# algorithm over the same messages in one process, and FedDyn runs in real processes above.
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "fedadb"])
def test_real_processes_are_bit_identical_to_a_simulation(algorithm: str, tmp_path: Path) -> None:
    e = experiment({"name": "fedadb", "steps": 5} if algorithm == "fedadb" else algorithm)
    federation = RealFederation(tmp_path)
    federation.prepare()
    try:
        for k in range(2):
            federation.start_site(k, e)
        list(start(federation.running_server(), e, tmp_path / "run"))
        require_equal_runs(run(e, tmp_path / "simulated"), tmp_path / "run")
        assert federation.stop("site-0") == 0
    finally:
        federation.stop_all()
