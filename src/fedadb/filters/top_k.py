"""Uploads of the largest numbers alone; what a client leaves out, it adds to its next update."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Gt, Le
from torch import Tensor

from fedadb.core.errors import Fault
from fedadb.core.filter import Compressor
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights


class TopKUpdate(NamedTuple):
    """An update that is 0 except at these positions."""

    positions: Tensor  # int32, increasing
    values: Tensor


class Unsent(NamedTuple):
    """What a client has not sent yet."""

    e: Vector


@dataclass(frozen=True)
class TopK(Compressor):
    """Sends the k numbers of e + Δ with the largest magnitude, and keeps the others as the next e.

    k is a share of the model's numbers, rounded up. A number takes 8 bytes instead of 4. With
    share = 1, weights are sent as they are.

    ```python
    fedadb.Experiment(dataset="digits", filter=[fedadb.TopK(share=0.01)])
    ```
    """

    share: Annotated[float, Gt(0), Le(1)] = 0.01  # share of the numbers that are sent

    def memory(self, w: Vector) -> Unsent:
        return Unsent(w.zeros())

    def compress(self, w: Vector, u: Vector, memory: Unsent, rng: Stream) -> tuple[Any, Unsent]:
        size = w.flat.numel()
        if (k := self.count(size)) == size:
            return Weights(w), memory
        wanted = (memory.e + (w - u)).flat
        positions = largest(wanted, k)
        sent = TopKUpdate(positions.to(torch.int32), wanted[positions])
        return sent, Unsent(Vector(wanted.index_fill(0, positions, 0.0), w.layout))

    def restore(self, sent: TopKUpdate, u: Vector) -> Vector:
        positions, size = sent.positions.long(), u.flat.numel()
        if positions[0] < 0 or positions[-1] >= size or not (positions.diff() > 0).all():
            raise Fault(f"its positions do not increase from 0 to at most {size - 1}")
        w = u.flat.clone()
        w[positions] += sent.values
        return Vector(w, u.layout)

    def count(self, numbers: int) -> int:
        """The k of a model with so many numbers."""
        # A share of 0.07 of 100 numbers is 7.000000000000001, and not 8 rounded up.
        return math.ceil(self.share * numbers * (1 - 1e-12))


def largest(values: Tensor, k: int) -> Tensor:
    """The positions of the k values with the largest magnitude, increasing; of equals the first."""
    size = torch.where(values.isnan(), torch.inf, values.abs())  # the server reports a divergence
    least = size.topk(k).values[-1]
    above = torch.nonzero(size > least).flatten()
    equal = torch.nonzero(size == least).flatten()[: k - len(above)]
    return torch.cat([above, equal]).sort().values
