"""The very partition that the code draws on which the paper builds (FedNTD, FedSOL).

The procedure is that of `dirichlet`. The numbers come from NumPy's older generator with one fixed
seed, so every run has the same partition, whatever its seed.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt

from fedadb.core.errors import BadInput
from fedadb.partition.protocol import Labels, Rows
from fedadb.roles import Role

SEED = 19940817
MAX_DRAWS = 200_000


@dataclass(frozen=True)
class ReferenceDirichlet:
    """Cuts each class as `dirichlet` does, with the random numbers of the reference code.

    ```python
    fedadb.Federation(clients=100, partition=fedadb.ReferenceDirichlet(alpha=0.1))
    ```
    """

    # α: the smaller, the fewer classes a client has
    alpha: Annotated[float, Gt(0), Role(shared=False, fixed_by_paper=False)] = 0.1
    min_rows: Annotated[int, Ge(1)] = 10  # the fewest rows that a client may have

    def rows(self, labels: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
        # The order of its calls is part of the result.
        reference = np.random.RandomState(SEED)
        pools = [np.flatnonzero(labels.y == c) for c in range(int(labels.y.max()) + 1)]
        for _ in range(MAX_DRAWS):
            parts = self._draw(pools, len(labels.y) / clients, clients, reference)
            for part in parts:
                reference.shuffle(part)
            if min(len(part) for part in parts) >= self.min_rows:
                return parts
        raise BadInput(
            f"reference: none of {MAX_DRAWS} draws at alpha = {self.alpha} gave each of {clients} "
            f"clients {self.min_rows} of the {len(labels.y)} rows; raise "
            "federation.partition.alpha, lower federation.clients or federation.partition.min_rows"
        )

    def _draw(
        self, pools: list[Rows], fair: float, clients: int, reference: np.random.RandomState
    ) -> list[Rows]:
        nothing: list[Rows] = [np.empty(0, dtype=np.int64)] * clients
        parts = nothing
        for pool in pools:
            reference.shuffle(pool)  # in place: a second draw shuffles what the first one left
            p = reference.dirichlet(np.full(clients, self.alpha))
            p *= [len(part) < fair for part in parts]
            if not p.sum() > 0:  # at so small an α, all shares are rounded to 0: a draw to reject
                return nothing
            cuts = (np.cumsum(p / p.sum()) * len(pool)).astype(np.int64)[:-1]
            pieces = np.split(pool, cuts)
            parts = [np.concatenate(both) for both in zip(parts, pieces, strict=True)]
        return parts
