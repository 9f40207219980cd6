"""Whatever a site sends, the worst outcome is that this site is lost, with a reason."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedadb.algorithms.fedavg import FedAvg
from fedadb.algorithms.fednova import FedNova
from fedadb.core.errors import Fault
from fedadb.core.replies import Reply
from fedadb.core.vector import Vector, Weights
from fedadb.deploy import participants
from fedadb.deploy.client_app import app
from fedadb.deploy.cohort import SiteCohort
from fedadb.deploy.delivery import NoReply, send_and_wait
from fedadb.deploy.messages import (
    MAX_TEXT,
    TRAIN,
    make_content,
    request_in,
    shown,
    table_in,
    tensor_record,
    tensors_from_bytes,
    tensors_in,
)
from fedadb.deploy.reply_checks import CheckedReply, Spread, cap_rows, check_counts, check_reply
from fedadb.experiment.build import build_model, sample_clients
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import run
from fedadb.experiment.settings import Deployment
from fedadb.experiment.stored import read_run
from fedadb.report.comparison import arrange
from fedadb.report.page_data import page_data
from fedadb.report.recorded_runs import read_recorded_run
from fedadb.storage.records import mean_measurements, read_records
from fedadb.storage.tensorfile import read_tensors
from tests.deploy.fake_grid import CLIENTS, FakeGrid, FakeNode, Handler, experiment, nodes, train

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("clock")]

T = TypeVar("T")
FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
NESTED = "[" * 100_000 + "]" * 100_000
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**400), 2**63, math.inf, -math.inf, math.nan, 1e308])
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["\x1b[2J", "\u202e", "\ud800", "x" * 5000])
)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(), v))


def tables(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    """Tables in which some of the keys are missing, and the others have any value."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(keys, VALUES))


def content(text: Any) -> RecordDict:
    """A message's content whose table is this text."""
    return RecordDict({"table": ConfigRecord({"json": text})})


def as_json(value: Any) -> str:
    # Python writes Infinity and NaN, which a site may do as well; 1e400 is infinite too.
    return json.dumps(value).replace("Infinity", "1e400")


def require_shown(reason: str) -> None:
    assert reason
    assert reason.isprintable()
    assert len(reason) <= MAX_TEXT


def require_read_or_refused(read: Callable[[], T]) -> T | None:
    """What the function returns, or None if it refuses the message in a short sentence."""
    reason = ""
    try:
        return read()
    except Fault as fault:
        reason = str(fault)
    assert reason
    assert len(reason) < 2 * MAX_TEXT
    return None


# functions


@FUZZ
@given(st.one_of(st.text(), st.binary(), st.integers(-5, 5), VALUES.map(json.dumps)))
def test_any_table_is_read_or_refused(text: Any) -> None:
    require_read_or_refused(lambda: table_in(content(text)))
    require_read_or_refused(lambda: request_in(content(text)))


@pytest.mark.parametrize("text", [NESTED, '{"a": ' + NESTED + "}", "9" * 5000, "NaN", " " * 2**21])
def test_an_extreme_table_is_refused(text: str) -> None:
    with pytest.raises(Fault, match="the message has no valid"):
        table_in(content(text))


@pytest.mark.parametrize("records", [RecordDict(), RecordDict({"table": ArrayRecord()})])
def test_a_message_without_a_table_is_refused(records: RecordDict) -> None:
    for read in (table_in, request_in, tensors_in):
        with pytest.raises(Fault):
            read(records)


@FUZZ
@given(tables("run", "client", "last_used", "round", "settings", "data"))
def test_any_request_is_read_or_refused(table: dict[str, Any]) -> None:
    require_read_or_refused(lambda: request_in(content(as_json(table))))


@FUZZ
@given(table=tables("site", "partition", "rows"), known_name=st.sampled_from(["", "north"]))
def test_any_introduction_is_read_or_refused(
    table: dict[str, Any], known_name: str, tmp_path: Path
) -> None:
    e = experiment()
    sites = participants.Participants(FakeGrid("", []), e, None, tmp_path)  # type: ignore[arg-type]
    answer = sites._admit(content(as_json(table)), known_name)
    if isinstance(answer, NoReply):
        require_shown(answer.reason)
    else:
        require_shown(answer.name)


