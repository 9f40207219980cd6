"""The server's part of a federation, which Flower starts: a run whose cohort are the sites.

It reports through a status file beside the run's directory, because it runs in a process of
Flower's.
"""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy.site_backend import site_backend
from fedadb.engine.process import end_with_parent
from fedadb.experiment.config import Experiment, parse_toml
from fedadb.experiment.run import start_run
from fedadb.storage.files import write_atomically
from fedadb.storage.records import Record

OWN_SERVER = "FEDADB_SERVER"  # environment variable: `fedadb deploy server` started this process
STOPPED, FINISHED = "stopped: ", "finished"  # how the last status of a run begins

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train with the sites in the directory that the run configuration names."""
    if OWN_SERVER in os.environ:
        # Flower would let this process live on if its SuperExec were killed, and it would keep the
        # run's directory locked. SuperExec starts it from its main thread, which ends with the
        # process, and this is the main thread here: so the signal comes then, and only then.
        end_with_parent(signal.SIGKILL)
    out = Path(str(context.run_config["out"]))
    if not out.is_absolute() or not out.name:
        raise BadInput(f"out = {str(out)!r}: must be an absolute path on the server")
    out.parent.mkdir(parents=True, exist_ok=True)

    def write_status(status: str) -> None:
        print(status, flush=True)
        write_atomically(status_file(out), status.encode())

    try:
        file = str(context.run_config.get("server", ""))
        toml = Path(file).read_text() if file else str(context.run_config["experiment"])
        experiment = Experiment.read(parse_toml(toml, file or "the experiment"))
        for record in train_with_sites(grid, experiment, out, write_status):
            print(f"round {record['round']}: accuracy {record['accuracy']}", flush=True)
        write_status(FINISHED)
    except (BadInput, Fault) as error:
        write_status(f"{STOPPED}{error}")
        raise
    except Exception as error:
        write_status(f"{STOPPED}{type(error).__name__}: {error}; the server's log has more")
        raise


def status_file(out: Path) -> Path:
    """The file that says which sites the run waits for, or why it stopped."""
    return out.with_name(f"{out.name}.status.txt")


def train_with_sites(
    grid: Grid,
    experiment: Experiment,
    out: Path,
    on_status: Callable[[str], None] = lambda status: None,
) -> Iterator[Record]:
    """Train with the sites of the grid, or resume; yields the record of each new round."""
    backend = partial(site_backend, grid=grid, out=out, on_status=on_status)
    with start_run(experiment, out, make_backend=backend) as active:
        yield from active.rounds
