"""Checkpoints: everything that a federation needs to resume."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from fedadb.core.algorithm import Algorithm, Round, S
from fedadb.core.errors import Fault
from fedadb.core.packing import pack, unpack
from fedadb.core.vector import Vector
from fedadb.engine.federate import Snapshot
from fedadb.storage.tensorfile import read_tensors, write_tensors

ROUND = TypeAdapter(Round)
VERSIONS = TypeAdapter(list[tuple[NonNegativeInt, PositiveInt]])


def save_checkpoint(
    path: Path, snapshot: Snapshot[S], versions: Mapping[int, int], data: str
) -> None:
    """Write the server's state, the version of each client's memory, and the data's digest."""
    metadata = {
        "round": json.dumps(snapshot.round),
        "memories": json.dumps(sorted(versions.items())),
        "data": data,
    }
    write_tensors(path, pack(snapshot.server), metadata)


def load_checkpoint(
    path: Path, algorithm: Algorithm[S, Any, Any], w: Vector, data: str
) -> tuple[Snapshot[S], dict[int, int]]:
    """Read a checkpoint of this algorithm, of a model with weights like w, and of these data."""
    tensors, metadata = read_tensors(path, "delete it to start over")
    try:
        round = ROUND.validate_json(metadata["round"])
        versions = dict(VERSIONS.validate_json(metadata["memories"]))
        of_data = metadata["data"]
    except (KeyError, ValidationError) as error:
        raise Fault(f"{path} is not a checkpoint; delete it to start over") from error
    if of_data != data:
        raise Fault(f"{path} belongs to other data: they have changed since; choose another --out")
    on_device = {name: tensor.to(w.flat.device) for name, tensor in tensors.items()}
    try:
        server = unpack(type(algorithm.init(w)), on_device, w.layout)
    except Fault as error:
        raise Fault(f"{path} does not fit this experiment: {error}") from error
    return Snapshot(round, server), versions
