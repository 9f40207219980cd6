"""Inner-product manipulation: the mean points away from where honest clients go."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt
from torch import Tensor

from fedadb.core.attack import Attack, Moments


@dataclass(frozen=True)
class IPM(Attack):
    """All attackers send −ε μ, where μ is the mean of the honest updates.

    A small ε is hard to notice; with a large one, the mean of all updates turns around (Xie et al.,
    UAI 2019).

    ```python
    fedadb.Experiment(dataset="digits", attack=fedadb.IPM(clients=4, epsilon=2.0))
    ```
    """

    # attackers: how many, which the seed draws, or a list of their numbers
    clients: Annotated[int, Ge(1)] | tuple[Annotated[int, Ge(0)], ...]
    epsilon: Annotated[float, Gt(0)] = 0.1  # ε: length of what attackers send, in honest means

    acts_together = True

    def common_update(self, honest: Moments, attackers: int) -> Tensor:
        return -self.epsilon * honest.mean
