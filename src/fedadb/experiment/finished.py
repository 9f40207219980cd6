"""A finished run, read back from its directory."""

import json
from pathlib import Path
from typing import NamedTuple

from fedadb.core.errors import BadInput, Fault
from fedadb.core.files import EXPERIMENT, MODEL
from fedadb.core.packing import unpack
from fedadb.core.track import Track, unseen
from fedadb.core.vector import Vector
from fedadb.engine.tensorfile import read_tensors
from fedadb.experiment import config
from fedadb.experiment.build import World, build
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
    return e, build(e, track)


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
