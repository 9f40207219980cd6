"""Label flip: attackers train on wrong labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge

from fedadb.core.attack import Attack
from fedadb.core.data import Shard
from fedadb.core.errors import BadInput


@dataclass(frozen=True)
class LabelFlip(Attack):
    """An attacker trains on wrong labels, and sends what it learned.

    All labels become C − 1 − y. With `source` and `target`, only those of one class become those
    of another.

    ```python
    fedadb.Experiment(dataset="digits", attack=fedadb.LabelFlip(clients=4))
    fedadb.Experiment(dataset="digits", attack=fedadb.LabelFlip(clients=4, source=3, target=8))
    ```
    """

    # attackers: how many, which the seed draws, or a list of their numbers
    clients: Annotated[int, Ge(1)] | tuple[Annotated[int, Ge(0)], ...]
    source: Annotated[int, Ge(0)] | None = None  # the class whose rows are mislabelled; None: all
    target: Annotated[int, Ge(0)] | None = None  # the class that they are said to have

    def __post_init__(self) -> None:
        if (self.source is None) != (self.target is None):
            raise BadInput("source and target belong together; give both, or none")
        if self.source is not None and self.source == self.target:
            raise BadInput(f"target = {self.target}: is the source itself; give another class")

    def poison(self, shards: Sequence[Shard]) -> Sequence[Shard]:
        classes, examples = shards[0].classes, shards[0].examples  # which clients share
        for name, c in (("source", self.source), ("target", self.target)):
            if c is not None and c >= classes:
                raise BadInput(f"attack.{name} = {c}: the classes are 0 to {classes - 1}")
        y = classes - 1 - examples.y
        if self.source is not None and self.target is not None:
            y = examples.y.masked_fill(examples.y == self.source, self.target)
        flipped = examples._replace(y=y)
        return [replace(shard, examples=flipped) for shard in shards]
