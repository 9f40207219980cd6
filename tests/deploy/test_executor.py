"""The executor: it executes one run, and recognises sites by their keys."""

import shutil
import signal
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)
from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.run_pb2 import Run
from flwr.proto.runtime_pb2 import (
    AcquireTaskResponse,
    PullAppMessagesResponse,
    PullTaskInputResponse,
    PushTaskOutputRequest,
)
from flwr.proto.task_pb2 import Task
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy import executor, keys
from fedadb.deploy.accepted_sites import ACCEPTED
from fedadb.deploy.executor import REFUSED
from fedadb.deploy.job import Job
from fedadb.deploy.messages import make_content, table_in
from fedadb.deploy.server_app import status_file, train_with_sites
from fedadb.deploy.site_grid import SiteGrid
from tests.deploy.conftest import Clock
from tests.deploy.fake_grid import FakeGrid, experiment, nodes, train
from tests.deploy.federation import require_equal_weights

OWN_RUN = 7


class FakeSuperLink:
    """A SuperLink's runtime API; the executor's requests are recorded."""

    def __init__(self, pending: Iterable[int], application: str = "ours") -> None:
        self.pending, self.application = list(pending), application  # runs
        self.pulled: list[str] = []  # tokens
        self.pushed: dict[str, PushTaskOutputRequest] = {}  # by token
        self.token = ""

    @contextmanager
    def connect(self, interceptors: list[Any], **_: Any) -> Iterator[Any]:
        tokens = [i._token for i in interceptors if isinstance(i, RuntimeTokenHttpInterceptor)]
        self.token = tokens[0] if tokens else ""
        yield self

    def AcquireTask(self, _: Any) -> AcquireTaskResponse:
        run = self.pending.pop(0)
        if run == 0:  # nothing to do
            return AcquireTaskResponse()
        return AcquireTaskResponse(task=Task(run_id=run), token=f"token of {run}")

    def PullTaskInput(self, _: Any) -> PullTaskInputResponse:
        self.pulled.append(self.token)
        return PullTaskInputResponse(run=Run(run_id=OWN_RUN, fab_hash=self.application))

    def PushTaskOutput(self, request: PushTaskOutputRequest) -> None:
        self.pushed[self.token] = request


@pytest.fixture
def job(tmp_path: Path) -> Job:
    keys.make_server_keys(tmp_path / "server", ["localhost"], days=1)
    keys.make_site_keys(tmp_path / "site")
    accepted = tmp_path / "server" / ACCEPTED
    accepted.mkdir()
    shutil.copy(tmp_path / "site" / keys.SITE_PUBLIC, accepted / "north.pub")
    return Job(
        run=OWN_RUN,
        application="ours",
        superlink="127.0.0.1:1",
        directory=str(tmp_path / "server"),
        experiment="",
        out=str(tmp_path / "runs" / "run"),
        private=str(tmp_path / "server" / "private"),
    )


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """The executor reaches no network, and fails if it starts to train."""
    monkeypatch.setattr(executor, "time", clock)
    monkeypatch.setattr(HeartbeatSender, "start", lambda self: None)
    monkeypatch.setattr(executor, "train_with_sites", lambda *_: pytest.fail("it trains"))


def test_other_runs_are_refused(job: Job, clock: Clock, no_training: None) -> None:
    superlink = FakeSuperLink([0, 5, 6, 0, OWN_RUN])
    assert executor.acquire(job, superlink.connect) == f"token of {OWN_RUN}"
    assert not superlink.pulled
    assert list(superlink.pushed) == ["token of 5", "token of 6"]
    for output in superlink.pushed.values():
        assert (output.sub_status, output.details) == (SubStatus.FAILED, REFUSED)


def execute(job: Job, superlink: FakeSuperLink, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(address: str, insecure: bool, certificate: bytes, *words: Any, **__: Any) -> Any:
        return superlink.connect(*words)

    monkeypatch.setattr(RuntimeHttpClient, "from_server_address", connect)
    monkeypatch.setattr(HttpGrid, "_runtime_client", superlink)
    previous = signal.getsignal(signal.SIGINT)
    try:
        executor.execute(job)
    finally:
        signal.signal(signal.SIGINT, previous)


def test_another_application_is_refused(
    job: Job, no_training: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    superlink = FakeSuperLink([OWN_RUN], application="another")
    with pytest.raises(Fault, match="run 7 has application another, but the server submitted ours"):
        execute(job, superlink, monkeypatch)
    assert [o.sub_status for o in superlink.pushed.values()] == [SubStatus.FAILED]
    assert status_file(Path(job.out)).read_text().startswith("stopped: run 7 has application")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RunNotRunningException])
