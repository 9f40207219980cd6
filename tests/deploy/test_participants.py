"""Which sites take part: they introduce themselves, and the server checks them before it trains."""

import json
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Error, Message

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy.client_app import app
from fedadb.deploy.messages import make_content
from fedadb.deploy.refusals import NO_DATA, Refusal
from fedadb.deploy.server_app import train_with_sites
from fedadb.experiment.config import Experiment
from tests.deploy.conftest import Clock
from tests.deploy.fake_grid import CLIENTS, FakeGrid, FakeNode, Handler, experiment, nodes, train

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("clock")]


def introducing(table: dict[str, Any]) -> Handler:
    """A site that introduces itself with this table."""

    def handle(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "query":
            return Message(make_content(table), reply_to=message)
        return app(message, context)

    return handle


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"site": "x", "partition": 0}, "its introduction is not valid: 'rows'"),
        ({"site": "x", "partition": 0, "rows": "many"}, "rows must be a whole number, not str"),
        ({"site": "x", "partition": 0, "rows": 10**400}, "it has impossibly many rows"),
        ({"site": "x", "partition": 10**400, "rows": 5}, "its partition does not exist"),
        ({"site": ["x"], "partition": 0, "rows": 5}, "`site` must be a text"),
        ({"site": "x" * 61, "partition": 0, "rows": 5}, "has more than 60 characters"),
        ({"site": "a\u202eb", "partition": 0, "rows": 5}, "must set `site` to a name"),
        ({"site": "x", "partition": 0, "rows": -5}, "it has -5 rows"),
        ({"site": "", "partition": -1, "rows": 5}, "must set `site` to a name"),
    ],
)
def test_a_site_with_an_invalid_introduction_is_refused(
    table: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    e = experiment(wait=60.0)
    with pytest.raises(Fault, match=reason):
        train(e, tmp_path, FakeGrid(e.toml(), nodes({1: introducing(table)})))


def test_sites_are_checked_before_the_first_round(tmp_path: Path) -> None:
    e = experiment(wait=60.0)
    with pytest.raises(Fault, match=r"60 s: 2 of 4 are connected \(client-0, client-1\)"):
        train(e, tmp_path, FakeGrid(e.toml(), nodes()[:2]))
    named = [FakeNode({"partition-id": k}, name="north") for k in range(CLIENTS)]
    with pytest.raises(BadInput, match="nodes 100 and 101 have the same name 'north'"):
        train(e, tmp_path, FakeGrid(e.toml(), named))
    five = [FakeNode({"partition-id": 0}, name=f"s{i}") for i in range(5)]
    with pytest.raises(BadInput, match=r"5 sites are connected .*federation\.clients = 4"):
        train(e, tmp_path, FakeGrid(e.toml(), five))
    other = experiment(wait=60.0).table()
    other["local"]["lr"] = 0.5
    with pytest.raises(Fault, match=r"local\.lr is 0\.01 there and 0.5 here; use the same file"):
        train(e, tmp_path, FakeGrid(Experiment.read(other).toml(), nodes()))
    assert not (tmp_path / "rounds.jsonl").exists()


def test_the_server_waits_for_a_site_that_connects_late(clock: Clock, tmp_path: Path) -> None:
    e = experiment(wait=600.0, rounds=1)
    grid = FakeGrid(e.toml(), nodes())
    late = grid.nodes[103]
    late.connected = False
    clock.at(100, lambda: setattr(late, "connected", True))
    statuses: list[str] = []
    assert len(list(train_with_sites(grid, e, tmp_path, statuses.append))) == 1
    assert [status for status in statuses if not status.startswith("round")] == [
        "waiting for sites: 3 of 4 are connected (client-0, client-1, client-2)",
        "waiting for sites: 4 of 4 are connected (client-0, client-1, client-2, client-3)",
    ]


def test_a_resumed_run_needs_the_sites_that_it_began_with(tmp_path: Path) -> None:
    e = experiment(wait=60.0)
    next(train_with_sites(FakeGrid(e.toml(), nodes()), e, tmp_path))
    renamed = nodes()
    renamed[2].name = "new"
    with pytest.raises(Fault, match="the run began with client-2 and needs them again"):
        train(e, tmp_path, FakeGrid(e.toml(), renamed))
    fewer = nodes({1: introducing({"site": "", "partition": 1, "rows": 7})})
    with pytest.raises(BadInput, match="client-1 has 7 rows, but had"):
        train(e, tmp_path, FakeGrid(e.toml(), fewer))


def refusing(error: Exception) -> Handler:
    """A site that refuses to introduce itself."""

    def handle(message: Message, context: Context) -> Message:
        raise error

    return handle


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Refusal(NO_DATA, "Jane Doe.png"), "client-1 cannot take part: the site has no images"),
        (BadInput("rounds differs"), "client-1 cannot take part: rounds differs"),
    ],
)
def test_a_refusal_that_waiting_cannot_mend_ends_the_wait(
    error: Exception, reason: str, clock: Clock, tmp_path: Path
) -> None:
    e = experiment(wait=600.0)
    sites = nodes({1: refusing(error)})
    for k, node in enumerate(sites):
        node.name = f"client-{k}"
    with pytest.raises(Fault, match=reason):
        train(e, tmp_path, FakeGrid(e.toml(), sites))
    assert clock.now < 5


