"""Label skew by the Dirichlet procedure ("LDA") of the reference code (FedNTD, FedSOL).

One class after the other is cut among the clients, in proportions drawn from Dirichlet(α). A client
that already has its fair share, N/K rows, receives no more, unless `limit` says otherwise. A draw
that leaves some client with too few rows is rejected as a whole. Neither numpy nor scipy draws
proportions under such bounds.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt

from fedadb.core.errors import BadInput
from fedadb.partition.protocol import Labels, Rows
from fedadb.roles import Added, Role

MAX_DRAWS = 200_000  # CIFAR-10 at K = 100, α = 0.05 takes 16 to 40 thousand
MAX_SHARES = 20_000_000  # shares in all draws together: seconds, even with very many clients
SHARES_AT_ONCE = 25_600  # 256 draws for 100 clients


@dataclass(frozen=True)
class Dirichlet:
    """Cuts each class among the clients in proportions drawn from a Dirichlet distribution.

    ```python
    fedadb.Federation(clients=100, partition=fedadb.Dirichlet(alpha=0.1))
    ```
    """

    # α: the smaller, the fewer classes a client has
    alpha: Annotated[float, Gt(0), Role(shared=False, fixed_by_paper=False)] = 0.1
    min_rows: Annotated[int, Ge(1)] = 10  # the fewest rows that a client may have
    # A client with this many times its fair share of rows, N/K, receives no more; none: any number.
    limit: Annotated[Annotated[float, Ge(1)] | None, Added()] = 1.0

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        totals = np.bincount(labels.y)
        counts = self._draw_counts(totals, clients, rng)
        parts: list[list[Rows]] = [[] for _ in range(clients)]
        for c, n in enumerate(counts):
            shuffled = rng.permutation(np.flatnonzero(labels.y == c))
            for k, part in enumerate(np.split(shuffled, n.cumsum()[:-1])):
                parts[k].append(part)
        return [rng.permutation(np.concatenate(part)) for part in parts]

    def _draw_counts(self, totals: Rows, clients: int, rng: np.random.Generator) -> Rows:
        """The number of rows of class c that client k receives, classes × clients.

        At small α most draws are rejected, so many are made at a time, and of counts alone.
        """
        if clients * self.min_rows > totals.sum():
            raise BadInput(
                f"dirichlet: {clients} clients with at least {self.min_rows} rows each need "
                f"{clients * self.min_rows} rows, and there are {totals.sum()}; "
                "lower federation.clients or federation.partition.min_rows"
            )
        draws = min(MAX_DRAWS, max(100, MAX_SHARES // clients))
        at_once = max(1, SHARES_AT_ONCE // clients)
        for _ in range(0, draws, at_once):
            counts = self._draw_many(at_once, totals, clients, rng)
            accepted = counts.sum(1).min(1) >= self.min_rows
            if accepted.any():
                first: Rows = counts[accepted.argmax()]
                return first
        raise BadInput(
            f"dirichlet: none of {draws} draws at alpha = {self.alpha} gave each of {clients} "
            f"clients {self.min_rows} of the {totals.sum()} rows; raise "
            "federation.partition.alpha, lower federation.clients or federation.partition.min_rows"
        )

    def _draw_many(self, draws: int, totals: Rows, clients: int, rng: np.random.Generator) -> Rows:
        """Several independent draws, draws × classes × clients."""
        most = np.inf if self.limit is None else self.limit * totals.sum() / clients
        counts = np.zeros((draws, len(totals), clients), dtype=np.int64)
        size = np.zeros((draws, clients), dtype=np.int64)
        for c, n in enumerate(totals):
            # Normalised gamma variates are Dirichlet, also over the clients that remain.
            open_ = size < most
            p = rng.standard_gamma(self.alpha, (draws, clients)) * open_
            underflowed = p.sum(1) == 0  # at so small an α, one client receives the whole class
            if underflowed.any():
                u = rng.random((int(underflowed.sum()), clients)) * open_[underflowed]
                p[underflowed] = u == u.max(1, keepdims=True)
            ends = (p.cumsum(1) / p.sum(1, keepdims=True) * n).astype(np.int64)
            ends[:, -1] = n
            counts[:, c] = np.diff(ends, prepend=0, axis=1)
            size += counts[:, c]
        return counts
