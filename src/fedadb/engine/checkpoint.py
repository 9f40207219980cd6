"""Checkpoints: everything that a federation needs to resume.

The newest one is `checkpoint.safetensors`; the two before it stay beside it under the numbers of
their rounds, so that a run can return to a round before something went wrong.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple

from pydantic import NonNegativeInt, PositiveInt, TypeAdapter, ValidationError
from torch import Tensor
from typing_extensions import TypeVar

from fedadb.core.algorithm import Round, S
from fedadb.core.errors import BadInput, Fault
from fedadb.core.packing import kind_of, pack, unpack
from fedadb.core.vector import Vector
from fedadb.engine.federate import Snapshot
from fedadb.kernels.notice import warn
from fedadb.kernels.selection import TORCH
from fedadb.storage.run_directory import (
    CHECKPOINT,
    EARLIER_CHECKPOINTS,
    earlier_checkpoint,
    earlier_checkpoints,
)
from fedadb.storage.tensorfile import read_tensors, write_tensors

OptimizerState = TypeVar("OptimizerState", default=tuple[()])
FilterStates = TypeVar("FilterStates", default=tuple[()])
MechanismState = TypeVar("MechanismState", default=tuple[()])
ROUND = TypeAdapter(Round)
VERSIONS = TypeAdapter(list[tuple[NonNegativeInt, PositiveInt]])
SHAPES = TypeAdapter(dict[str, tuple[NonNegativeInt, ...]])


def save_checkpoint(
    path: Path,
    snapshot: Snapshot[S],
    versions: Mapping[int, int],
    data: str,
    kernels: str = TORCH,
) -> None:
    """Write the federation's state, and what a run must have in common with it to resume.

    Args:
        path: The file.
        snapshot: The federation after a round.
        versions: The version of each client's memory.
        data: The digest of the data.
        kernels: The name of the kernels that computed the round.
    """
    metadata = {
        "round": json.dumps(snapshot.round),
        "memories": json.dumps(sorted(versions.items())),
        "data": data,
        "kernels": kernels,
        "uploads": json.dumps(dict(snapshot.upload_shapes)),
    }
    write_tensors(path, pack(_state(snapshot)), metadata)


def load_checkpoint(
    path: Path,
    before: Snapshot[S],
    w: Vector,
    data: str,
    kernels: str | None = None,
    any_kernels: bool = False,
) -> tuple[Snapshot[S], dict[int, int]]:
    """Read a checkpoint of the federation that is `before` its first round, and of these data.

    The model has weights like w. If `kernels` are given, they must have computed the checkpoint;
    with `any_kernels`, one sentence says that others have.
    """
    tensors, round, versions, stored_data, stored_kernels, shapes = _read(path)
    if stored_data != data:
        raise Fault(f"{path} belongs to other data: they have changed since; choose another --out")
    if kernels not in (None, stored_kernels):
        if not any_kernels:
            raise BadInput(_refuse_kernels(path, stored_kernels, str(kernels)))
        warn(
            f"{path} was computed by the kernels {stored_kernels!r}, and the run resumes on "
            f"{kernels!r}: from round {round.t + 1} on, its bits differ"
        )
    if not any(name.startswith("server/") for name in tensors):  # of an earlier version
        tensors = {f"server/{name}": tensor for name, tensor in tensors.items()}
    on_device = {name: tensor.to(w.flat.device) for name, tensor in tensors.items()}
    try:
        state = unpack(kind_of(_state(before)), on_device, w.layout)
    except Fault as error:
        raise Fault(f"{path} does not fit this experiment: {error}") from error
    return Snapshot(round, *state)._replace(upload_shapes=shapes), versions


def _refuse_kernels(path: Path, stored: str, kernels: str) -> str:
    """Why the run does not resume on these kernels, and what lets it."""
    auto = f", --set engine.kernels=auto on {kernels!r} (in Python: any_kernels=True)"
    return (
        f"{path} was computed by the kernels {stored!r}, and the run would resume on {kernels!r}, "
        "whose bits differ; --set engine.kernels=torch resumes on 'torch'"
        f"{auto if kernels != TORCH else ''}"
    )


class _State(NamedTuple, Generic[S, OptimizerState, FilterStates, MechanismState]):
    """The part of a Snapshot that a checkpoint holds, in the order of its fields."""

    server: S
    optimizer_state: OptimizerState
    filter_states: FilterStates
    mechanism_state: MechanismState


def _state(snapshot: Snapshot[S]) -> _State[S, Any, Any, Any]:
    return _State(
        snapshot.server,
        snapshot.optimizer_state,
        snapshot.filter_states,
        snapshot.mechanism_state,
    )


def keep_earlier_checkpoint(directory: Path, t: int) -> None:
    """Keep the newest checkpoint, which is of round t, under its number.

    `save_checkpoint` then replaces it. A process can end anywhere in between.
    """
    newest, earlier = directory / CHECKPOINT, earlier_checkpoint(directory, t)
    if newest.exists():
        earlier.unlink(missing_ok=True)
        try:
            os.link(newest, earlier)
        except OSError:  # the file system has no hard links
            shutil.copyfile(newest, earlier)


def remove_old_checkpoints(directory: Path, t: int) -> None:
    """Remove the checkpoints that are too old, now that the newest is of round t."""
    for round, path in earlier_checkpoints(directory).items():
        if not t - EARLIER_CHECKPOINTS <= round < t:
            path.unlink()


def earlier_memories(directory: Path) -> dict[int, dict[int, int]]:
    """The versions of the clients' memories that the earlier checkpoints need, by round."""
    remedy = "delete it: the run does not need it to resume"
    return {t: _read(path, remedy).versions for t, path in earlier_checkpoints(directory).items()}


def find_checkpoint(directory: Path, t: int) -> Path:
    """The checkpoint of round t."""
    known, newest = earlier_checkpoints(directory), directory / CHECKPOINT
    if newest.exists():
        known |= {_read(newest).round.t: newest}
    if t not in known:
        rounds = ", ".join(map(str, known)) or "none"
        raise BadInput(f"--from-round {t}: {directory} has checkpoints of the rounds {rounds}")
    return known[t]


def return_to_round(directory: Path, t: int) -> None:
    """Make the checkpoint of round t the newest one, and remove those of later rounds."""
    found, newest = find_checkpoint(directory, t), directory / CHECKPOINT
    if found != newest:
        found.replace(newest)
    remove_old_checkpoints(directory, t)


class _Stored(NamedTuple):
    tensors: dict[str, Tensor]
    round: Round
    versions: dict[int, int]
    data: str
    kernels: str
    upload_shapes: dict[str, tuple[int, ...]]


def _read(path: Path, remedy: str = "delete it to start over") -> _Stored:
    tensors, metadata = read_tensors(path, remedy)
    try:
        round = ROUND.validate_json(metadata["round"])
        versions = dict(VERSIONS.validate_json(metadata["memories"]))
        kernels = metadata.get("kernels", TORCH)  # an earlier version had no others
        shapes = SHAPES.validate_json(metadata.get("uploads", "{}"))  # likewise
        return _Stored(tensors, round, versions, metadata["data"], kernels, shapes)
    except (KeyError, ValidationError) as error:
        raise Fault(f"{path} is not a checkpoint; {remedy}") from error
