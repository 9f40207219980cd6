"""Attacks: what faulty clients of a simulation do, to find out what protects from them."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from fedadb.core.data import Shard
from fedadb.core.errors import BadInput
from fedadb.core.replies import Reply, update_of
from fedadb.core.stream import Stream
from fedadb.core.vector import Vector


class Moments(NamedTuple):
    """The updates of a round's honest clients: how many, their mean and standard deviation."""

    clients: int
    mean: Tensor
    sd: Tensor  # of each coordinate, with clients − 1 as denominator; 0 of one update


class Attack:
    """A frozen dataclass whose fields are the settings; `clients` says who attacks.

    An attacker trains as the others do, on what `poison` makes of its rows. What it sends in place
    of its update Δ = w_k − u is up to `update` or, if attackers act together and know the honest
    updates of the round, to `common_update`. Updates are in float64. What else an algorithm uploads
    stays as it is.

    ```python
    @dataclass(frozen=True)
    class Lazy(fedadb.Attack):
        clients: int

        def update(self, own, rows, total, rng):
            return 0 * own
    ```
    """

    clients: Any  # how many, which the seed draws; or a list of their numbers

    # Whether attackers send `common_update`. Then the server holds all replies of a round.
    acts_together: ClassVar[bool] = False

    def poison(self, shards: Sequence[Shard]) -> Sequence[Shard]:
        """What the attackers train on, given their rows."""
        return shards

    def update(self, own: Tensor, rows: int, total: int, rng: Stream) -> Tensor:
        """What an attacker sends in place of its own update.

        It has so many rows, of the total of this round's clients.
        """
        return own

    def common_update(self, honest: Moments, attackers: int) -> Tensor:
        """What all attackers of the round send, of which there are so many."""
        raise NotImplementedError


def attackers_of(attack: Attack, clients: int, rng: Stream) -> frozenset[int]:
    """The attackers among the clients 0, 1, … of a federation."""
    if isinstance(attack.clients, int):
        drawn = rng.at("attackers").numpy().permutation(clients)
        return frozenset(drawn[: attack.clients].tolist())
    return frozenset(attack.clients)


def require_known_attackers(attack: Attack, clients: int) -> None:
    """Raise BadInput unless the attackers are clients, and some clients are honest."""
    given = attack.clients
    if isinstance(given, int):
        if given >= clients:
            raise BadInput(f"attack.clients = {given}: must be fewer than the {clients} clients")
        return
    for k in given:
        if k >= clients:
            raise BadInput(
                f"attack.clients = {list(given)}: there is no client {k}; the clients are 0 to "
                f"{clients - 1}"
            )
    if len(set(given)) != len(given):
        raise BadInput(f"attack.clients = {list(given)}: names a client twice")
    if not 0 < len(given) < clients:
        raise BadInput(
            f"attack.clients = {list(given)}: must name at least one client, and not all {clients}"
        )


def poisoned(attack: Attack, shards: Sequence[Shard], attackers: frozenset[int]) -> list[Shard]:
    """What each client of a federation trains on, given the rows of each."""
    after = list(shards)
    order = sorted(attackers)
    for k, shard in zip(order, attack.poison([shards[k] for k in order]), strict=True):
        after[k] = shard
    return after


def moments(replies: Sequence[Reply[Any]], u: Vector) -> Moments:
    """The moments of the replies' updates, computed with one update at a time."""
    mean, squares = (torch.zeros_like(u.flat, dtype=torch.float64) for _ in range(2))
    for reply in replies:
        mean += update_of(reply, u)
    mean /= len(replies)
    for reply in replies:
        squares += (update_of(reply, u) - mean).square()
    return Moments(len(replies), mean, (squares / max(len(replies) - 1, 1)).sqrt())
