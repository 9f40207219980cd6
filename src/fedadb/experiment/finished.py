"""A finished run, read back from its directory."""

import json
from pathlib import Path
from typing import NamedTuple

import torch

from fedadb.core.data import Examples
from fedadb.core.errors import BadInput, Fault
from fedadb.core.files import EXPERIMENT, MODEL, SITES
from fedadb.core.packing import unpack
from fedadb.core.task import Task
from fedadb.core.track import Track, unseen
from fedadb.core.vector import Vector
from fedadb.engine.tensorfile import read_tensors
from fedadb.experiment import config
from fedadb.experiment.build import World, build, model, pick_device
from fedadb.experiment.config import Experiment
from fedadb.experiment.presets import merge


def read_world(directory: Path, track: Track = unseen) -> tuple[Experiment, World]:
    """What was run in a directory, and its data."""
    if not (directory / EXPERIMENT).exists():
        raise BadInput(f"{directory} is not a run: there is no {EXPERIMENT} in it")
    table = config.load(directory / EXPERIMENT)
    # Where and how it was trained is of no account here: second derivatives and exported models
    # need float32.
    engine = {"device": "cpu", "precision": "float32"}
    e = Experiment.read(merge(table, {"engine": engine}))
    known = directory / SITES
    if known.exists():
        return e, of_sites(e, Task.read(json.loads(known.read_text())["task"]))
    return e, build(e, track)


def of_sites(e: Experiment, task: Task) -> World:
    """The world of a run whose images are at sites: a model, and nothing to look at."""
    none, device = torch.zeros(0, dtype=torch.int64), pick_device(e.engine.device)
    return World(
        model(e, task.transform.domain(task.shape), len(task.classes), device),
        shards=(),
        test=Examples(torch.zeros(0, *task.shape, dtype=torch.uint8), none),
        domains=(),
        test_domain=None,
        transform=task.transform,
        classes=task.classes,
        counts=[],
        digest="",
    )


class Finished(NamedTuple):
    experiment: Experiment
    world: World
    w: Vector  # the deployed weights


def read_run(directory: Path, track: Track = unseen) -> Finished:
    """The run of a directory, with its data and its model."""
    e, world = read_world(directory, track)
    return Finished(e, world, read_weights(directory, world))


def read_weights(directory: Path, world: World) -> Vector:
    """The deployed weights of a run that has ended; what the model holds beside them is set."""
    path, again = directory / MODEL, f"`fedadb run {directory / EXPERIMENT} --out {directory}`"
    if (directory / SITES).exists():
        again = "the command of the server that began it"
    if not path.exists():
        raise BadInput(
            f"{directory} is not finished: there is no {MODEL} yet; {again} runs it to its end"
        )
    tensors, about = read_tensors(path, f"delete it, and {again} makes it anew")
    if json.loads(about["classes"]) != list(world.classes):
        raise BadInput(f"{directory}: the classes of its data are not those of the run any more")
    layout = world.f.layout
    w = unpack(Vector, {name: tensors[name] for name in layout.names if name in tensors}, layout)
    if not w.flat.isfinite().all():
        raise Fault(f"{path} has weights that are not finite: the run diverged")
    for name, constant in world.f.constants().items():  # which share the module's memory
        constant.copy_(tensors[name])
    return w
