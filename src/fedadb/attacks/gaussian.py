"""Noise: attackers send random numbers."""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from fedadb.core.attack import Attack
from fedadb.core.stream import Stream


@dataclass(frozen=True)
class Gaussian(Attack):
    """An attacker sends normally distributed numbers in place of what it learned.

    ```python
    fedadb.Experiment(dataset="digits", attack=fedadb.Gaussian(clients=4, sigma=0.1))
    ```
    """

    # attackers: how many, which the seed draws, or a list of their numbers
    clients: Annotated[int, Ge(1)] | tuple[Annotated[int, Ge(0)], ...]
    sigma: Annotated[float, Gt(0)] = 1.0  # σ: standard deviation of the noise that attackers send

    def update(self, own: Tensor, rows: int, total: int, rng: Stream) -> Tensor:
        noise = torch.randn(own.shape, dtype=own.dtype, generator=rng.generator())
        return self.sigma * noise.to(own.device)
