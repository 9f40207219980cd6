from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fedadb.deploy import all_sites, cohort, delivery, notices, participants, processes, server
from fedadb.deploy.server import RunningServer
from fedadb.experiment.run import History, run
from tests.deploy.federation import RealFederation, experiment

# The experiment of the federation that the tests with real processes share. FedDyn, because its
# sites remember something.
SHARED = experiment("feddyn", rounds=7)


class Clock:
    """A clock that advances only when the code under test sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self._scheduled: list[tuple[float, Callable[[], Any]]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        while self._scheduled and self._scheduled[0][0] <= self.now:
            self._scheduled.pop(0)[1]()

    def at(self, time: float, action: Callable[[], Any]) -> None:
        """Call the action at that time; actions are given in the order of their times."""
        self._scheduled.append((time, action))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replaces the clock of the server's code, so that no deadline depends on the machine."""
    made = Clock()
    for module in (all_sites, cohort, delivery, notices, participants, processes, server):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture(scope="session")
def shared_federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFederation]:
    federation = RealFederation(tmp_path_factory.mktemp("federation"))
    federation.prepare()
    try:
        for k in range(2):
            federation.start_site(k, SHARED)
        yield federation
        federation.stop_server()
        assert all(federation.stop(name) == 0 for name in list(federation.running))
    finally:
        federation.stop_all()


@pytest.fixture
def federation(shared_federation: RealFederation) -> Iterator[RealFederation]:
    """A server that may run, and two running sites that accept the shared experiment.

    A session starts them once, because each process loads torch. A test must leave both sites
    running.
    """
    yield shared_federation
    for k in range(2):
        shared_federation.script(k, {})


@pytest.fixture
def running(federation: RealFederation) -> RunningServer:
    return federation.running_server()


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> History:
    """The shared experiment, simulated in this process."""
    return run(SHARED, tmp_path_factory.mktemp("simulated") / "run")
