"""Everything a federation needs to go on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedadb.core.algorithm import Algorithm, Round, S
from fedadb.core.errors import Fault
from fedadb.core.packing import pack, unpack
from fedadb.core.vector import Vector
from fedadb.engine.federate import Snapshot
from fedadb.engine.tensorfile import read_tensors, write_tensors


def save(path: Path, snapshot: Snapshot[S], versions: Mapping[int, int], data: str) -> None:
    """The server's state, which version of each client's memory, and the digest of the data."""
    about = {
        "round": json.dumps(snapshot.round),
        "memories": json.dumps(sorted(versions.items())),
        "data": data,
    }
    write_tensors(path, pack(snapshot.server), about)


def load(
    path: Path, algorithm: Algorithm[S, Any, Any], w: Vector, data: str
) -> tuple[Snapshot[S], dict[int, int]]:
    """What `save` wrote, for this algorithm, a model with weights like w, and these data."""
    tensors, about = read_tensors(path, "delete it to start over")
    if about["data"] != data:
        raise Fault(f"{path} was made on other data: they have changed since; choose another --out")
    on_device = {name: tensor.to(w.flat.device) for name, tensor in tensors.items()}
    try:
        server = unpack(type(algorithm.init(w)), on_device, w.layout)
    except Fault as error:
        raise Fault(f"{path} does not fit this experiment: {error}") from error
    versions = dict(json.loads(about["memories"]))
    return Snapshot(Round(*json.loads(about["round"])), server), versions
