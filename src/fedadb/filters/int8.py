"""Uploads of one byte per number, rounded at random so that their mean stays right."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedadb.core.algorithm import Round
from fedadb.core.filter import Compressor
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector

LARGEST = 127


class Int8Update(NamedTuple):
    """An update Δ ≈ a · q."""

    q: Tensor  # int8: the whole numbers of all tensors
    a: Tensor  # the step of each tensor


@dataclass(frozen=True)
class Int8(Compressor):
    """Sends whole numbers from −127 to 127 times a step per tensor, a = max |Δ| / 127.

    Δ / a is rounded up with a probability of its fractional part: E[a · q] = Δ. Uploads are a
    quarter as large.

    ```python
    fedadb.Experiment(dataset="digits", filter=[fedadb.Int8()])
    ```
    """

    def compress(
        self, w: Vector, u: Vector, memory: Any, round: Round, rng: Stream
    ) -> tuple[Int8Update, Any]:
        generator = rng.generator()
        steps, numbers = [], []
        for update in (w - u).views().values():
            uniform = torch.rand(update.shape, dtype=torch.float64, generator=generator)
            a, q = quantise(update, uniform.to(update.device))
            steps.append(a)
            numbers.append(q.reshape(-1))
        return Int8Update(torch.cat(numbers), torch.stack(steps)), memory

    def restore(self, sent: Int8Update, u: Vector) -> Vector:
        steps = torch.repeat_interleave(sent.a, torch.tensor(u.layout.sizes, device=sent.a.device))
        return u + Vector(steps * sent.q, u.layout)


def quantise(update: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The step a and the whole numbers q = ⌊Δ / a + U⌋ of one tensor, for U from [0, 1)."""
    a = update.abs().amax() / LARGEST
    # In float64: in float32, a whole number of steps may be rounded to less. The clamp is for
    # the largest number, because a itself is rounded. Where a is 0, so is all that is restored.
    q = torch.floor(update.double() / torch.where(a == 0, 1, a).double() + uniform)
    return a, q.clamp(-LARGEST, LARGEST).to(torch.int8)
