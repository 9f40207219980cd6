"""Label skew by the Dirichlet ("LDA") procedure of FedNTD and its descendants.

Classes are dealt out one after the other. A class is cut among the clients in proportions drawn
from Dirichlet(α); a client that already holds its fair share N/K receives no more. A draw in
which some client ends up with too few rows is rejected whole.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt

from fedadb.core.errors import BadInput
from fedadb.partition.protocol import Labels, Rows
from fedadb.roles import Role

ATTEMPTS = 200_000  # CIFAR-10 at K = 100, α = 0.05 takes 16 to 40 thousand
WORK = 20_000_000  # shares drawn before giving up: seconds, also with very many clients
AT_ONCE = 25_600  # shares drawn side by side: 256 attempts for 100 clients


@dataclass(frozen=True)
class Dirichlet:
    """The smaller α, the fewer classes a client holds."""

    alpha: Annotated[float, Gt(0), Role(shared=False, fixed_by_paper=False)] = 0.1  # α
    min_rows: Annotated[int, Ge(1)] = 10  # of each client

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        totals = np.bincount(labels.y)
        counts = self._counts(totals, clients, rng)
        parts: list[list[Rows]] = [[] for _ in range(clients)]
        for c, n in enumerate(counts):
            shuffled = rng.permutation(np.flatnonzero(labels.y == c))
            for k, part in enumerate(np.split(shuffled, n.cumsum()[:-1])):
                parts[k].append(part)
        return [rng.permutation(np.concatenate(part)) for part in parts]

    def _counts(self, totals: Rows, clients: int, rng: np.random.Generator) -> Rows:
        """How many rows of class c client k receives, classes × clients.

        Attempts are made on counts alone and many at a time: at small α most are rejected.
        """
        if clients * self.min_rows > totals.sum():
            raise BadInput(
                f"dirichlet: {clients} clients with at least {self.min_rows} rows each need "
                f"{clients * self.min_rows} rows, and there are {totals.sum()}; "
                "lower federation.clients or federation.partition.min_rows"
            )
        tries, at_once = min(ATTEMPTS, max(100, WORK // clients)), max(1, AT_ONCE // clients)
        for _ in range(0, tries, at_once):
            attempts = self._attempts(at_once, totals, clients, rng)
            accepted = attempts.sum(1).min(1) >= self.min_rows
            if accepted.any():
                chosen: Rows = attempts[accepted.argmax()]
                return chosen
        raise BadInput(
            f"dirichlet: none of {tries} draws at alpha = {self.alpha} gave each of {clients} "
            f"clients {self.min_rows} of the {totals.sum()} rows; raise "
            "federation.partition.alpha, lower federation.clients or federation.partition.min_rows"
        )

    def _attempts(
        self, attempts: int, totals: Rows, clients: int, rng: np.random.Generator
    ) -> Rows:
        """Attempts × classes × clients."""
        fair = totals.sum() / clients
        counts = np.zeros((attempts, len(totals), clients), dtype=np.int64)
        size = np.zeros((attempts, clients), dtype=np.int64)
        for c, n in enumerate(totals):
            # Normalised gamma variates are Dirichlet; what is masked need not be drawn again.
            open_ = size < fair
            p = rng.standard_gamma(self.alpha, (attempts, clients)) * open_
            lost = p.sum(1) == 0  # every share underflowed: at so small an α, one client has all
            if lost.any():
                luck = rng.random((int(lost.sum()), clients)) * open_[lost]
                p[lost] = luck == luck.max(1, keepdims=True)
            ends = (p.cumsum(1) / p.sum(1, keepdims=True) * n).astype(np.int64)
            ends[:, -1] = n
            counts[:, c] = np.diff(ends, prepend=0, axis=1)
            size += counts[:, c]
        return counts
