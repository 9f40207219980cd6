"""A federation's server: a SuperLink that only this machine reaches, and a proxy for the sites.

Its directory holds the keys (`fedadb deploy keys`), `sites/NAME.pub` for each site that may take
part, and what the server writes: `superlink.db`, `application/`, `flower/` and `logs/`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy import keys
from fedadb.deploy.agreement import shared_experiment, write_application
from fedadb.deploy.ports import free_port, require_free_port
from fedadb.deploy.processes import FLOWER_ENVIRONMENT, ProcessGroup, flower_command, process_group
from fedadb.deploy.server_app import FINISHED, OWN_SERVER, STOPPED, status_file
from fedadb.experiment.config import Experiment
from fedadb.storage.files import write_atomically
from fedadb.storage.records import Record, read_records
from fedadb.storage.run_directory import ROUNDS

SUPERLINK = "fedadb"  # the SuperLink's name in the configuration of Flower's command line
REGISTERED = "registered.json"  # the sites that the SuperLink's database knows
START_SECONDS = 180.0  # for a process to open its port, and for a Flower command to end
POLL_SECONDS = 0.5  # between two looks at the run's records
CHECK_SECONDS = 30.0  # between two questions to the SuperLink whether the run still exists


@dataclass(frozen=True)
class RunningServer:
    """A server whose processes run."""

    directory: Path
    processes: ProcessGroup
    environment: dict[str, str]

    @property
    def sites(self) -> list[str]:
        """The names of the sites that may take part."""
        return list(public_keys(self.directory))

    def flwr(self, *words: str) -> dict[str, Any]:
        """Run a command of Flower's, and return its answer."""
        done = subprocess.run(
            [flower_command("flwr"), *words, SUPERLINK, "--format", "json"],
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            env={**os.environ, **FLOWER_ENVIRONMENT, **self.environment},
        )
        try:
            answer = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError as error:
            raise Fault(f"flwr {words[0]}: {done.stdout}{done.stderr}") from error
        if not answer.get("success", False):
            raise Fault(f"flwr {words[0]}: {answer.get('error-message', done.stdout)}")
        return dict(answer)

    def register_sites(self) -> None:
        """Register the public keys in sites/ that the SuperLink does not know yet."""
        known = registered_keys(self.directory)
        for name, key in public_keys(self.directory).items():
            if name not in known:
                path = self.directory / keys.SITES / f"{name}.pub"
                try:
                    self.flwr("supernode", "register", str(path), "--name", name)
                except Fault as error:
                    # A server that was killed may have registered the key without noting it.
                    if "already in use" not in str(error):
                        raise
                known[name] = key
                write_atomically(self.directory / REGISTERED, json.dumps(known).encode())

    def submit(self, experiment: Experiment, out: Path) -> int:
        """Submit a run that trains in the directory `out`; returns Flower's number of it."""
        application = self.directory / "application"
        write_application(application, shared_experiment(experiment))
        status_file(out).unlink(missing_ok=True)
        own = self.directory / "experiment.toml"
        write_atomically(own, experiment.toml().encode())
        # A JSON string is also a TOML string.
        config = f"out={json.dumps(str(out.resolve()))} server={json.dumps(str(own))}"
        answer = self.flwr("run", str(application), "--run-config", config)
        return int(answer["run-id"])

    def follow(
        self, run: int, out: Path, total: int, done: int, on_status: Callable[[str], None]
    ) -> Iterator[Record]:
        """Yield the records of a submitted run as they are written; a Fault if the run fails.

        Args:
            run: Flower's number of the run.
            out: The run's directory.
            total: The experiment's number of rounds.
            done: The number of records that exist already.
            on_status: Called with each new status, such as which sites are missing.
        """
        checked, shown = time.monotonic(), ""
        while True:
            status = _read_status(out) or shown
            if status.startswith(STOPPED):
                raise Fault(status.removeprefix(STOPPED))
            if status not in (shown, FINISHED):
                on_status(status)
            shown = status
            for record in read_records(out / ROUNDS)[done:]:
                done += 1
                yield record
            self.processes.keep_running()
            if status == FINISHED and done == total:
                return
            if time.monotonic() - checked > CHECK_SECONDS:
                self._require_alive(run, out)
                checked = time.monotonic()
            time.sleep(POLL_SECONDS)

    def _require_alive(self, run: int, out: Path) -> None:
        """Raise a Fault if the ServerApp ended without a last status: it was killed."""
        answer = self.flwr("list", "--run-id", str(run))
        state = str(answer["runs"][0]["status"])
        if state.startswith("finished") and not _read_status(out).startswith((FINISHED, STOPPED)):
            raise Fault(
                f"the ServerApp ended ({state}): {self.processes.last_line('superexec')}; the logs "
                f"are in {self.processes.logs}; the same command resumes the run"
            )


