"""Clients of one domain each, with some of the classes: a label space that does not match."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from fedadb.core.errors import BadInput
from fedadb.partition.protocol import Labels, Rows, deal

ATTEMPTS = 10_000


@dataclass(frozen=True)
class ByDomain:
    """As many clients in each domain, each with a random subset of the classes.

    Every class is held by somebody in every domain; its rows there are cut evenly among them.
    """

    classes: Annotated[int, Ge(1)] = 4  # of each client

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        if labels.domain is None:
            raise BadInput("federation.partition = 'domains': the dataset has none; pacs has")
        domains = int(labels.domain.max()) + 1
        if clients % domains:
            raise BadInput(
                f"federation.clients = {clients}: must be a multiple of the {domains} domains"
            )
        each = clients // domains
        hands: list[Rows] = []
        for d in range(domains):
            inside = labels.domain == d
            present = np.unique(labels.y[inside])
            held = self._held(len(present), each, rng)
            pools = [rng.permutation(np.flatnonzero(inside & (labels.y == c))) for c in present]
            holders = [np.flatnonzero(of_class) for of_class in held.T]
            hands += [rng.permutation(hand) for hand in deal(pools, holders, each)]
        if not all(len(hand) for hand in hands):
            raise BadInput(
                f"domains: {clients} clients are too many: one would have no rows; "
                "lower federation.clients"
            )
        return hands

    def _held(self, present: int, clients: int, rng: np.random.Generator) -> Rows:
        """Clients × classes, 1 where held; drawn until every class is."""
        size = self.classes
        if size > present:
            raise BadInput(f"federation.partition.classes = {size}: a domain has {present}")
        if clients * size >= present:
            for _ in range(ATTEMPTS):
                held = np.zeros((clients, present), dtype=np.int64)
                for k in range(clients):
                    held[k, rng.choice(present, size, replace=False)] = 1
                if held.any(0).all():
                    return held
        raise BadInput(
            f"domains: {clients} clients of a domain with {size} classes each do not hold all "
            f"{present}; raise federation.clients or federation.partition.classes"
        )
