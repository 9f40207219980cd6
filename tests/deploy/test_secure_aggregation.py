"""Secure aggregation with sites: the result is a simulation's, whatever is killed or lost."""

import os
import signal
from pathlib import Path

import pytest
import torch
from flwr.app import Context, Message

from fedadb.core.errors import Fault
from fedadb.deploy.client_app import app
from fedadb.deploy.messages import (
    bytes_record,
    make_content,
    table_in,
    tensor_bytes_in,
    tensor_record,
    tensors_in,
)
from fedadb.deploy.server_app import train_with_sites
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from fedadb.experiment.stored import read_sites
from fedadb.filters.accounting import Accountant
from fedadb.storage.records import read_records
from fedadb.storage.tensorfile import read_tensors
from tests.deploy.fake_grid import FakeGrid, Handler, train
from tests.deploy.federation import require_equal_weights
from tests.deploy.secure_federation import (
    NAMES,
    experiment,
    give_rows_of_clients,
    grid,
    make_sites,
    secagg_files,
)

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("clock")]
FEDAVG = experiment(rounds=2, deadline=20.0)


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    return make_sites(tmp_path / "sites")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of FEDAVG in which nothing goes wrong."""
    directory = tmp_path_factory.mktemp("undisturbed")
    train(FEDAVG, directory / "run", grid(make_sites(directory / "sites"), FEDAVG))
    return directory / "run"


def at_train(t: str, then: Handler) -> Handler:
    """A site that handles the messages of round t in another way."""

    def handle(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train" and message.metadata.group_id == t:
            return then(message, context)
        return app(message, context)

    return handle


def test_fedadb_is_bit_identical_to_a_simulation_and_the_server_learns_sums_only(
    sites: Path, tmp_path: Path
) -> None:
    e = experiment({"name": "fedadb", "steps": 2}, rounds=2, evaluate="both")
    give_rows_of_clients(sites, e)
    answers: list[tuple[str, Message]] = []

    def noted(message: Message, context: Context) -> Message:
        answers.append((message.metadata.message_type, reply := app(message, context)))
        return reply

    simulated = run(e, tmp_path / "simulated").rounds
    trained = train(e, tmp_path / "run", grid(sites, e, dict.fromkeys(NAMES, noted)))
    for expected, actual in zip(simulated, trained, strict=True):
        for key in expected.keys() - {"seconds", "cag_seconds"}:
            assert actual[key] == expected[key], key
        assert len(actual["domain_accuracy"]) == 1  # of all sites together
    require_equal_weights(tmp_path / "simulated", tmp_path / "run")
    for kind, reply in answers:
        if kind == "query":
            assert table_in(reply.content)["rows"] == 0
        elif kind in ("train", "evaluate"):
            assert list(reply.content) == ["tensors"]
            assert [(n, t.dtype) for n, t in tensors_in(reply.content).items()] == [
                ("masked", torch.uint32)
            ]
    assert read_sites(tmp_path / "run" / "sites.json")["rows"] == [0, 0, 0]
    assert all(not secagg_files(sites, name, "key") for name in NAMES)  # deleted at the end


def killed(message: Message, context: Context) -> Message:
    """A site whose process is killed after it has stored its answer and before it sends it."""
    child = os.fork()
    if child == 0:
        app(message, context)
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    raise ConnectionError


def test_killed_sites_and_a_killed_server_do_not_change_a_bit(
    sites: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """The site answers with the bytes that it stored, although it would compute others."""
    out = tmp_path / "run"

    def server_ends(message: Message, context: Context) -> Message:
        app(message, context)
        raise KeyboardInterrupt  # in the middle of the exchange: the third site is not asked

    with pytest.raises(Fault, match=r"round 2: .* needs all 3 sites, .* \(north: disconnected\)"):
        train(FEDAVG, out, grid(sites, FEDAVG, {"north": at_train("2", killed)}))
    (stored,) = set(secagg_files(sites, "north", "train-*")) - {
        path for path in secagg_files(sites, "north", "train-*") if used_in(sites, path, "1 0")
    }
    before = stored.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        train(FEDAVG, out, grid(sites, FEDAVG, {"north": at_train("2", server_ends)}))
    sent: list[bytes] = []

    def noted(message: Message, context: Context) -> Message:
        reply = app(message, context)
        sent.append(tensor_bytes_in(reply.content))
        return reply

    train(FEDAVG, out, grid(sites, FEDAVG, {"north": at_train("2", noted)}))
    assert sent == [before]
    require_equal_weights(undisturbed, out)


def used_in(sites: Path, path: Path, label: str) -> bool:
    (journal,) = secagg_files(sites, "north", "used.json")
    return f'"train {label}":"{path.stem.removeprefix("train-")}"' in journal.read_text()


def test_a_missing_site_ends_the_run_which_can_be_resumed(
    sites: Path, undisturbed: Path, tmp_path: Path
) -> None:
    def silent(message: Message, context: Context) -> Message:
        raise TimeoutError

    out = tmp_path / "run"
    with pytest.raises(Fault, match=r"round 2: secure aggregation needs all 3 sites, but 1 did"):
        train(FEDAVG, out, grid(sites, FEDAVG, {"west": at_train("2", silent)}))
    assert len(read_records(out / "rounds.jsonl")) == 1
    train(FEDAVG, out, grid(sites, FEDAVG))
    require_equal_weights(undisturbed, out)


def other_model(message: Message, context: Context) -> Message:
    """A server that sends one site another model than the others."""
    tensors = tensors_in(message.content)
    first = next(iter(tensors))
    tensors[first] = tensors[first] + 1e-6
    content = make_content(table_in(message.content), tensor_record(tensors))
    message.content = content
    return app(message, context)


def other_order(message: Message, context: Context) -> Message:
    """A server that sends one site the same model with another order."""
    table = table_in(message.content)
    t, total, clients, examples, _ = table["round"]
    table["round"] = [t, total, clients, examples, 0.0]  # the factor of the learning rate
    message.content = make_content(table, bytes_record(tensor_bytes_in(message.content)))
    return app(message, context)


def old_reply(earlier: list[bytes]) -> Handler:
    """A site that sends its reply of round 1 again."""

    def handle(message: Message, context: Context) -> Message:
        reply = app(message, context)
        if message.metadata.group_id == "1":
            earlier.append(tensor_bytes_in(reply.content))
        if message.metadata.group_id == "2":
            return Message(make_content({}, bytes_record(earlier[0])), reply_to=message)
        return reply

    return handle


@pytest.mark.parametrize(
    "handle",
    [at_train("2", other_model), at_train("2", other_order), old_reply([])],
    ids=["model", "order", "replay"],
)
def test_what_is_no_sum_is_void_and_asked_for_again_under_new_masks(
    handle: Handler, sites: Path, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(Fault, match=r"round 2 is void: .* the same command asks all of them again"):
        train(FEDAVG, out, grid(sites, FEDAVG, {"north": handle}))
    assert read_sites(out / "sites.json")["attempt"] == 1
    train(FEDAVG, out, grid(sites, FEDAVG))
    require_equal_weights(undisturbed, out)


def test_a_lost_answer_is_not_masked_again_under_the_same_masks(
    sites: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """The site refuses, and the server asks all sites again under new masks."""
    out, asked = tmp_path / "run", []

    def forgetful(message: Message, context: Context) -> Message:
        asked.append(table_in(message.content)["attempt"])
        reply = app(message, context)
        if len(asked) == 1:
            for path in secagg_files(sites, "east", "train-*"):
                path.unlink()
            raise TimeoutError
        return reply

    train(FEDAVG, out, grid(sites, FEDAVG, {"east": at_train("2", forgetful)}))
    assert asked == [0, 0, 1]
    require_equal_weights(undisturbed, out)


def test_a_run_that_returns_to_a_round_uses_new_masks(
    sites: Path, undisturbed: Path, tmp_path: Path
) -> None:
    out, e = tmp_path / "run", FEDAVG
    rounds = train_with_sites(grid(sites, e), e, out)
    next(rounds)
    next(rounds)  # the run is not finished: its model is not written
    rounds.close()
    assert len(list(train_with_sites(grid(sites, e), e, out, from_round=1))) == 1
    assert read_sites(out / "sites.json")["attempt"] == 1
    require_equal_weights(undisturbed, out)


def test_noise_is_added_to_the_sum_of_real_sites(sites: Path, tmp_path: Path) -> None:
    """All sites count alike, the noise is the operating system's, and no record tells more."""
    dp = [{"name": "dp", "norm": 0.1, "noise": 0.1}]
    e = Experiment.read({**experiment(rounds=2).table(), "filter": dp})
    secrets = tmp_path / "private"
    rounds = list(train_with_sites(grid(sites, e), e, tmp_path / "run", private=secrets))
    accountant = Accountant(3, 1.0, poisson=False)
    expected = [accountant.epsilon(0.1, t, 3**-1.1) for t in (1, 2)]
    assert [record["epsilon"] for record in rounds] == expected
    assert all(record["seconds"] is None and record["clients"] == [] for record in rounds)
    start, end = (
        read_tensors(tmp_path / "run" / f"{name}.safetensors", "")[0]
        for name in ("checkpoint-0001", "checkpoint")
    )
    moved = torch.cat(
        [(end[key] - start[key]).flatten() for key in end if key.startswith("server/w")]
    )
    # An update is at most 0.1 long; the noise has the deviation 0.1 · 0.1 / 3 in each coordinate.
    assert float(moved.std()) == pytest.approx(0.1 * 0.1 / 3, rel=0.05)