def _read_status(out: Path) -> str:
    path = status_file(out)
    return path.read_text() if path.exists() else ""


def public_keys(directory: Path) -> dict[str, str]:
    """The public keys of the sites that may take part, by name."""
    return {p.stem: p.read_text() for p in sorted((directory / keys.SITES).glob("*.pub"))}


def registered_keys(directory: Path) -> dict[str, str]:
    """The public keys that the SuperLink's database has, by name."""
    path = directory / REGISTERED
    return dict(json.loads(path.read_text())) if path.exists() else {}


def forget_removed_sites(directory: Path) -> None:
    """Delete the SuperLink's database if a site's key was removed or replaced.

    The SuperLink would accept the old key for ever. The database holds nothing else that is needed
    again: runs have their own directories.
    """
    allowed = public_keys(directory)
    if any(allowed.get(name) != key for name, key in registered_keys(directory).items()):
        for path in directory.glob("superlink.db*"):
            path.unlink()
        (directory / REGISTERED).unlink()


def require_keys(directory: Path) -> None:
    """Raise BadInput unless the directory holds the server's keys and those of its sites."""
    for name, what in ((keys.CA, "the authority's certificate"), (keys.SERVER, "the server's")):
        keys.require_valid(directory / name, what)
    for name in (keys.SERVER_KEY, keys.SECRET):
        if not (directory / name).is_file():
            raise BadInput(f"{directory / name} is missing: `fedadb deploy keys` makes it")
    public = public_keys(directory)
    for name, key in public.items():
        keys.require_public(directory / keys.SITES / f"{name}.pub")
        if list(public.values()).count(key) > 1:
            raise BadInput(f"{name} has the key of another site: each site makes its own")
    if not public:
        raise BadInput(
            f"{directory / keys.SITES} has no site's public key: put each site's site.pub there as "
            "NAME.pub"
        )


@contextmanager
def start_server(directory: Path, host: str, port: int) -> Iterator[RunningServer]:
    """Start the server's processes; they end with the block."""
    directory = directory.absolute()
    require_keys(directory)
    require_free_port(host, port, "--listen")
    forget_removed_sites(directory)
    inner_port = free_port()
    address = f"127.0.0.1:{inner_port}"
    environment = {"FLWR_HOME": str(_configure_flower(directory, address)), OWN_SERVER: "1"}
    with process_group(directory / "logs", environment) as processes:
        server = RunningServer(directory, processes, environment)
        processes.start("superlink", _superlink_command(directory, inner_port))
        processes.wait_until_open("superlink", "127.0.0.1", inner_port, START_SECONDS)
        processes.start("superexec", _superexec_command(directory, address))
        # Before the proxy starts: a site whose key is not registered yet would give up.
        server.register_sites()
        processes.start("proxy", _proxy_command(directory, address, host, port))
        processes.wait_until_open("proxy", host, port, START_SECONDS)
        yield server


def _configure_flower(directory: Path, address: str) -> Path:
    """Write the configuration of Flower's command line; returns its directory."""
    flower = directory / "flower"
    flower.mkdir(exist_ok=True, mode=0o700)
    superlink = {"address": address, "root-certificates": str(directory / keys.CA)}
    table = {"superlink": {"default": SUPERLINK, SUPERLINK: superlink}}
    write_atomically(flower / "config.toml", tomli_w.dumps(table).encode())
    return flower


def _superlink_command(directory: Path, port: int) -> list[str]:
    database = directory / "superlink.db"
    database.touch(mode=0o600)
    database.chmod(0o600)
    return [
        *(flower_command("flower-superlink"), "--host", "127.0.0.1", "--port", str(port)),
        *("--ssl-ca-certfile", str(directory / keys.CA)),
        *("--ssl-certfile", str(directory / keys.SERVER)),
        *("--ssl-keyfile", str(directory / keys.SERVER_KEY)),
        *("--database", str(database), "--enable-supernode-auth", "--isolation", "process"),
        *("--superexec-auth-secret-file", str(directory / keys.SECRET)),
        "--disable-runtime-dependency-installation",
    ]


def _superexec_command(directory: Path, address: str) -> list[str]:
    return [
        *(flower_command("flower-superexec"), "--runtime-api-address", address),
        *("--root-certificates", str(directory / keys.CA)),
        *("--superexec-auth-secret-file", str(directory / keys.SECRET)),
    ]


def _proxy_command(directory: Path, address: str, host: str, port: int) -> list[str]:
    files = [str(directory / name) for name in (keys.CA, keys.SERVER, keys.SERVER_KEY)]
    return [sys.executable, "-m", "fedadb.deploy.proxy", host, str(port), address, *files]
