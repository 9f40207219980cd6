"""Client-level differential privacy: McMahan et al., "Learning Differentially Private Recurrent
Language Models", ICLR 2018, arXiv:1710.06963.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, Lt

from fedadb.core.algorithm import Round
from fedadb.core.errors import BadInput
from fedadb.core.filter import Filter
from fedadb.core.replies import Reply
from fedadb.core.vector import Vector
from fedadb.filters.accounting import Accountant, default_delta
from fedadb.filters.clip import clipped
from fedadb.filters.mechanism import RATE, Mechanism, NoiseSource

FIRST_NORM = 0.1  # S in the first round, if it follows a quantile


@dataclass(frozen=True)
class DP(Filter):
    """The server replaces the updates of a round by their noisy sum over a constant number.

    Each update is first clipped to the norm S, so that no client changes the sum by more than S.
    The noise has the standard deviation z · S.

    ```python
    federation = {"clients": 1000, "participation": 0.05, "sampling": "poisson"}
    fedadb.Experiment(federation=federation, filter=[fedadb.DP(norm=1.0, epsilon=8.0)])
    fedadb.Experiment(federation=federation, filter=[fedadb.DP(quantile=0.5, noise=1.0)])
    ```
    """

    # S: largest norm of an update; that of the first round, if quantile is given
    norm: Annotated[float, Gt(0)] | None = None
    # S follows this quantile of the norms of updates, such as 0.5
    quantile: Annotated[float, Gt(0), Lt(1)] | None = None
    rate: Annotated[float, Gt(0), Le(1)] | None = None  # by which S follows it; none: 0.2
    # z: standard deviation of the noise, in S; outside of these bounds ε says nothing, or cannot be
    # computed
    noise: Annotated[float, Ge(0.1), Le(1000)] | None = None
    # ε after all rounds; given in place of the noise, it decides on z
    epsilon: Annotated[float, Ge(0.01), Le(100)] | None = None
    delta: Annotated[float, Ge(1e-12), Lt(1)] | None = None  # δ of the guarantee; none: K^−1.1

    replaces_replies = True

    def __post_init__(self) -> None:
        if self.norm is None and self.quantile is None:
            raise BadInput("norm is missing; give norm, or quantile")
        if self.rate is not None and self.quantile is None:
            raise BadInput(f"rate = {self.rate}: needs quantile, which the norm then follows")
        if self.noise is None and self.epsilon is None:
            raise BadInput("epsilon is missing; give epsilon, or noise")
        if self.noise is not None and self.epsilon is not None:
            raise BadInput(f"noise = {self.noise}: epsilon is given too; give one of them")

    @property
    def needs_single_replies(self) -> bool:
        return self.quantile is not None  # their norms

    @property
    def compares_replies(self) -> bool:
        return True

    def outgoing(
        self, reply: Reply[Any], memory: Any, u: Vector, round: Round
    ) -> tuple[Reply[Any], Any]:
        """A client clips its own update, if it knows the norm; the server always does it again."""
        if self.norm is None or self.quantile is not None:
            return reply, memory
        return clipped(reply, u, self.norm), memory

    def delta_of(self, clients: int) -> float:
        """δ in a federation of so many clients."""
        return default_delta(clients) if self.delta is None else self.delta

    def noise_of(self, accountant: Accountant, rounds: int) -> float:
        """z: the given one, or the smallest that keeps ε over all rounds."""
        if self.noise is not None:
            return self.noise
        assert self.epsilon is not None, "one of them is given"
        return accountant.noise_for(self.epsilon, rounds, self.delta_of(accountant.clients))

    def check_quantile(self, noise: float, expected: float) -> None:
        """Raise BadInput if S cannot follow a quantile with so few clients in a round."""
        most = expected / 10
        if self.quantile is not None and noise >= most:
            raise BadInput(
                f"filter: DP can follow a quantile only with a noise multiplier below {most:g}, a "
                f"tenth of the {expected:g} clients that a round has on average, and it is "
                f"{noise:.4g}; give norm and no quantile, or more clients"
            )

    def mechanism(self, accountant: Accountant, rounds: int, source: NoiseSource) -> Mechanism:
        """What the server does in each round."""
        noise = self.noise_of(accountant, rounds)
        expected = accountant.clients * accountant.participation
        self.check_quantile(noise, expected)
        return Mechanism(
            FIRST_NORM if self.norm is None else self.norm,
            noise,
            expected,
            source,
            self.quantile,
            RATE if self.rate is None else self.rate,
        )