def test_a_run_that_flower_ends_stops_with_a_reason(
    error: type[BaseException], job: Job, no_training: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*_: Any) -> Iterator[None]:
        raise error
        yield

    monkeypatch.setattr(executor, "train_with_sites", train)
    with pytest.raises(Fault, match="Flower ended the run: someone on this machine stopped it"):
        execute(job, FakeSuperLink([OWN_RUN]), monkeypatch)
    assert "the same command resumes the run" in status_file(Path(job.out)).read_text()


def test_a_node_is_recognised_by_its_key(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everyone on the server's machine can register a node, under a site's name too.

    Sites are accepted and revoked while a run lasts.
    """
    keys.make_site_keys(tmp_path / "intruder")
    own, foreign = (
        load_ssh_public_key((tmp_path / name / keys.SITE_PUBLIC).read_bytes()).public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
        for name in ("site", "intruder")
    )
    registered = [
        NodeInfo(node_id=1, name="renamed", public_key=own),
        NodeInfo(node_id=2, name="north", public_key=foreign),
        NodeInfo(node_id=3, name="south"),
    ]
    monkeypatch.setattr(HttpGrid, "get_nodes", lambda self: registered)
    nodes = list(SiteGrid(job, b"", "token").get_nodes())
    assert [(node.node_id, node.name) for node in nodes] == [(1, "north")]
    grid = SiteGrid(job, b"", "token")
    assert grid.get_node_ids() == [1]
    accepted = tmp_path / "server" / ACCEPTED
    shutil.copy(tmp_path / "intruder" / keys.SITE_PUBLIC, accepted / "south.pub")
    (accepted / "north.pub").unlink()
    assert [(node.node_id, node.name) for node in grid.get_nodes()] == [(2, "south")]


class SlowSuperLink:
    """A SuperLink that has announced a reply, but receives its parts only little by little."""

    def __init__(self, reply: Message) -> None:
        self.tree = get_object_tree(reply)
        parts = get_all_nested_objects(reply)
        self.parts = {name: part.deflate() for name, part in parts.items()}
        self.looks = dict.fromkeys(self.parts, 0)
        self.confirmed: list[str] = []

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:
        return PullAppMessagesResponse(message_object_trees=[self.tree])

    def PullObject(self, request: Any) -> PullObjectResponse:
        self.looks[request.object_id] += 1
        if self.looks[request.object_id] < 3:
            return PullObjectResponse(object_found=True)
        content = self.parts[request.object_id]
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:
        self.confirmed.append(request.message_object_id)


def test_a_reply_is_pulled_as_soon_as_it_is_complete(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, OWN_RUN, 1
    reply = Message(make_content({"rows": 5}), dst_node_id=1, message_type="train")
    superlink = SlowSuperLink(reply)
    monkeypatch.setattr(HttpGrid, "_runtime_client", superlink)
    grid = SiteGrid(job, b"", "token")
    grid.set_run(run_from_proto(Run(run_id=OWN_RUN)))
    (pulled,) = grid.pull_messages(["question"])
    assert table_in(pulled.content) == {"rows": 5}
    assert set(superlink.looks.values()) == {3}
    assert superlink.confirmed == [superlink.tree.object_id]


def test_only_the_owner_can_read_a_job(job: Job, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.touch(mode=0o644)
    job.write(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Job.read(file) == job


@pytest.mark.usefixtures("clock")
def test_a_run_can_return_to_an_earlier_round(tmp_path: Path) -> None:
    """The sites train the forgotten rounds again, with a bit-identical result."""
    e = experiment("feddyn", rounds=4, participation=1.0)  # its sites remember something
    train(e, tmp_path / "whole", FakeGrid(e.toml(), nodes()))
    grid, out = FakeGrid(e.toml(), nodes()), tmp_path / "run"
    with closing(train_with_sites(grid, e, out)) as rounds:
        assert [next(rounds)["round"] for _ in range(3)] == [1, 2, 3]
    again = train_with_sites(grid, e, out, from_round=1)
    assert [record["round"] for record in again] == [2, 3, 4]
    require_equal_weights(tmp_path / "whole", out)


@pytest.mark.usefixtures("clock", "needs_kernels")
def test_a_server_resumes_on_other_kernels_if_it_is_told_to(tmp_path: Path) -> None:
    e = experiment("fedavg", rounds=2, participation=1.0)
    by_torch = e.model_copy(update={"engine": replace(e.engine, kernels="torch")})
    grid, out = FakeGrid(e.toml(), nodes()), tmp_path / "run"
    with closing(train_with_sites(grid, by_torch, out)) as rounds:
        next(rounds)
    with pytest.raises(BadInput, match=r"by the kernels 'torch', .* --set engine\.kernels=auto on"):
        next(train_with_sites(grid, e, out))
    assert len(list(train_with_sites(grid, e, out, any_kernels=True))) == 1
