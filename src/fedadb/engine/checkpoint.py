"""Everything a federation needs to go on, in one file."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedadb.core.algorithm import Algorithm, C, Round, S
from fedadb.core.errors import Fault
from fedadb.core.packing import pack, unpack
from fedadb.core.vector import Vector
from fedadb.engine.federate import Snapshot
from fedadb.engine.files import write_whole


def save(path: Path, snapshot: Snapshot[S], memories: Mapping[int, Any], data: str) -> None:
    """The server's state, the memory of each client that has one, and the digest of the data."""
    tensors = pack(snapshot.server, under="server")
    for k, memory in memories.items():
        tensors |= pack(memory, under=f"memory/{k}")
    write_tensors(path, tensors, {"round": json.dumps(snapshot.round), "data": data})


def load(
    path: Path, algorithm: Algorithm[S, Any, C], w: Vector, data: str
) -> tuple[Snapshot[S], dict[int, C]]:
    """What `save` wrote, for this algorithm, a model with weights like w, and these data."""
    tensors, about = read_tensors(path)
    if about["data"] != data:
        raise Fault(f"{path} was made on other data: they have changed since; choose another --out")
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        if kind == "memory":
            client, _, rest = rest.partition("/")
            kind = f"memory/{client}"
        groups.setdefault(kind, {})[rest] = tensor.to(w.flat.device)
    try:
        server = unpack(type(algorithm.init(w)), groups.pop("server", {}), w.layout)
        remembers = type(algorithm.memory(w))
        memories = {
            int(kind.removeprefix("memory/")): unpack(remembers, group, w.layout)
            for kind, group in groups.items()
        }
    except Fault as error:
        raise Fault(f"{path} does not fit this experiment: {error}") from error
    return Snapshot(Round(*json.loads(about["round"])), server), memories


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """A safetensors file that knows its own digest."""
    # Copied, because safetensors refuses tensors that share memory.
    own = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    # One entry, because safetensors writes several in an order that changes from run to run.
    metadata = {"fedadb": json.dumps({**about, "sha256": _digest(own, about)})}
    write_whole(path, safetensors.torch.save(own, metadata=metadata))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `write_tensors` wrote, or a Fault if anything in it has changed."""
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("fedadb", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise Fault(f"{path} is damaged ({error}); delete it to start over") from error
    if about.pop("sha256", None) != _digest(tensors, about):
        raise Fault(f"{path} is damaged (its checksum is wrong); delete it to start over")
    return tensors, about


def _digest(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(about.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()


def raw_bytes(tensor: Tensor) -> memoryview:
    """The tensor's bytes, whatever its type."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
