"""Records as TensorBoard's event files."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedadb.core.errors import BadInput
from fedadb.storage.records import Record


def require_tensorboard() -> None:
    """Raise BadInput if TensorBoard is not installed, before any round is trained."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise BadInput("--tensorboard needs `pip install tensorboard`") from error


@contextmanager
def event_writer(directory: Path, done: Sequence[Record]) -> Iterator[Callable[[Record], None]]:
    """A function that writes a record to `tensorboard/` in the run's directory.

    The rounds in `done` are written first, because earlier processes may not have written them.
    """
    from torch.utils.tensorboard import SummaryWriter

    events = directory / "tensorboard"
    shutil.rmtree(events, ignore_errors=True)
    writer = SummaryWriter(str(events))

    def write(record: Record) -> None:
        for name, value in scalars(record):
            writer.add_scalar(name, value, record["round"])
        writer.flush()

    try:
        for record in done:
            write(record)
        yield write
    finally:
        writer.close()


def scalars(record: Record) -> Iterator[tuple[str, float]]:
    """The numbers of a record by name; each element of a list has a name of its own."""
    for key, value in record.items():
        if key in ("round", "clients"):
            continue
        if isinstance(value, list):
            yield from ((f"{key}/{i}", v) for i, v in enumerate(value) if v is not None)
        elif isinstance(value, (int, float)):
            yield key, value
