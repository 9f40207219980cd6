"""The Gaussian mechanism: the server learns the noisy sum of a round's clipped updates."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fedadb.core.errors import BadInput
from fedadb.core.replies import Replies, Reply, update_of, weights_after
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector, Weights

RATE = 0.2  # by which S follows a quantile, if no other is given
MARGIN = 1 - 1e-6  # of a clipped update's norm, so that rounding never makes it longer than S


class NoiseSource(Protocol):
    """Where noise comes from. Whoever knows it can subtract it."""

    def normals(self, t: int, name: str, n: int) -> Tensor:
        """Independent standard normal numbers in float64 for round t; other names, other ones."""
        ...

    def releases(self, t: int) -> int:
        """The number of noisy results up to round t, with those of rounds that were repeated."""
        ...


@dataclass(frozen=True)
class SimulatedNoise:
    """Noise of the experiment's seed: repeatable, and so without any guarantee."""

    rng: Stream

    def normals(self, t: int, name: str, n: int) -> Tensor:
        generator = self.rng.at("dp", name, t).generator()
        return torch.randn(n, generator=generator, dtype=torch.float64)

    def releases(self, t: int) -> int:
        return t  # a repeated round has the same replies and the same noise


class MechanismState(NamedTuple):
    """What the server keeps between rounds."""

    norm: Tensor  # S, in float64
    releases: Tensor  # so far


@dataclass(frozen=True)
class Mechanism:
    """Releases u + (Σ Δ_k min(1, S / ‖Δ_k‖) + z S ξ) / (qK), where ξ are standard normal numbers.

    The denominator is a constant, so lost replies and empty rounds change the sensitivity by
    nothing. With a quantile, S follows that quantile of the norms ‖Δ_k‖ (Andrew et al., NeurIPS
    2021); the noise of both results together costs as much as z.
    """

    norm: float  # S, in the first round if it follows a quantile
    noise: float  # z
    expected: float  # qK: the mean number of clients in a round
    source: NoiseSource
    quantile: float | None = None
    rate: float = RATE  # by which S follows the quantile

    def init(self) -> MechanismState:
        """The state before the first round."""
        return MechanismState(torch.tensor(self.norm, dtype=torch.float64), torch.tensor(0))

    def release(
        self, replies: Iterable[Reply[Any]], state: MechanismState, u: Vector, t: int
    ) -> tuple[Replies[Reply[Weights]], MechanismState]:
        """Replies that all have the noisy weights, and the next state.

        There are as many as a round has clients on average, each with one row. So neither their
        number nor their weights tell how many clients took part, and an empty round has some too.
        """
        norm, within, m = float(state.norm), 0, 0
        total = torch.zeros_like(u.flat, dtype=torch.float64)
        for reply in replies:
            if not isinstance(reply.upload, Weights):
                raise BadInput(
                    "filter: DP makes weights private, and these replies are a "
                    f"{type(reply.upload).__name__}, which has more than weights"
                )
            update = update_of(reply, u)
            length = float(torch.linalg.vector_norm(update))
            total += update if length <= norm else update * (norm * MARGIN / length)
            within += length <= norm
            m += 1
        noise = self.source.normals(t, "update", total.numel()).to(total.device)
        total += self.update_noise * norm * noise
        one = Reply(Weights(weights_after(total / self.expected, u)), torch.tensor(1))
        n = max(1, round(self.expected))
        releases = torch.tensor(self.source.releases(t))
        return Replies([one] * n, [1] * n), MechanismState(
            self._next_norm(state.norm, within, m, t), releases
        )

    @property
    def update_noise(self) -> float:
        """The noise multiplier of the updates: more than z if the norms are released too."""
        if self.quantile is None:
            return self.noise
        return 1 / math.sqrt(self.noise**-2 - (2 * self.count_noise) ** -2)

    @property
    def count_noise(self) -> float:
        """The standard deviation of the noise on the number of updates that are not clipped."""
        return self.expected / 20

    def _next_norm(self, norm: Tensor, within: int, m: int, t: int) -> Tensor:
        if self.quantile is None:
            return norm
        # b − ½ is ±½, so one client moves the sum by ½ only.
        noisy = within - m / 2 + self.count_noise * float(self.source.normals(t, "count", 1))
        share = noisy / self.expected + 0.5  # of updates that are not clipped
        return norm * math.exp(-self.rate * (share - self.quantile))
