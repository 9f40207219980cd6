"""The process that trains with the sites: it runs only installed code, and only one run.

Everyone with an account on the server's machine can submit an application to the SuperLink, and
Flower's SuperExec would install and execute it as the server's user. This executor follows
SuperExec's protocol, but refuses every run except the one that the server submitted itself. It
reads the experiment and the run's directory from the server, and never executes what was submitted.
The protocol is not part of Flower's public interface, so flwr is pinned to one version.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PushTaskOutputRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient

from fedadb.core.errors import BadInput, Fault, Temporary
from fedadb.deploy import keys
from fedadb.deploy.audit import audit_round, audited_run
from fedadb.deploy.audit_log import AUDIT
from fedadb.deploy.job import Job
from fedadb.deploy.server_app import reported, train_with_sites
from fedadb.deploy.site_grid import SiteGrid
from fedadb.engine.process import end_with_parent
from fedadb.experiment.config import Experiment
from fedadb.experiment.toml_tables import parse_toml
from fedadb.storage.hash_chain import append_entry

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"  # the method that requires the secret
POLL_SECONDS = 0.2  # between two requests for the run
REFUSED = "this server executes only the run that it submitted itself"
ENDED = (
    "Flower ended the run: someone on this machine stopped it, or the SuperLink did not receive a "
    "heartbeat for too long; the same command resumes the run"
)

Connect = Callable[..., AbstractContextManager[RuntimeHttpClient]]


def execute(job: Job) -> None:
    """Wait for the job's run, refuse all others, and train with the sites."""
    certificate = (Path(job.directory) / keys.CA).read_bytes()
    connect = partial(RuntimeHttpClient.from_server_address, job.superlink, False, certificate)
    out = Path(job.out)
    audit = partial(append_entry, Path(job.directory) / AUDIT)
    with reported(out) as on_status, audited_run(audit, job.application, out), _explain_end():
        grid = SiteGrid(job, certificate, acquire(job, connect))
        result, reason = SubStatus.FAILED, "the server's status file has the reason"
        try:
            grid.begin(job)
            experiment = Experiment.read(parse_toml(job.experiment, "the experiment"))
            for record in train_with_sites(
                grid,
                experiment,
                out,
                on_status,
                job.from_round,
                job.any_kernels,
                Path(job.private),
            ):
                print(f"round {record['round']}: accuracy {record['accuracy']}", flush=True)
                audit_round(audit, out, record)
            result, reason = SubStatus.COMPLETED, ""
        finally:
            grid.end(result, reason)


def acquire(job: Job, connect: Connect) -> str:
    """The token of the job's run, as soon as the SuperLink has it; other runs are refused."""
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    secret = (Path(job.directory) / keys.SECRET).read_bytes()
    signed = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[ACQUIRE])
    request = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
    retry = make_simple_http_retry_invoker()
    with connect([version, signed], retry_invoker=retry) as client:
        while True:
            answer = client.AcquireTask(request)
            if not answer.token:
                time.sleep(POLL_SECONDS)
            elif answer.task.run_id == job.run:
                return str(answer.token)
            else:
                print(f"run {answer.task.run_id} is refused: {REFUSED}", flush=True)
                _refuse(connect, answer.token)


def _refuse(connect: Connect, token: str) -> None:
    version = RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
    output = PushTaskOutputRequest(sub_status=SubStatus.FAILED, details=REFUSED)
    with (
        suppress(httpx.HTTPError),
        connect([version, RuntimeTokenHttpInterceptor(token)]) as client,
    ):
        client.PushTaskOutput(output)


@contextmanager
def _explain_end() -> Iterator[None]:
    """Turn the ways in which Flower ends a run into one sentence."""
    try:
        yield
    except (KeyboardInterrupt, RunNotRunningException) as error:
        raise Temporary(ENDED) from error


def main(file: str) -> None:
    # A server that is killed cannot stop this process, which keeps the run's directory locked.
    end_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        execute(Job.read(Path(file)))
    except (BadInput, Fault) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
