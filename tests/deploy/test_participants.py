"""Which sites take part: they introduce themselves, and the server checks them before it trains."""

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy.client_app import app
from fedadb.deploy.messages import make_content
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
        ({"site": "x", "partition": 0, "rows": "many"}, "is not valid: invalid literal"),
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
    with pytest.raises(Fault, match=r"local\.lr is 0\.05 there and 0.5 here; use the same file"):
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
    assert statuses == [
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