def test_a_site_whose_weights_change_too_much_says_so_without_the_value(
    sites: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    e = experiment(secure_range=1e-5)
    with pytest.raises(Fault, match=r"a weight changed by more than deployment\.secure_range; its"):
        train(e, tmp_path / "run", grid(sites, e))
    assert "changed by" in caplog.text


def test_changed_data_are_noticed(sites: Path, tmp_path: Path) -> None:
    rounds = train_with_sites(grid(sites, FEDAVG), FEDAVG, tmp_path / "run")
    next(rounds)
    rounds.close()
    data = (sites / "west" / "data.npz").read_bytes()
    (sites / "west" / "more.npz").write_bytes((sites / "east" / "data.npz").read_bytes())
    changed = grid(sites, FEDAVG)
    changed.nodes[102].config["data"] = f"npz:{sites / 'west' / 'more.npz'}"
    with pytest.raises(Fault, match="west: the site's images cannot be used"):
        train(FEDAVG, tmp_path / "run", changed)
    assert data == (sites / "west" / "data.npz").read_bytes()


@pytest.mark.parametrize("evaluate", ["sites", "both"])
def test_evaluations_are_summed(evaluate: str, sites: Path, tmp_path: Path) -> None:
    """One site has no test images: it adds zeros."""
    e = experiment(rounds=1, evaluate=evaluate)
    (record,) = train(e, tmp_path / "run", grid(sites, e))
    (accuracy,) = record["domain_accuracy"]
    assert round(30 * accuracy) == pytest.approx(30 * accuracy)  # of 10 images at each site
    assert (record["accuracy"] == accuracy) == (evaluate == "sites")
    assert record["loss"] == pytest.approx(2.3, abs=0.2)


def test_a_server_with_a_test_set_continues_without_the_sites_evaluation(
    sites: Path, tmp_path: Path
) -> None:
    def away(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "evaluate":
            raise ConnectionError
        return app(message, context)

    e = experiment(rounds=1, evaluate="both")
    (record,) = train(e, tmp_path / "run", grid(sites, e, {"east": away}))
    assert record["domain_accuracy"] == [None]
    alone = experiment(rounds=1, evaluate="sites")
    with pytest.raises(Fault, match="evaluation: secure aggregation needs all 3 sites"):
        train(alone, tmp_path / "alone", grid(sites, alone, {"east": away}))


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"masked": torch.zeros(3, dtype=torch.uint32)}, "masked is torch.uint32 of shape"),
        ({"masked": torch.zeros(44_426)}, "masked is torch.float32 of shape"),
        ({"other": torch.zeros(2)}, "its answer must have one tensor, masked"),
    ],
)
def test_a_wrong_form_is_named(
    tensors: dict[str, torch.Tensor], reason: str, sites: Path, tmp_path: Path
) -> None:
    def wrong(message: Message, context: Context) -> Message:
        return Message(make_content({}, tensor_record(tensors)), reply_to=message)

    with pytest.raises(Fault, match=rf"round 1: .*\(west: {reason}"):
        train(FEDAVG, tmp_path / "run", grid(sites, FEDAVG, {"west": at_train("1", wrong)}))


