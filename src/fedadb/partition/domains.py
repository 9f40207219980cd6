"""Clients with data of one domain each, and with some of its classes."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from fedadb.core.errors import BadInput
from fedadb.partition.protocol import Labels, Rows, distribute

MAX_DRAWS = 10_000


@dataclass(frozen=True)
class ByDomain:
    """Gives each client rows of one domain and of a random subset of its classes.

    All domains have the same number of clients. In each domain, every class has a client, and its
    rows are cut evenly among its clients. The dataset must have domains, as PACS has.

    ```python
    fedadb.Federation(clients=20, partition=fedadb.ByDomain(classes=4))
    ```
    """

    classes: Annotated[int, Ge(1)] = 4  # classes per client

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        if labels.domain is None:
            raise BadInput(
                "federation.partition = 'domains': the dataset has no domains; use pacs, or "
                "another partition"
            )
        domains = int(labels.domain.max()) + 1
        if clients % domains:
            raise BadInput(
                f"federation.clients = {clients}: must be a multiple of the {domains} domains"
            )
        parts: list[Rows] = []
        for d in range(domains):
            inside = labels.domain == d
            present = np.unique(labels.y[inside])
            receives = self._draw_classes(len(present), clients // domains, rng)
            pools = [rng.permutation(np.flatnonzero(inside & (labels.y == c))) for c in present]
            parts += distribute(pools, receives, rng)
        if not all(len(part) for part in parts):
            raise BadInput(
                f"domains: {clients} clients are too many, because one would have no rows; "
                "lower federation.clients"
            )
        return parts

    def _draw_classes(self, present: int, clients: int, rng: np.random.Generator) -> Rows:
        """Clients × classes, 1 where the client has the class; drawn until each class occurs."""
        size = self.classes
        if size > present:
            raise BadInput(
                f"federation.partition.classes = {size}: a domain has only {present} classes"
            )
        if clients * size >= present:
            for _ in range(MAX_DRAWS):
                chosen = np.zeros((clients, present), dtype=np.int64)
                for k in range(clients):
                    chosen[k, rng.choice(present, size, replace=False)] = 1
                if chosen.any(0).all():
                    return chosen
        raise BadInput(
            f"domains: {clients} clients per domain with {size} classes each do not cover all "
            f"{present} classes; raise federation.clients or federation.partition.classes"
        )
