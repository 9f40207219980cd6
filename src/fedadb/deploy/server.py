"""A federation's server: a SuperLink that only this machine reaches, and a proxy for the sites.

Its directory holds the keys (`fedadb deploy keys`), `sites/NAME.pub` for each site that may take
part, and what the server writes: `audit.jsonl`, `accepted/`, `superlink.db`, `application/`,
`executor.json`, `flower/`, `logs/` and `private/`.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedadb.core.algorithm import Round
from fedadb.core.errors import Fault, Temporary
from fedadb.core.packing import size
from fedadb.core.stream import Stream
from fedadb.deploy.accepted_sites import (
    accept_nobody,
    require_keys,
    site_names,
    update_accepted,
)
from fedadb.deploy.agreement import federation_data, shared_experiment, write_application
from fedadb.deploy.audit import audited_server
from fedadb.deploy.audit_log import AUDIT
from fedadb.deploy.job import Job
from fedadb.deploy.node import application_hash
from fedadb.deploy.notices import Notices
from fedadb.deploy.ports import free_port, require_free_port
from fedadb.deploy.processes import FLOWER_ENVIRONMENT, ProcessGroup, flower_command, process_group
from fedadb.deploy.server_app import (
    FINISHED,
    STOPPED,
    read_status,
    require_not_stopped,
    status_file,
)
from fedadb.deploy.server_commands import (
    SUPERLINK,
    configure_flower,
    module_command,
    proxy_command,
    superlink_command,
)
from fedadb.experiment.build import build_model, make_learner
from fedadb.experiment.config import Experiment
from fedadb.progress import Progress, no_progress
from fedadb.storage.files import write_atomically
from fedadb.storage.hash_chain import append_entry
from fedadb.storage.records import Record, read_records
from fedadb.storage.run_directory import ROUNDS

PRIVATE = "private"  # the directory for the secrets of differentially private runs
EXECUTOR = "executor"  # the process that trains with the sites
START_SECONDS = 180.0  # for a process to open its port, and for a Flower command to end
POLL_SECONDS = 0.5  # between two looks at the run's records
STALL_SECONDS = 30.0  # after which the status of a round that does not change is shown
CHECK_SECONDS = 30.0  # between two questions to the SuperLink whether the run still exists


@dataclass(frozen=True)
class RunningServer:
    """A server whose processes run."""

    directory: Path
    processes: ProcessGroup
    environment: dict[str, str]
    superlink: str = ""  # the SuperLink's address

    @property
    def sites(self) -> list[str]:
        """The names of the sites that may take part."""
        return site_names(self.directory)

    def flwr(self, *words: str) -> dict[str, Any]:
        """Run a command of Flower's, and return its answer."""
        try:
            done = subprocess.run(
                [flower_command("flwr"), *words, SUPERLINK, "--format", "json"],
                capture_output=True,
                text=True,
                timeout=START_SECONDS,
                env={**os.environ, **FLOWER_ENVIRONMENT, **self.environment},
            )
        except subprocess.TimeoutExpired as error:
            raise Fault(f"flwr {words[0]}: it did not end within {START_SECONDS:g} s") from error
        try:
            answer = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError as error:
            raise Fault(f"flwr {words[0]}: {done.stdout}{done.stderr}") from error
        if not answer.get("success", False):
            raise Fault(f"flwr {words[0]}: {answer.get('error-message', done.stdout)}")
        return dict(answer)

    def update_sites(self) -> list[str]:
        """Accept the sites that are new in sites/, and no longer those that are gone from there.

        Returns a sentence for each change.
        """
        return update_accepted(self.directory, self._register, self.audit)

    def audit(self, event: str, **fields: Any) -> None:
        """Write an event to the server's audit log."""
        append_entry(self.directory / AUDIT, event, **fields)

    def _register(self, name: str, key: str) -> None:
        file = self.directory / "registered.pub"  # a copy: the operator may change the other one
        write_atomically(file, key.encode())
        try:
            self.flwr("supernode", "register", str(file), "--name", name)
        except Fault as error:
            # A server that was killed may have registered the key without noting it.
            if "already in use" not in str(error):
                raise
        finally:
            file.unlink()

    def submit(
        self,
        experiment: Experiment,
        out: Path,
        from_round: int | None = None,
        any_kernels: bool = False,
    ) -> int:
        """Submit a run that trains in the directory `out`, and start an executor for it.

        Returns Flower's number of the run. The last two arguments are those of `start_run`.
        """
        self.processes.stop_process(EXECUTOR)
        status_file(out).unlink(missing_ok=True)
        application = self.directory / "application"
        write_application(application, shared_experiment(experiment))
        run = int(self.flwr("run", str(application))["run-id"])
        job = Job(
            run=run,
            application=application_hash(application),
            superlink=self.superlink,
            directory=str(self.directory),
            experiment=experiment.toml(),
            out=str(out.resolve()),
            private=str(self.directory / PRIVATE),
            from_round=from_round,
            any_kernels=any_kernels,
        )
        file = self.directory / f"{EXECUTOR}.json"
        job.write(file)
        command = module_command("fedadb.deploy.executor", str(file))
        self.processes.start(EXECUTOR, command, restart=False)
        return run

    def follow(
        self,
        run: int,
        out: Path,
        total: int,
        done: int,
        on_status: Callable[[str], None],
        forgotten: Sequence[Record] = (),
    ) -> Iterator[Record]:
        """Yield the records of a submitted run as they are written; a Fault if the run fails.

        Args:
            run: Flower's number of the run.
            out: The run's directory.
            total: The experiment's number of rounds.
            done: The number of records that exist already.
            on_status: Called with each new status, such as which sites are missing; with that of
                a round only if nothing changes for a while.
            forgotten: Records after these, which the run deletes because it returns to a round.
        """
        checked, shown = time.monotonic(), _Shown(on_status)
        notices, seen = Notices(self.directory, self.update_sites, on_status), (0, 0)
        while True:
            ended = self.processes.has_ended(EXECUTOR)  # before its last status is read
            status = read_status(out)
            require_not_stopped(status)
            shown.update(status, time.monotonic())
            if (changed := _last_change(out / ROUNDS)) != seen:  # a long run has many records
                seen, records = changed, read_records(out / ROUNDS)[done:]
                if records != list(forgotten):
                    forgotten = ()
                    for record in records:
                        done += 1
                        yield record
            self.processes.keep_running()
            if status == FINISHED and done == total:
                return
            if ended:
                raise Temporary(self._describe_end("the executor was killed"))
            notices.look()
            if time.monotonic() - checked > CHECK_SECONDS:
                self._require_alive(run, out)
                checked = time.monotonic()
            time.sleep(POLL_SECONDS)

    def _require_alive(self, run: int, out: Path) -> None:
        """Raise a Fault if Flower ended the run and the executor does not know it."""
        state = str(self.flwr("list", "--run-id", str(run))["runs"][0]["status"])
        if state.startswith("finished") and not read_status(out).startswith((FINISHED, *STOPPED)):
            raise Temporary(self._describe_end(f"Flower ended the run ({state})"))

    def _describe_end(self, what: str) -> str:
        return (
            f"{what}: {self.processes.last_line(EXECUTOR)}; the logs are in "
            f"{self.processes.logs}; the same command resumes the run"
        )


