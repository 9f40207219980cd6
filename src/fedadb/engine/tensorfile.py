"""Safetensors files that know their own digest."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedadb.core.errors import Fault
from fedadb.core.files import write_whole


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Write the tensors, and what there is to say about them, in one move."""
    # Copied, because safetensors refuses tensors that share memory.
    own = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    # One entry, because safetensors writes several in an order that changes from run to run.
    metadata = {"fedadb": json.dumps({**about, "sha256": _digest(own, about)})}
    write_whole(path, safetensors.torch.save(own, metadata=metadata))


def read_tensors(path: Path, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `write_tensors` wrote; a Fault with the remedy if anything in it has changed."""
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("fedadb", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise Fault(f"{path} is missing; {remedy}") from error
    except (SafetensorError, ValueError) as error:
        raise Fault(f"{path} is damaged ({error}); {remedy}") from error
    if about.pop("sha256", None) != _digest(tensors, about):
        raise Fault(f"{path} is damaged (its checksum is wrong); {remedy}")
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
