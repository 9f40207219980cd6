"""Replies that arrive late, in part, twice or not at all, and sites that disconnect."""

from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from flwr.app import Context, Message

from fedadb.deploy.client_app import app
from fedadb.deploy.delivery import MAX_MESSAGES
from fedadb.deploy.server_app import train_with_sites
from fedadb.experiment.build import sample_clients
from fedadb.experiment.config import Experiment
from fedadb.storage.records import Record
from tests.deploy.conftest import Clock
from tests.deploy.fake_grid import FakeGrid, FakeNode, Withheld, experiment, nodes, train
from tests.deploy.federation import GUARD

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("clock")]


class Behaviour:
    """A site that does something else when it is asked to train."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error
        self.asked: list[tuple[Message, Context]] = []

    def __call__(self, message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train":
            self.asked.append((message, context))
            raise self.error
        return app(message, context)


def one_round(**deployment: Any) -> tuple[Experiment, int, int]:
    """An experiment of one round, and its two clients."""
    e = experiment(rounds=1, min_replies=1, retries=0, **deployment)
    first, second = sample_clients(e.federation, e.seed, 1)
    return e, first, second


def test_a_withheld_reply_delays_no_other(clock: Clock, tmp_path: Path) -> None:
    e, k, honest = one_round(deadline=20.0)
    grid = FakeGrid(e.toml(), nodes({k: Behaviour(Withheld)}))
    records: list[Record] = []
    thread = Thread(target=lambda: records.extend(train(e, tmp_path, grid)), daemon=True)
    thread.start()
    thread.join(GUARD / 5)
    assert not thread.is_alive(), "a pull blocks the others"
    assert records[0]["clients"] == [honest]
    assert records[0]["lost"] == {f"client-{k}": "did not complete its reply within 20 s"}
    assert clock.now < 21
    assert all(len(message_ids) == 1 for message_ids in grid.pulled)


def test_a_site_that_trains_for_long_is_asked_less_and_less_often(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    e, k, _ = one_round(deadline=600.0)
    pauses: list[float] = []
    sleep = clock.sleep

    def noted(seconds: float) -> None:
        pauses.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(clock, "sleep", noted)
    (record,) = train(e, tmp_path, FakeGrid(e.toml(), nodes({k: Behaviour(TimeoutError)})))
    assert record["lost"] == {f"client-{k}": "did not reply within 600 s"}
    assert 600 <= clock.now < 602
    # 50 in the first 5 s, each 2 % later than the one before until 100 s, and one every 2 s then.
    assert 400 < len(pauses) < 500


def test_a_reply_just_before_the_deadline_is_used(clock: Clock, tmp_path: Path) -> None:
    e, k, _ = one_round(deadline=40.0)
    late = Behaviour(TimeoutError)
    grid = FakeGrid(e.toml(), nodes({k: late}))

    def reply() -> None:
        message, context = late.asked[0]
        grid.deliver(message, app(message, context))

    clock.at(39.99, reply)
    assert "lost" not in train(e, tmp_path, grid)[0]


def test_what_a_reply_says_it_is_a_reply_to_is_not_used(tmp_path: Path) -> None:
    def foreign(message: Message, context: Context) -> Message:
        reply = app(message, context)
        reply.metadata.__dict__["_reply_to_message_id"] = "message-0"
        return reply

    e = experiment()
    records = train(e, tmp_path, FakeGrid(e.toml(), nodes({0: foreign})))
    assert not any("lost" in record for record in records)


def test_a_site_that_was_started_again_is_asked_again(clock: Clock, tmp_path: Path) -> None:
    """The SuperLink may not have noticed that it was gone."""
    e, k, _ = one_round(deadline=3600.0)
    sites = nodes({k: Behaviour(TimeoutError)})
    clock.at(10, sites[k].restart)
    assert "lost" not in train(e, tmp_path, FakeGrid(e.toml(), sites))[0]
    assert clock.now < 20


def test_a_site_that_disconnects_is_awaited(clock: Clock, tmp_path: Path) -> None:
    e, k, _ = one_round(deadline=3600.0, reconnect=100.0)
    sites = nodes({k: Behaviour(TimeoutError)})
    clock.at(10, lambda: setattr(sites[k], "connected", False))
    clock.at(100, sites[k].restart)
    assert "lost" not in train(e, tmp_path, FakeGrid(e.toml(), sites))[0]
    assert 100 <= clock.now < 110


def test_a_site_may_return_as_another_node(clock: Clock, tmp_path: Path) -> None:
    e, k, _ = one_round(deadline=3600.0)
    sites = nodes({k: Behaviour(TimeoutError)})
    for i, node in enumerate(sites):
        node.name = f"client-{i}"
    grid = FakeGrid(e.toml(), sites)
    clock.at(10, lambda: setattr(sites[k], "connected", False))
    clock.at(30, lambda: grid.nodes.update({200: FakeNode(sites[k].config, f"client-{k}")}))
    assert "lost" not in train(e, tmp_path, grid)[0]
    assert clock.now < 40


def test_a_site_that_is_gone_is_dropped(clock: Clock, tmp_path: Path) -> None:
    e, k, _ = one_round(deadline=3600.0, reconnect=100.0)
    sites = nodes({k: Behaviour(TimeoutError)})
    clock.at(10, lambda: setattr(sites[k], "connected", False))
    record = train(e, tmp_path, FakeGrid(e.toml(), sites))[0]
    assert record["lost"] == {f"client-{k}": "disconnected"}
    assert 110 <= clock.now < 120


def test_a_site_that_disconnects_all_the_time_is_dropped(clock: Clock, tmp_path: Path) -> None:
    e, k, _ = one_round(deadline=3600.0)
    behaviour = Behaviour(TimeoutError)
    sites = nodes({k: behaviour})
    for t in range(10, 1000, 10):
        clock.at(t, lambda: sites[k].restart(behaviour))
    record = train(e, tmp_path, FakeGrid(e.toml(), sites))[0]
    assert record["lost"] == {f"client-{k}": "disconnected too often"}
    assert len(behaviour.asked) == MAX_MESSAGES
    assert clock.now < 100


def test_the_status_names_who_is_waited_for(clock: Clock, tmp_path: Path) -> None:
    e, k, other = one_round(deadline=3600.0)
    sites = nodes({k: Behaviour(TimeoutError)})
    clock.at(10, lambda: setattr(sites[k], "connected", False))
    clock.at(30, sites[k].restart)
    statuses: list[str] = []
    list(train_with_sites(FakeGrid(e.toml(), sites), e, tmp_path, statuses.append))
    asked = f"round 1: asked client-{k}, client-{other}; "
    answered = f"{asked}client-{other} answered after 0 s; "
    assert [status for status in statuses if status.startswith("round")] == [
        f"{answered}waiting for client-{k} (connected)",
        f"{answered}waiting for client-{k} (disconnected)",
        f"{asked}client-{k} answered after 30 s; client-{other} answered after 0 s",
    ]
