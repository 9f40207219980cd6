"""Safetensors files with a checksum."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedadb.core.errors import Fault
from fedadb.storage.files import write_atomically


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata atomically, with a checksum over both."""
    # safetensors refuses tensors that share memory, so each is copied.
    copies = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    # One entry: safetensors writes several in an order that changes from run to run.
    entry = {"fedadb": json.dumps({**metadata, "sha256": _digest(copies, metadata)})}
    write_atomically(path, safetensors.torch.save(copies, metadata=entry))


def read_tensors(path: Path, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what `write_tensors` wrote. A damaged file raises a Fault that ends in the remedy."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = _check_metadata(json.loads((file.metadata() or {}).get("fedadb", "{}")))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise Fault(f"{path} is missing; {remedy}") from error
    except (SafetensorError, ValueError, RecursionError) as error:
        raise Fault(f"{path} is damaged ({error}); {remedy}") from error
    if metadata.pop("sha256", None) != _digest(tensors, metadata):
        raise Fault(f"{path} is damaged (its checksum is wrong); {remedy}")
    return tensors, metadata


def _check_metadata(metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("its metadata is not a JSON object of strings")
    return metadata


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()


def raw_bytes(tensor: Tensor) -> memoryview:
    """The tensor's bytes, whatever its type."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
