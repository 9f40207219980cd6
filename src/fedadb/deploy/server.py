"""A federation's server: a SuperLink that only this machine reaches, and a front for the sites.

In its directory: the keys (`fedadb deploy keys`), `sites/NAME.pub` for every site that may take
part, and what the server itself writes: `superlink.db`, `application/`, `flower/`, `logs/`.
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
from fedadb.storage.files import write_atomically
from fedadb.storage.run_directory import ROUNDS
from fedadb.deploy import keys
from fedadb.deploy.application import write_application
from fedadb.deploy.processes import (
    QUIET,
    Processes,
    free_port,
    processes,
    program,
    require_free,
    wait_until_open,
)
from fedadb.deploy.server_app import ALONE, FINISHED, STOPPED, status_of
from fedadb.deploy.task import agreed
from fedadb.storage.records import read_records
from fedadb.storage.records import Record
from fedadb.experiment.config import Experiment

FEDERATION = "fedadb"  # what Flower's command line calls the SuperLink
REGISTERED = "registered.json"  # which sites Flower's database knows
START = 60.0  # seconds for a process to open its port
LOOK, ASK = 0.5, 30.0  # seconds between looks at the records, and questions to the SuperLink


@dataclass(frozen=True)
class Server:
    """A server that is up."""

    directory: Path
    held: Processes
    environment: dict[str, str]

    @property
    def sites(self) -> list[str]:
        """Who may take part."""
        return list(present(self.directory))

    def flwr(self, *words: str) -> dict[str, Any]:
        """What a command of Flower answers."""
        done = subprocess.run(
            [program("flwr"), *words, FEDERATION, "--format", "json"],
            capture_output=True,
            text=True,
            timeout=START,
            env={**os.environ, **QUIET, **self.environment},
        )
        try:
            answer = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError as error:
            raise Fault(f"flwr {words[0]}: {done.stdout}{done.stderr}") from error
        if not answer.get("success", False):
            raise Fault(f"flwr {words[0]}: {answer.get('error-message', done.stdout)}")
        return dict(answer)

    def register(self) -> None:
        """Let the sites whose public keys lie in sites/ take part, under the names of the files."""
        known = registered(self.directory)
        for name, key in present(self.directory).items():
            if name not in known:
                path = self.directory / keys.SITES / f"{name}.pub"
                try:
                    self.flwr("supernode", "register", str(path), "--name", name)
                except Fault as error:
                    if "already in use" not in str(error):  # by a server that was killed in between
                        raise
                known[name] = key
                write_atomically(self.directory / REGISTERED, json.dumps(known).encode())

    def submit(self, experiment: Experiment, out: Path) -> int:
        """Start the run; its number."""
        application = self.directory / "application"
        write_application(application, agreed(experiment))
        status_of(out).unlink(missing_ok=True)
        own = self.directory / "experiment.toml"
        write_atomically(own, experiment.toml().encode())
        # A string of JSON is one of TOML.
        config = f"out={json.dumps(str(out.resolve()))} server={json.dumps(str(own))}"
        answer = self.flwr("run", str(application), "--run-config", config)
        return int(answer["run-id"])

    def rounds(
        self, run: int, out: Path, total: int, done: int, tell: Callable[[str], None]
    ) -> Iterator[Record]:
        """The records after those done, as they are written; a Fault if the run failed."""
        asked, told = time.monotonic(), ""
        while True:
            status = status_of(out).read_text() if status_of(out).exists() else told
            if status.startswith(STOPPED):
                raise Fault(status.removeprefix(STOPPED))
            if status != told and status != FINISHED:
                tell(status)
            told = status
            for line in read_records(out / ROUNDS)[done:]:
                done += 1
                yield line
            self.held.keep_alive()
            if told == FINISHED and done == total:
                return
            if time.monotonic() - asked > ASK:  # whether it was killed, it cannot say itself
                asked, state = time.monotonic(), self.state(run)
                fresh = status_of(out).read_text() if status_of(out).exists() else ""
                if state.startswith("finished") and not fresh.startswith((FINISHED, STOPPED)):
                    raise Fault(
                        f"the server's part ended ({state}): {self.held.last_words('superexec')}; "
                        f"logs are in {self.held.logs}; the same command goes on"
                    )
            time.sleep(LOOK)

    def state(self, run: int) -> str:
        answer = self.flwr("list", "--run-id", str(run))
        return str(answer["runs"][0]["status"])


def present(directory: Path) -> dict[str, str]:
    """The public keys of the sites that may take part, by name."""
    return {p.stem: p.read_text() for p in sorted((directory / keys.SITES).glob("*.pub"))}


def registered(directory: Path) -> dict[str, str]:
    """Those that Flower's database has."""
    path = directory / REGISTERED
    return dict(json.loads(path.read_text())) if path.exists() else {}