def test_nodes_without_a_roster_are_refused(sites: Path, tmp_path: Path) -> None:
    without: FakeGrid = grid(sites, FEDAVG)
    del without.nodes[101].config["directory"]
    with pytest.raises(Fault, match=r"north: deployment\.secure_aggregation: this site has no"):
        train(FEDAVG, tmp_path / "run", without)


def test_keys_of_finished_runs_are_deleted_when_another_begins(sites: Path, tmp_path: Path) -> None:
    """For a site that was away when the server said that the run had ended."""

    def away_at_the_end(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "query.end":
            raise TimeoutError
        return app(message, context)

    e = experiment(rounds=1)
    train(e, tmp_path / "one", grid(sites, e, {"east": away_at_the_end}))
    assert [len(secagg_files(sites, name, "key")) for name in NAMES] == [1, 0, 0]
    rounds = train_with_sites(grid(sites, FEDAVG), FEDAVG, tmp_path / "two")
    next(rounds)
    rounds.close()
    assert [len(secagg_files(sites, name, "key")) for name in NAMES] == [1, 1, 1]
    (key,) = secagg_files(sites, "east", "key")
    assert read_sites(tmp_path / "two" / "sites.json")["run"] == key.parent.parent.name
    assert key.stat().st_mode & 0o777 == 0o600
