"""Model replacement: attackers scale their updates so that a mean becomes their model."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge
from torch import Tensor

from fedadb.core.attack import Attack
from fedadb.core.stream import Stream


@dataclass(frozen=True)
class Scaled(Attack):
    """An attacker sends a multiple of what it learned.

    By the automatic factor N / n_k, where N are the rows of all clients of the round, a mean by
    rows moves by the whole of its update (Bagdasaryan et al., AISTATS 2020).

    ```python
    fedadb.Experiment(dataset="digits", attack=fedadb.Scaled(clients=(0, 7), factor=-10.0))
    ```
    """

    # attackers: how many, which the seed draws, or a list of their numbers
    clients: Annotated[int, Ge(1)] | tuple[Annotated[int, Ge(0)], ...]
    # factor of the update; auto: N / n_k, so that a mean by rows moves by the whole of it
    factor: float | Literal["auto"] = "auto"

    def update(self, own: Tensor, rows: int, total: int, rng: Stream) -> Tensor:
        return (total / rows if self.factor == "auto" else self.factor) * own
