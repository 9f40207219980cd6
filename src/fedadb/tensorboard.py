"""Records as TensorBoard's event files, for those who watch with it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedadb.core.errors import BadInput
from fedadb.engine.record import Record

NOT_CURVES = ("round", "clients", "class_accuracy")


@contextmanager
def events(
    directory: Path, done: Sequence[Record], wanted: bool
) -> Iterator[Callable[[Record], None]]:
    """What writes a record to `tensorboard/` in the run's directory; nothing unless wanted."""
    if not wanted:
        yield lambda record: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise BadInput("--tensorboard: needs `pip install tensorboard`") from error
    place = directory / "tensorboard"
    fresh = not place.exists()
    writer = SummaryWriter(str(place), purge_step=len(done) + 1)

    def write(record: Record) -> None:
        for key, value in record.items():
            if key not in NOT_CURVES and value is not None:
                writer.add_scalar(key, value, record["round"])
        for c, accuracy in enumerate(record["class_accuracy"]):
            if accuracy is not None:
                writer.add_scalar(f"class_accuracy/{c}", accuracy, record["round"])
        writer.flush()

    try:
        for record in done if fresh else ():  # rounds from before anyone asked for events
            write(record)
        yield write
    finally:
        writer.close()