@FUZZ
@given(tables("loss", "correct", "rows"))
def test_any_evaluation_is_read_or_refused(table: dict[str, Any]) -> None:
    counts = require_read_or_refused(lambda: check_counts(table, 3))
    assert counts is None or math.isfinite(counts.loss / sum(counts.rows))


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Fault, match="are not safetensors"):
        tensors_from_bytes(data)


WEIGHTS = Vector.of({"a": torch.zeros(2, 3), "b": torch.zeros(4)})
DTYPES = [torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64, torch.bfloat16]
EXAMPLE = Reply(Weights(WEIGHTS), torch.tensor(1))
NAMES = [
    "upload/w/a",
    "upload/w/b",
    "upload/w/\x1b[2J",
    "upload",
    "w/a",
    "examples",
    "measured/tau",
    "measured/lost",
    "measured",
    "",
]


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.sampled_from([(), (1,), (2, 3), (4,), (0,), (3, 2)]))
    value = draw(st.sampled_from([0, 1, 5, math.nan, math.inf, -math.inf, 1e308, 1e38]))
    return torch.full(shape, value, dtype=torch.float64).to(draw(st.sampled_from(DTYPES)))


@FUZZ
@given(
    st.dictionaries(st.sampled_from(NAMES), tensors()),
    st.sampled_from([{}, {"upload/w/a": torch.ones(2, 3), "upload/w/b": torch.ones(4)}]),
    st.sampled_from([{}, {"examples": torch.tensor(5)}]),
)
def test_any_reply_is_accepted_or_refused(
    sent: dict[str, Tensor], weights: dict[str, Tensor], examples: dict[str, Tensor]
) -> None:
    all_tensors = {**sent, **weights, **examples}
    checked = require_read_or_refused(
        lambda: check_reply(all_tensors, WEIGHTS, 5, EXAMPLE, ("tau",))
    )
    if checked is not None:
        assert all(math.isfinite(norm) for norm in checked.norms.values())
        assert checked.reply.measured.keys() <= {"tau"}
        measured = {name: float(value) for name, value in checked.reply.measured.items()}
        mean_measurements([measured] * 100)


@FUZZ
@given(st.integers(0, 20), st.text() | st.sampled_from(["\x1b]0;x\x07\u202e" * 500]))
def test_any_error_is_a_reason(code: int, reason: str) -> None:
    def failing(message: Message, context: Context) -> Message:
        return Message(Error(code, reason), reply_to=message)

    grid = FakeGrid("", [FakeNode({}, handle=failing)])
    answer = send_and_wait(grid, {100: RecordDict()}, TRAIN, "1", 5.0)[100]
    assert isinstance(answer, NoReply)
    require_shown(answer.reason)