def forget_removed(directory: Path) -> None:
    """Start with a new database if a site was removed: Flower would go on letting it in.

    The database has nothing else that is needed again; runs are kept elsewhere.
    """
    here = present(directory)
    if any(here.get(name) != key for name, key in registered(directory).items()):
        for path in directory.glob("superlink.db*"):
            path.unlink()
        (directory / REGISTERED).unlink()


@contextmanager
def server(directory: Path, host: str, port: int) -> Iterator[Server]:
    """Bring a server up, for as long as the context lasts."""
    directory = directory.absolute()
    for name, what in ((keys.CA, "the authority's certificate"), (keys.SERVER, "the server's")):
        keys.require_valid(directory / name, what)
    for name in (keys.SERVER_KEY, keys.SECRET):
        if not (directory / name).is_file():
            raise BadInput(f"{directory / name} is missing: `fedadb deploy keys` makes it")
    public = present(directory)
    for name, key in public.items():
        keys.require_public(directory / keys.SITES / f"{name}.pub")
        if list(public.values()).count(key) > 1:
            raise BadInput(f"{name} has the key of another site: each makes its own")
    if not public:
        raise BadInput(
            f"{directory / keys.SITES} has no site's public key: put the site.pub of each there "
            "as NAME.pub"
        )
    require_free(host, port, "--listen")
    forget_removed(directory)
    inner = free_port()
    flower = directory / "flower"
    flower.mkdir(exist_ok=True, mode=0o700)
    superlink = {
        "address": f"127.0.0.1:{inner}",
        "root-certificates": str(directory / keys.CA),
    }
    table = {"superlink": {"default": FEDERATION, FEDERATION: superlink}}
    write_atomically(flower / "config.toml", tomli_w.dumps(table).encode())
    environment = {"FLWR_HOME": str(flower), ALONE: "1"}
    database = directory / "superlink.db"
    database.touch(mode=0o600)
    database.chmod(0o600)
    tls = {name: str(directory / name) for name in (keys.CA, keys.SERVER, keys.SERVER_KEY)}
    secret = str(directory / keys.SECRET)
    with processes(directory / "logs", environment) as held:
        held.start(
            "superlink",
            [
                *(program("flower-superlink"), "--host", "127.0.0.1", "--port", str(inner)),
                *("--ssl-ca-certfile", tls[keys.CA], "--ssl-certfile", tls[keys.SERVER]),
                *("--ssl-keyfile", tls[keys.SERVER_KEY], "--database", str(database)),
                *("--enable-supernode-auth", "--isolation", "process"),
                *("--superexec-auth-secret-file", secret),
                "--disable-runtime-dependency-installation",
            ],
        )
        wait_until_open(held, inner, START, "the SuperLink")
        held.start(
            "superexec",
            [
                *(program("flower-superexec"), "--runtime-api-address", f"127.0.0.1:{inner}"),
                *("--root-certificates", tls[keys.CA], "--superexec-auth-secret-file", secret),
            ],
        )
        running = Server(directory, held, environment)
        running.register()  # before there is a front: a site that is not known yet would give up
        held.start(
            "front",
            [
                *(sys.executable, "-m", "fedadb.deploy.front", host, str(port)),
                *(f"127.0.0.1:{inner}", tls[keys.CA], tls[keys.SERVER], tls[keys.SERVER_KEY]),
            ],
        )
        wait_until_open(held, port, START, "the front", host)
        yield running
