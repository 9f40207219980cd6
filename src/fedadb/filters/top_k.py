"""Uploads of the largest numbers alone; what a client leaves out, it adds to its next update."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from fedadb.core.algorithm import Round
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


class UnsentSince(NamedTuple):
    """What a client has not sent yet, and the round in which it last sent something."""

    e: Vector
    t: Tensor


@dataclass(frozen=True)
class TopK(Compressor):
    """Sends the k numbers of e + Δ with the largest magnitude, and keeps the others as the next e.

    k is a share of the model's numbers, rounded up. A number takes 8 bytes instead of 4. With
    share = 1, weights are sent as they are.

    The model moves on while a client is away, and e belongs to where it was. With `decay`, e is
    multiplied by it for each round without the client.

    ```python
    fedadb.Experiment(dataset="digits", filter=[fedadb.TopK(share=0.01)])
    fedadb.Experiment(dataset="digits", filter=[fedadb.TopK(share=0.01, decay=0.9)])
    ```
    """

    share: Annotated[float, Gt(0), Le(1)] = 0.01  # share of the numbers that are sent
    # factor of what was not sent, per round without the client; 0: forgotten; none: 1
    decay: Annotated[float, Ge(0), Le(1)] | None = None

    def memory(self, w: Vector) -> Unsent | UnsentSince:
        return self._kept(w.zeros(), 0)

    def compress(
        self, w: Vector, u: Vector, memory: Unsent | UnsentSince, round: Round, rng: Stream
    ) -> tuple[Any, Unsent | UnsentSince]:
        size, e = w.flat.numel(), memory.e
        if (k := self.count(size)) == size:
            return Weights(w), memory
        if self.decay is not None and isinstance(memory, UnsentSince):
            e = self.decay ** (round.t - int(memory.t) - 1) * e
        wanted = (e + (w - u)).flat
        positions = largest(wanted, k)
        sent = TopKUpdate(positions.to(torch.int32), wanted[positions])
        left = Vector(wanted.index_fill(0, positions, 0.0), w.layout)
        return sent, self._kept(left, round.t)

    def _kept(self, e: Vector, t: int) -> Unsent | UnsentSince:
        return Unsent(e) if self.decay is None else UnsentSince(e, torch.tensor(t))

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