def _last_change(path: Path) -> tuple[int, int]:
    """A file's size and time, which change with it; zeros if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


@dataclass
class _Shown:
    """Passes each status on once; that of a round only after a while, because most end soon."""

    on_status: Callable[[str], None]
    status: str = ""
    since: float = 0.0
    done: bool = True

    def update(self, status: str, now: float) -> None:
        if status and status != self.status:
            self.status, self.since, self.done = status, now, status == FINISHED
        waits = self.status.startswith("round ") and now < self.since + STALL_SECONDS
        if not self.done and not waits:
            self.done = True
            self.on_status(self.status)


def upload_limit(experiment: Experiment, progress: Progress = no_progress) -> int:
    """The bytes that a site may upload in reply to a message: twice a reply's size, and 1 MB."""
    spec, _ = federation_data(experiment, progress)
    f, algorithm = build_model(experiment, spec, progress), experiment.algorithm
    sent = algorithm.broadcast(algorithm.init(f.weights()), f, Stream(experiment.seed))
    first = Round(1, experiment.rounds, experiment.federation.clients, examples=0)
    reply = make_learner(experiment, f).example_reply(sent, first)
    return 2 * size(reply) + (1 << 20)


@contextmanager
def start_server(
    directory: Path, host: str, port: int, max_upload: int | None = None
) -> Iterator[RunningServer]:
    """Start the server's processes; they end with the block.

    Args:
        directory: Holds the server's keys.
        host: The address at which the server accepts sites.
        port: The port at which it does.
        max_upload: The bytes that a site may upload in reply to a message; by default 1 GB.
    """
    directory = directory.absolute()
    require_keys(directory)
    require_free_port(host, port, "--listen")
    inner_port = free_port()
    address = f"127.0.0.1:{inner_port}"
    environment = {"FLWR_HOME": str(configure_flower(directory, address))}
    accept_nobody(directory)
    audit = partial(append_entry, directory / AUDIT)
    # The log's end comes after the processes', which write to it too.
    with (
        audited_server(audit, f"{host}:{port}"),
        process_group(directory / "logs", environment) as processes,
    ):
        server = RunningServer(directory, processes, environment, address)
        processes.start("superlink", superlink_command(directory, inner_port))
        processes.wait_until_open("superlink", "127.0.0.1", inner_port, START_SECONDS)
        # Before the proxy starts: a site whose key is not registered yet would give up.
        server.update_sites()
        limit = [] if max_upload is None else ["--max-upload", str(max_upload)]
        processes.start("proxy", [*proxy_command(directory, address, host, port), *limit])
        processes.wait_until_open("proxy", host, port, START_SECONDS)
        yield server
