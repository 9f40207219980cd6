"""Trackers: observers that write a run's records for other programs."""

from collections.abc import Callable

from fedadb.core.errors import BadInput
from fedadb.experiment.observation import Observer
from fedadb.experiment.validation import suggest
from fedadb.observers.mlflow import MLflow
from fedadb.observers.tensorboard import TensorBoard
from fedadb.observers.wandb import WandB

TRACKERS: dict[str, Callable[[], Observer]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}
"""The trackers by name."""


def make_trackers(names: str | None) -> list[Observer]:
    """The trackers of a list such as `tensorboard,mlflow`; none for None."""
    chosen = [] if names is None else [name.strip() for name in names.split(",")]
    for i, name in enumerate(chosen):
        if name not in TRACKERS:
            raise BadInput(f"--track {name!r}: is not known; {suggest(name, TRACKERS)}")
        if name in chosen[:i]:
            raise BadInput(f"--track {names}: {name} is given twice")
    return [TRACKERS[name]() for name in chosen]