def test_a_refused_application_ends_the_wait(clock: Clock, tmp_path: Path) -> None:
    def handle(message: Message, context: Context) -> Message:
        return Message(Error(7, "this site accepts another application only"), reply_to=message)

    e = experiment(wait=600.0)
    with pytest.raises(Fault, match="node 102 cannot take part: this site accepts another"):
        train(e, tmp_path, FakeGrid(e.toml(), nodes({2: handle})))
    assert clock.now < 5


def test_the_server_waits_for_a_site_that_fails(clock: Clock, tmp_path: Path) -> None:
    e = experiment(wait=600.0, rounds=1)
    sites = nodes({1: refusing(OSError("the disk is not mounted"))})
    clock.at(100, sites[1].restart)
    assert len(train(e, tmp_path, FakeGrid(e.toml(), sites))) == 1


def test_a_silent_site_does_not_extend_the_wait(clock: Clock, tmp_path: Path) -> None:
    e = experiment(wait=10.0)
    with pytest.raises(Fault, match="within 10 s: 3 of 4 are connected"):
        train(e, tmp_path, FakeGrid(e.toml(), nodes({1: refusing(TimeoutError())})))
    assert clock.now < 12


def test_a_name_that_a_site_gives_itself_is_used_once(tmp_path: Path) -> None:
    e = experiment(wait=60.0)
    copy = introducing({"site": "client-0", "partition": 1, "rows": 5})
    with pytest.raises(Fault, match="node 101: another site has the name 'client-0'"):
        train(e, tmp_path, FakeGrid(e.toml(), nodes({1: copy})))


def test_the_server_can_fix_the_rows_of_each_site(tmp_path: Path) -> None:
    e = experiment(rounds=1)
    train(e, tmp_path / "first", FakeGrid(e.toml(), nodes()))
    stored = json.loads((tmp_path / "first" / "sites.json").read_text())
    rows = dict(zip(stored["names"], stored["rows"], strict=True))
    fixed = experiment(rounds=1, rows=rows)
    assert len(train(fixed, tmp_path / "second", FakeGrid(e.toml(), nodes()))) == 1
    more = introducing({"site": "", "partition": 1, "rows": 10**9})
    with pytest.raises(Fault, match=r"10+ rows, but deployment\.rows\.client-1 is \d+$"):
        train(fixed, tmp_path / "third", FakeGrid(e.toml(), nodes({1: more})))
    fewer = experiment(rounds=1, rows={"client-0": rows["client-0"]})
    with pytest.raises(Fault, match=r"but deployment\.rows\.client-1 is not listed"):
        train(fewer, tmp_path / "fourth", FakeGrid(e.toml(), nodes()))
