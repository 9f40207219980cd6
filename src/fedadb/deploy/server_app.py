"""The server's side: the same run as anywhere, with sites for a cohort."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput, Fault
from fedadb.storage.files import write_atomically
from fedadb.core.task import Task
from fedadb.deploy.flower import crew_of
from fedadb.deploy.sites import Sites
from fedadb.deploy.task import task_of
from fedadb.engine.evaluate import mixed_order
from fedadb.storage.records import Record
from fedadb.storage.tensorfile import raw_bytes
from fedadb.experiment.build import World, pick_device
from fedadb.experiment.config import Experiment, parse_toml
from fedadb.experiment.stored import of_sites
from fedadb.experiment.run import begin

ALONE = "FEDADB_SERVER"  # in the environment of a server that `fedadb deploy server` started
STATUS = "status.txt"  # beside the run's directory: who is waited for, or why it stopped
STOPPED, FINISHED = "stopped: ", "finished"

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    if ALONE in os.environ:
        _end_with_parent()
    out = Path(str(context.run_config["out"]))
    if not out.is_absolute() or not out.name:
        raise BadInput(f"out = {str(out)!r}: must be an absolute path on the server")
    out.parent.mkdir(parents=True, exist_ok=True)

    def tell(status: str) -> None:
        print(status, flush=True)
        write_atomically(status_of(out), status.encode())

    try:
        own = str(context.run_config.get("server", ""))
        text = Path(own).read_text() if own else str(context.run_config["experiment"])
        experiment = Experiment.read(parse_toml(text, own or "the experiment"))
        for record in federate_sites(grid, experiment, out, tell):
            print(f"round {record['round']}: accuracy {record['accuracy']}", flush=True)
        tell(FINISHED)
    except (BadInput, Fault) as error:
        tell(f"{STOPPED}{error}")
        raise
    except Exception as error:
        tell(f"{STOPPED}{type(error).__name__}: {error}; the server's log has more")
        raise


def _end_with_parent() -> None:
    """Flower lets a ServerApp live on when all else was killed, and it would keep the run."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def status_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.{STATUS}")


def federate_sites(
    grid: Grid, experiment: Experiment, out: Path, tell: Callable[[str], None] = lambda status: None
) -> Iterator[Record]:
    """Train with the sites of the grid, or go on; yields each round's record."""
    if experiment.record_clients:
        raise BadInput("record_clients: a server does not know its sites' classes; leave it out")
    task, splits = task_of(experiment)
    world = of_sites(experiment, task)
    sites = Sites(grid, experiment, task, out)

    def make(e: Experiment, progress: object) -> World:
        sites.gather(tell)
        return _known_now(world, task, splits.test if splits else world.test, sites)

    with begin(experiment, out, make=make, crew=crew_of(sites, experiment.deployment)) as run:
        yield from run.rounds


def _known_now(world: World, task: Task, test: Examples, sites: Sites) -> World:
    """The world with what the server has to test on, and who came."""
    digest = hashlib.sha256(json.dumps([task.table(), sites.rows]).encode())
    for tensor in test:
        digest.update(raw_bytes(tensor))
    tested_there = sites.experiment.deployment.evaluate != "server"
    return replace(
        world,
        test=test.rows(mixed_order(len(test.y))).to(pick_device(sites.experiment.engine.device)),
        domains=tuple(sites.names) if tested_there else (),
        counts=[[n] for n in sites.rows],  # of which classes they are, the sites alone know
        digest=digest.hexdigest(),
    )
