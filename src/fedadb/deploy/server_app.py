"""The server's part of a federation: a run whose cohort are the sites.

It reports through a status file beside the run's directory, because another process trains than
the one that the operator started: the executor, or on Flower's own runtime a process of Flower's.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedadb.core.errors import BadInput, Fault, Temporary
from fedadb.deploy.site_backend import site_backend
from fedadb.experiment.config import Experiment
from fedadb.experiment.run import start_run
from fedadb.experiment.toml_tables import parse_toml
from fedadb.storage.files import write_atomically
from fedadb.storage.records import Record

FINISHED = "finished"  # the last status of a run
# How the last status of a run that stopped begins, by the kind of the reason; the first that fits.
STOPPED: dict[str, type[Exception]] = {
    "refused: ": BadInput,
    "stopped for now: ": Temporary,
    "stopped: ": Fault,
}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train on Flower's own runtime, in the directory that the run configuration names."""
    out = Path(str(context.run_config["out"]))
    if not out.is_absolute() or not out.name:
        raise BadInput(f"out = {str(out)!r}: must be an absolute path on the server")
    with reported(out) as on_status:
        toml = str(context.run_config["experiment"])
        experiment = Experiment.read(parse_toml(toml, "the experiment"))
        for record in train_with_sites(grid, experiment, out, on_status):
            print(f"round {record['round']}: accuracy {record['accuracy']}", flush=True)


@contextmanager
def reported(out: Path) -> Iterator[Callable[[str], None]]:
    """Write to the status file how the block ends, and what it passes to the yielded function."""
    out.parent.mkdir(parents=True, exist_ok=True)

    def write_status(status: str) -> None:
        print(status, flush=True)
        # It names the sites that are asked, which a private run keeps secret.
        write_atomically(status_file(out), status.encode(), 0o600)

    try:
        yield write_status
        write_status(FINISHED)
    except (BadInput, Fault) as error:
        begins = next(text for text, kind in STOPPED.items() if isinstance(error, kind))
        write_status(f"{begins}{error}")
        raise
    except Exception as error:
        write_status(f"stopped: {type(error).__name__}: {error}; the server's log has more")
        raise


@contextmanager
def interruption_noted(out: Path) -> Iterator[None]:
    """Write to the status file that the operator interrupted the block."""
    try:
        yield
    except KeyboardInterrupt:
        out.parent.mkdir(parents=True, exist_ok=True)
        status_file(out).write_text("stopped: by the operator")
        raise


def status_file(out: Path) -> Path:
    """The file that says what the run waits for, or why it stopped."""
    return out.with_name(f"{out.name}.status.txt")


def read_status(out: Path) -> str:
    """The last status of a run; an empty text if it has none yet."""
    path = status_file(out)
    return path.read_text() if path.exists() else ""


def require_not_stopped(status: str) -> None:
    """Raise the reason if a run's status says that it stopped."""
    for begins, kind in STOPPED.items():
        if status.startswith(begins):
            raise kind(status.removeprefix(begins))


def train_with_sites(
    grid: Grid,
    experiment: Experiment,
    out: Path,
    on_status: Callable[[str], None] = lambda status: None,
    from_round: int | None = None,
    any_kernels: bool = False,
    private: Path | None = None,
) -> Generator[Record]:
    """Train with the sites of the grid, or resume; yields the record of each new round.

    `private` is the server's directory for the secrets of private runs.
    """
    backend = partial(
        site_backend,
        grid=grid,
        out=out,
        on_status=on_status,
        private=private,
        returns=from_round is not None,
    )
    with start_run(
        experiment, out, make_backend=backend, from_round=from_round, any_kernels=any_kernels
    ) as active:
        yield from active.rounds