def test_a_reply_that_cannot_be_inflated_is_lost_at_once() -> None:
    class Damaged(FakeGrid):
        def pull_messages(self, message_ids: Any) -> list[Message]:
            replies = super().pull_messages(message_ids)
            if replies and not replies[0].has_error():
                raise UnicodeDecodeError("utf-8", b"", 0, 1, "damaged")
            return replies

    def replying(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    grid = Damaged("", [FakeNode({}, handle=replying)])
    answer = send_and_wait(grid, {100: RecordDict()}, TRAIN, "1", 3600.0)
    assert answer == {100: NoReply("its reply cannot be read: UnicodeDecodeError")}


def test_what_is_shown_of_a_text() -> None:
    assert shown("north\x1b[2J \u202eevil\u2066\n\ud800") == "north [2J  evil   "
    assert len(shown("x" * 5000)) == MAX_TEXT


# whole rounds


def answering(kind: str, make: Callable[[Message, Context], RecordDict]) -> Handler:
    """A site with other content in its replies to one kind of message."""

    def handle(message: Message, context: Context) -> Message:
        if message.metadata.message_type == kind:
            return Message(make(message, context), reply_to=message)
        return app(message, context)

    return handle


def changed(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Handler:
    """A site that changes the tensors of its replies."""

    def make(message: Message, context: Context) -> RecordDict:
        tensors = change(tensors_in(app(message, context).content))
        return make_content({}, tensor_record(tensors))

    return answering("train", make)


def raw(data: bytes) -> RecordDict:
    array = Array(dtype="uint8", shape=(len(data),), stype="safetensors", data=data)
    return RecordDict({"tensors": ArrayRecord({"safetensors": array})})


@pytest.mark.parametrize(
    "records",
    [
        RecordDict(),
        RecordDict({"tensors": ConfigRecord({"safetensors": 1})}),
        raw(b""),
        raw(b"\xff" * 100),
        raw((2**62).to_bytes(8, "little") + b"{}"),
        raw(len(NESTED).to_bytes(8, "little") + NESTED.encode()),
        content(NESTED),
    ],
)
def test_a_damaged_reply_is_lost(records: RecordDict, tmp_path: Path) -> None:
    e = experiment(rounds=1, participation=1.0)
    sites = nodes({1: answering("train", lambda message, context: records)})
    record = train(e, tmp_path, FakeGrid(e.toml(), sites))[0]
    assert list(record["lost"]) == ["client-1"]
    require_shown(record["lost"]["client-1"])


@pytest.mark.parametrize(
    "text",
    [
        '{"site": "", "partition": 1, "rows": Infinity}',
        '{"site": "", "partition": 1, "rows": 1e400}',
        '{"site": "", "partition": NaN, "rows": 5}',
        NESTED,
        '{"site": ' + NESTED + "}",
    ],
)
def test_an_extreme_introduction_is_refused(text: str, tmp_path: Path) -> None:
    e = experiment(wait=20.0)
    sites = nodes({1: answering("query", lambda message, context: content(text))})
    with pytest.raises(Fault, match=r"3 of 4 are connected .* node 101: its introduction is not"):
        train(e, tmp_path, FakeGrid(e.toml(), sites))


def evaluation(loss: str = "1", rows: str = "1") -> str:
    return f'{{"loss": {loss}, "correct": {[0] * 10}, "rows": [{", ".join([rows] * 10)}]}}'


@pytest.mark.parametrize(
    "text",
    [
        evaluation(loss="1e400"),
        evaluation(loss="1" + "0" * 400),
        evaluation(loss="-1"),
        evaluation(rows="1e400"),
        evaluation(rows="1" + "0" * 400),
        NESTED,
    ],
)
def test_an_extreme_evaluation_is_lost(text: str, tmp_path: Path) -> None:
    e = experiment(evaluate="both", rounds=1)
    sites = nodes({1: answering("evaluate", lambda message, context: content(text))})
    record = train(e, tmp_path, FakeGrid(e.toml(), sites))[0]
    assert record["domain_accuracy"] == [None] * CLIENTS


def test_reasons_contain_no_control_characters(tmp_path: Path) -> None:
    evil = "\x1b]0;title\x07\u202e" * 100

    def rename(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            n + evil if n.startswith("upload/w/") else n: tensor for n, tensor in tensors.items()
        }

    e = experiment(rounds=1, participation=1.0)
    sites = nodes({1: changed(rename)})
    record = train(e, tmp_path, FakeGrid(e.toml(), sites))[0]
    require_shown(record["lost"]["client-1"])


def test_only_declared_measurements_are_recorded(tmp_path: Path) -> None:
    def add(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**tensors, "measured/lost": torch.tensor(1.0), "measured/tau": torch.tensor(2.0)}

    e = experiment(rounds=2, participation=1.0)
    records = train(e, tmp_path / "run", FakeGrid(e.toml(), nodes({1: changed(add)})))
    assert not any(key in record for record in records for key in ("lost", "tau"))
    page_data(arrange([read_recorded_run(tmp_path / "run")]), "title")


def test_infinite_measurements_do_not_stop_a_run(tmp_path: Path) -> None:
    def change(sign: float) -> Handler:
        infinite = torch.tensor(sign * math.inf)
        return changed(lambda tensors: {**tensors, "measured/tau": infinite})

    e = experiment({"name": "fedadb", "steps": 2}, rounds=1, participation=1.0)
    sites = nodes({1: change(1), 2: change(-1)})
    record = train(e, tmp_path, FakeGrid(e.toml(), sites))[0]
    assert math.isfinite(record["tau"])


# how much a site counts


def test_no_site_counts_for_more_than_half(tmp_path: Path) -> None:
    """One site claims 10¹² rows and zero weights; the others return what they received."""
    claimed = 10**12

    def introduce(message: Message, context: Context) -> RecordDict:
        return make_content({**table_in(app(message, context).content), "rows": claimed})

    def zero(message: Message, context: Context) -> RecordDict:
        sent = tensors_in(message.content)
        tensors = {f"upload/{name}": torch.zeros_like(tensor) for name, tensor in sent.items()}
        return make_content({}, tensor_record({**tensors, "examples": torch.tensor(claimed)}))

    def echo(message: Message, context: Context) -> RecordDict:
        examples = tensors_in(app(message, context).content)["examples"]
        sent = tensors_in(message.content)
        tensors = {f"upload/{name}": tensor for name, tensor in sent.items()}
        return make_content({}, tensor_record({**tensors, "examples": examples}))

    liar = answering("train", zero)

    def lie(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "query":
            return Message(introduce(message, context), reply_to=message)
        return liar(message, context)

    e = experiment(rounds=1, participation=1.0)
    honest = answering("train", echo)
    grid = FakeGrid(e.toml(), nodes({0: honest, 1: honest, 2: lie, 3: honest}))
    train(e, tmp_path, grid)
    trained, _ = read_tensors(tmp_path / "model.safetensors", "")
    before = build_model(e, read_run(tmp_path).spec).weights().views()
    for name, tensor in before.items():
        torch.testing.assert_close(trained[name], tensor / 2)
    rows = [counts[0] for counts in json.loads((tmp_path / "partition.json").read_text())["counts"]]
    assert rows[2] == rows[0] + rows[1] + rows[3]


@pytest.mark.parametrize(
    ("rows", "max_share", "counted"),
    [
        ([100, 100, 10**12], 0.5, [100, 100, 200]),
        ([100, 100, 10**12], 1.0, [100, 100, 10**12]),
        ([10, 20, 30], 0.5, [10, 20, 30]),
        ([10, 20, 31], 0.5, [10, 20, 30]),
        ([7, 1, 1, 1], 0.1, [1, 1, 1, 1]),
        ([1, 10**12], 0.5, [1, 10**12]),
        ([5], 0.5, [5]),
    ],
)
def test_the_rows_by_which_sites_count(
    rows: list[int], max_share: float, counted: list[int]
) -> None:
    assert cap_rows(rows, max_share) == counted


@FUZZ
@given(st.lists(st.integers(1, 10**12), min_size=3, max_size=8), st.floats(0.01, 1.0))
def test_no_site_exceeds_the_largest_share(rows: list[int], max_share: float) -> None:
    counted = cap_rows(rows, max_share)
    share = max(max_share, 1 / len(rows))
    assert all(1 <= c <= n for c, n in zip(counted, rows, strict=True))
    assert max(counted) <= share * sum(counted) + 1 or max(counted) == min(counted)
    if max(rows) <= share * sum(rows):
        assert counted == rows


def test_test_rows_do_not_decide_the_accuracy(tmp_path: Path) -> None:
    def test(k: int) -> Handler:
        rows = 10**9 if k == 0 else 10
        counts = {"loss": rows, "correct": [rows if k == 0 else 0] * 10, "rows": [rows] * 10}
        return answering("evaluate", lambda message, context: make_content(counts))

    e = experiment(rounds=1, evaluate="sites")
    record = train(e, tmp_path, FakeGrid(e.toml(), nodes({k: test(k) for k in range(4)})))[0]
    assert record["accuracy"] == 0.25
    assert record["class_accuracy"] == [0.25] * 10
    assert record["loss"] == pytest.approx(0.1)


# how far a site goes


def add_number(number: float) -> Handler:
    return changed(
        lambda tensors: {
            n: t + number if n.startswith("upload/w/") else t for n, t in tensors.items()
        }
    )


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_a_huge_control_variate_does_not_ruin_a_run(participation: float, tmp_path: Path) -> None:
    """Whatever an algorithm uploads beside its weights is bounded as they are."""
    huge = changed(
        lambda tensors: {
            n: torch.full_like(t, 3e38) if n.startswith("upload/c/") else t
            for n, t in tensors.items()
        }
    )
    e = experiment("scaffold", rounds=3, participation=participation, min_replies=1, retries=0)
    records = train(e, tmp_path, FakeGrid(e.toml(), nodes({1: huge})))
    lost = [record["lost"] for record in records if "lost" in record]
    assert lost
    assert all("the norm of its c is " in of_round["client-1"] for of_round in lost)
    weights, _ = read_tensors(tmp_path / "model.safetensors", "")
    assert all(tensor.abs().max() < 100 for tensor in weights.values())


@pytest.mark.parametrize("number", [0.3, -3e38])
def test_a_single_number_may_differ_much_between_sites(number: float, tmp_path: Path) -> None:
    """One site's classes are uneven, or it says so; those of the others are nearly balanced."""

    def claiming(kl: float) -> Handler:
        def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {**tensors, "upload/kl": torch.full_like(tensors["upload/kl"], kl)}

        return changed(change)

    e = experiment("feddisco", rounds=2, participation=1.0)
    sites = {k: claiming(number if k == 1 else 0.001) for k in range(CLIENTS)}
    records = train(e, tmp_path, FakeGrid(e.toml(), nodes(sites)))
    assert not any("lost" in record for record in records)
    weights, _ = read_tensors(tmp_path / "model.safetensors", "")
    assert all(tensor.abs().max() < 100 for tensor in weights.values())


def test_parts_are_compared_in_the_order_of_the_upload() -> None:
    """So the recorded reason is the same in every process. One reply is far in each part."""
    parts = list("abcdefgh")
    usual = dict.fromkeys(parts, 1.0)
    norms = [usual | {part: 1e9} for part in reversed(parts)] + [usual] * 3
    valid = {k: CheckedReply(EXAMPLE, of_parts) for k, of_parts in enumerate(norms)}
    learner: Any = SimpleNamespace(algorithm=FedAvg())
    sites: Any = SimpleNamespace(counted=[1] * len(norms))
    cohort = SiteCohort(learner, sites, Deployment(), last_used={})
    assert list(cohort._drop_far(valid, WEIGHTS)) == [7, 6, 5, 4, 3, 2, 1, 0]
    assert list(valid) == [8, 9, 10]


def skewed(algorithm: str, rounds: int, **deployment: Any) -> Experiment:
    """A small model at sites of different sizes, with different classes."""
    e = experiment(algorithm, rounds, participation=1.0, min_replies=1, retries=0, **deployment)
    table = e.table()
    table["federation"]["partition"] = {"name": "dirichlet", "alpha": 0.3}
    table["local"] |= {"lr": 0.05, "batch_size": 32}
    return Experiment.read(table | {"model": {"name": "mlp", "hidden": [16]}})


@pytest.mark.parametrize("a", [3e38, 1.0, -1.0])
def test_a_site_does_not_choose_the_weight_of_its_steps(a: float, tmp_path: Path) -> None:
    """A small one would multiply its update, and a large one those of the others."""
    lying = changed(lambda tensors: {**tensors, "upload/a": torch.tensor(a)})
    e = skewed("fednova", rounds=1)
    (record,) = train(e, tmp_path, FakeGrid(e.toml(), nodes({1: lying})))
    assert list(record["lost"]) == ["client-1"]
    assert re.fullmatch(r"its a is \S+, but \d+ rows give [\d.]+", record["lost"]["client-1"])


def test_a_site_that_claims_many_rows_does_not_lengthen_the_steps_of_all(tmp_path: Path) -> None:
    """The number of its steps, and so their weight, is that of the rows by which it counts."""
    e, claimed = skewed("fednova", rounds=1), 10**12
    a = FedNova().implied(e.local, claimed)["a"]
    train_and_lie = changed(
        lambda tensors: {
            **tensors,
            "upload/a": torch.tensor(a),
            "examples": torch.tensor(claimed),
        }
    )

    def lie(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "query":
            table = {**table_in(app(message, context).content), "rows": claimed}
            return Message(make_content(table), reply_to=message)
        return train_and_lie(message, context)

    (record,) = train(e, tmp_path, FakeGrid(e.toml(), nodes({1: lie})))
    assert "lost" not in record
    weights, _ = read_tensors(tmp_path / "model.safetensors", "")
    assert all(tensor.abs().max() < 100 for tensor in weights.values())


def test_an_honest_site_may_take_many_more_steps(tmp_path: Path) -> None:
    """Also one that counts by fewer rows than it has. The updates are equally long."""
    filters = [{"name": "clip", "norm": 1e-3}]
    e = skewed("fednova", rounds=1, filters=filters, max_share=0.25, median_bound=1.2)
    records = train(e, tmp_path, FakeGrid(e.toml(), nodes()))
    assert "lost" not in records[0]


def test_the_curvature_of_honest_skewed_sites_is_used(tmp_path: Path) -> None:
    """Squares of gradients differ more than updates do; a huge one is still dropped."""
    e = skewed("fedcurv", rounds=2)
    records = train(e, tmp_path / "honest", FakeGrid(e.toml(), nodes()))
    assert not any("lost" in record for record in records)
    huge = changed(lambda tensors: {n: t * 1e6 if "/u/" in n else t for n, t in tensors.items()})
    (record, _) = train(e, tmp_path / "huge", FakeGrid(e.toml(), nodes({1: huge})))
    assert "the norm of its u is " in record["lost"]["client-1"]


def test_a_number_is_not_measured_by_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sites take hundreds of steps, in batches of one row, before other replies are known."""
    monkeypatch.setattr(FedNova, "spread", {})
    table = experiment("fednova", rounds=1, retries=0).table()
    small = {"model": {"name": "mlp", "hidden": [4]}, "local": {"epochs": 1, "batch_size": 1}}
    e = Experiment.read(table | small)
    records = train(e, tmp_path, FakeGrid(e.toml(), nodes()))
    assert "lost" not in records[0]


@pytest.mark.parametrize(
    ("participation", "usual"), [(1.0, "the median of the round"), (0.5, "the weights' norm")]
)
def test_a_huge_reply_does_not_ruin_a_run(participation: float, usual: str, tmp_path: Path) -> None:
    e = experiment(rounds=3, participation=participation, min_replies=1, retries=0)
    records = train(e, tmp_path, FakeGrid(e.toml(), nodes({1: add_number(1e15)})))
    lost = [record["lost"] for record in records if "lost" in record]
    assert lost
    assert f"by {usual} and deployment.median_bound" in lost[0]["client-1"]
    assert all(list(of_round) == ["client-1"] for of_round in lost)
    weights, _ = read_tensors(tmp_path / "model.safetensors", "")
    assert all(tensor.abs().max() < 100 for tensor in weights.values())


def test_a_huge_reply_in_a_later_round_of_two_is_dropped(tmp_path: Path) -> None:
    huge = add_number(1e4)

    def handle(message: Message, context: Context) -> Message:
        return (huge if message.metadata.group_id == "4" else app)(message, context)

    e = experiment(rounds=4, min_replies=1, retries=0)
    k = sample_clients(e.federation, e.seed, 4)[0]
    records = train(e, tmp_path, FakeGrid(e.toml(), nodes({k: handle})))
    assert not any("lost" in record for record in records[:3])
    assert "by the median of recent replies" in records[3]["lost"][f"client-{k}"]


def test_the_bound_can_be_removed(tmp_path: Path) -> None:
    e = experiment(rounds=1, participation=1.0, median_bound="none")
    records = train(e, tmp_path, FakeGrid(e.toml(), nodes({1: add_number(1e3)})))
    assert "lost" not in records[0]


def test_a_site_with_more_rows_may_go_farther() -> None:
    spread = Spread.of([(1.0, 100), (2.0, 100), (3.0, 200), (50.0, 1000)])
    assert spread == (2.0, 100)
    assert spread.bound(100, 10.0) == 20
    assert spread.bound(10, 10.0) == 20
    assert spread.bound(1000, 10.0) == 200


def test_the_bounds_do_not_change_an_honest_run(tmp_path: Path) -> None:
    """With full participation, and sites of very different sizes."""
    e = experiment(rounds=3, participation=1.0, max_share=1.0)
    simulated = run(e, tmp_path / "simulated").rounds
    trained = train(e, tmp_path / "sites", FakeGrid(e.toml(), nodes()))
    assert [r["loss"] for r in trained] == [r["loss"] for r in simulated]
    assert not any("lost" in r for r in read_records(tmp_path / "sites" / "rounds.jsonl"))
