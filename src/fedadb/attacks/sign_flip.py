"""Sign flip: attackers send the opposite of what they learned."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge
from torch import Tensor

from fedadb.core.attack import Attack
from fedadb.core.stream import Stream


@dataclass(frozen=True)
class SignFlip(Attack):
    """An attacker sends −Δ, where Δ is what it learned.

    ```python
    fedadb.Experiment(dataset="digits", attack=fedadb.SignFlip(clients=4))
    ```
    """

    # attackers: how many, which the seed draws, or a list of their numbers
    clients: Annotated[int, Ge(1)] | tuple[Annotated[int, Ge(0)], ...]

    def update(self, own: Tensor, rows: int, total: int, rng: Stream) -> Tensor:
        return -own
