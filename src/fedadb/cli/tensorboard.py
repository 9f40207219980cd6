"""Records as TensorBoard's event files, for those who watch with it."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedadb.core.errors import BadInput
from fedadb.storage.records import Record


def require() -> None:
    """Tell now, and not after the first round, if it is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise BadInput("--tensorboard: needs `pip install tensorboard`") from error


@contextmanager
def events(
    directory: Path, done: Sequence[Record], wanted: bool
) -> Iterator[Callable[[Record], None]]:
    """What writes a record to `tensorboard/` in the run's directory; nothing unless wanted.

    The rounds done are written anew: there may have been no one to write some of them before.
    """
    if not wanted:
        yield lambda record: None
        return
    from torch.utils.tensorboard import SummaryWriter

    place = directory / "tensorboard"
    shutil.rmtree(place, ignore_errors=True)
    writer = SummaryWriter(str(place))

    def write(record: Record) -> None:
        for name, value in curves(record):
            writer.add_scalar(name, value, record["round"])
        writer.flush()

    try:
        for record in done:
            write(record)
        yield write
    finally:
        writer.close()


def curves(record: Record) -> Iterator[tuple[str, float]]:
    """The numbers of a record; those in lists, such as a class's accuracy, one by one."""
    for key, value in record.items():
        if key in ("round", "clients"):
            continue
        if isinstance(value, list):
            yield from ((f"{key}/{i}", v) for i, v in enumerate(value) if v is not None)
        elif value is not None:
            yield key, value
