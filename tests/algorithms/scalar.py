"""Vectors and replies of a few numbers, for examples worked by hand."""

import torch
from torch import Tensor

from fedadb.core.algorithm import Reply
from fedadb.core.vector import Layout, Vector


def vector(*values: float) -> Vector:
    return Vector(torch.tensor(values, dtype=torch.float32), Layout(("w",), ((len(values),),)))


def reply(n: int, *values: float) -> Reply:
    return Reply(vector(*values), torch.tensor(n))


def tensors(**parts: list[object]) -> Vector:
    return Vector.of(
        {name: torch.tensor(values, dtype=torch.float32) for name, values in parts.items()}
    )


def close(found: Tensor, *expected: float) -> None:
    torch.testing.assert_close(
        found.flatten(), torch.tensor(expected, dtype=torch.float32), atol=1e-5, rtol=1e-5
    )
