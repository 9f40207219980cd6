"""ALIE, "a little is enough": attackers hide within the spread of honest updates."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Literal

from annotated_types import Ge
from torch import Tensor

from fedadb.core.attack import Attack, Moments


@dataclass(frozen=True)
class ALIE(Attack):
    """All attackers send μ − zσ of the honest updates, coordinate by coordinate.

    The automatic z is the largest at which enough honest updates are farther from the mean than
    the attackers' to make a majority with them (Baruch et al., NeurIPS 2019). With few attackers it
    is 0 or below, and the attack does nothing: z of 5 clients with one attacker is 0.

    ```python
    fedadb.Experiment(dataset="digits", attack=fedadb.ALIE(clients=4, z=1.5))
    ```
    """

    # attackers: how many, which the seed draws, or a list of their numbers
    clients: Annotated[int, Ge(1)] | tuple[Annotated[int, Ge(0)], ...]
    # distance from the mean in standard deviations; auto: as far as a majority hides it
    z: float | Literal["auto"] = "auto"

    acts_together = True

    def common_update(self, honest: Moments, attackers: int) -> Tensor:
        z = hidden_z(honest.clients, attackers) if self.z == "auto" else self.z
        return honest.mean - z * honest.sd


def hidden_z(honest: int, attackers: int) -> float:
    """The z = Φ⁻¹((m − f − s) / (m − f)), where s = ⌊m / 2 + 1⌋ − f.

    With s honest clients, the attackers are a majority.
    """
    s = math.floor((honest + attackers) / 2 + 1) - attackers
    # Attackers who are a majority by themselves need no one, and z would be infinite.
    share = min(max((honest - s) / honest, 1 / (honest + 1)), honest / (honest + 1))
    return NormalDist().inv_cdf(share)
