"""An attack as a user writes it."""

from dataclasses import dataclass
from typing import Any

import fedadb


@dataclass(frozen=True)
class Lazy(fedadb.Attack):
    """An attacker sends back what it received."""

    clients: int

    def update(self, own: Any, rows: Any, total: Any, rng: Any) -> Any:
        return 0 * own
