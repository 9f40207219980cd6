"""What all sites must agree on before they can learn together: the images, and the settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedadb import datasets
from fedadb.core.data import Splits
from fedadb.core.errors import BadInput
from fedadb.core.task import Task
from fedadb.progress import Progress, no_progress
from fedadb.core.transform import Transform
from fedadb.experiment.config import Experiment
from fedadb.experiment.presets import flatten

# What a site computes does not depend on where the server's data lie, nor on who waits for whom.
OF_THE_SERVER = (
    "dataset", "record_clients", "federation.", "deployment.", "engine.device", "engine.workers",
    "engine.cohort", "engine.overlap", "engine.backend", "engine.address",
)  # fmt: skip


def task_of(e: Experiment, progress: Progress = no_progress) -> tuple[Task, Splits | None]:
    """The task, and the server's own data if the experiment has any for it."""
    given = e.deployment
    if not given.classes and not given.shape:
        splits = datasets.load(e.dataset, progress)
        return Task.of(splits), splits
    if not (given.classes and len(given.shape) == 3):
        raise BadInput(
            "deployment: a server without data needs both classes and shape = [channels, height, "
            "width]"
        )
    if given.evaluate != "sites":
        raise BadInput(
            f"deployment.evaluate = {given.evaluate!r}: a server without data cannot; use 'sites'"
        )
    channels = given.shape[0]
    transform = Transform(mean=(0.5,) * channels, std=(0.5,) * channels)  # as of one's own data
    return Task(given.classes, given.shape, transform), None


def settings(e: Experiment) -> dict[str, Any]:
    """What decides what a site computes, under dotted names."""
    leaves = flatten(e.table())
    return {k: v for k, v in leaves.items() if not k.startswith(OF_THE_SERVER)}


def agreed(e: Experiment) -> Experiment:
    """The experiment without what is the server's own business: the same at all sites.

    Wherever the server's data lie and however long it waits, the application is the same.
    """
    table = e.table()
    named = table["dataset"] if ":" not in table["dataset"] else "digits"
    federation = {key: table["federation"][key] for key in ("clients", "participation")}
    engine = {"precision": e.engine.precision}
    kept = {key: table[key] for key in ("rounds", "seed", "model", "local", "algorithm")}
    return Experiment.read({**kept, "dataset": named, "federation": federation, "engine": engine})


def require_same(here: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """The experiment of this site is the server's."""
    keys: Sequence[str] = sorted(here.keys() | there.keys(), key=lambda k: (".name" not in k, k))
    for key in keys:
        if _plain(here.get(key)) != _plain(there.get(key)):
            raise BadInput(
                f"the server's experiment differs from this site's: {key} is {there.get(key)!r} "
                f"there and {here.get(key)!r} here; give both the same file"
            )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
