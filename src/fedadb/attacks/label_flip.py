"""Label flip: attackers train on wrong labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge

from fedadb.core.attack import Attack
from fedadb.core.data import Shard


@dataclass(frozen=True)
class LabelFlip(Attack):
    """An attacker trains on the labels C − 1 − y, and sends what it learned.

    ```python
    fedadb.Experiment(dataset="digits", attack=fedadb.LabelFlip(clients=4))
    ```
    """

    # attackers: how many, which the seed draws, or a list of their numbers
    clients: Annotated[int, Ge(1)] | tuple[Annotated[int, Ge(0)], ...]

    def poison(self, shards: Sequence[Shard]) -> Sequence[Shard]:
        classes, examples = shards[0].classes, shards[0].examples  # which clients share
        flipped = examples._replace(y=classes - 1 - examples.y)
        return [replace(shard, examples=flipped) for shard in shards]
