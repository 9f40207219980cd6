"""What a differentially private run promises: ε at δ after a number of releases.

The numbers are those of Google's dp-accounting, which is imported when it is used.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from fedadb.core.errors import BadInput

# Of discretised privacy losses, if the noise multiplier is 0.5 or more. They are rounded up, so
# that ε is never too small.
INTERVAL = 1e-3
TOLERANCE = 1e-4  # of a noise multiplier that is found for an ε


@dataclass(frozen=True)
class Accountant:
    """Counts what releases cost, if each is the sum of a sample's updates with Gaussian noise.

    An update is at most S long, and the noise has the standard deviation `noise` · S.
    """

    clients: int  # K
    participation: float  # q
    # Whether each client takes part with probability q, by itself. Otherwise a round has a fixed
    # number of clients.
    poisson: bool

    @property
    def everyone(self) -> bool:
        return self.participation == 1

    @property
    def relation(self) -> str:
        """What the promise is about: two federations that differ in this way look alike."""
        if self.poisson or self.everyone:
            return "one client added or removed"
        return "one client replaced by another"

    def epsilon(self, noise: float, releases: int, delta: float) -> float:
        """ε after so many releases."""
        if self.everyone:
            return _gaussian(noise, releases, delta)
        if self.poisson:
            step = _poisson_step(noise, self.participation)
            return float(step.self_compose(releases).get_epsilon_for_delta(delta))
        # If another client takes a client's place, the sum moves by up to 2S, not S.
        orders, once = _fixed_size_step(noise / 2, self.clients, self._sampled)
        sampled, _ = _accounting().rdp.compute_epsilon(orders, releases * once, delta)
        return min(float(sampled), _gaussian(noise / 2, releases, delta))

    def noise_for(self, epsilon: float, releases: int, delta: float) -> float:
        """The smallest noise multiplier, up to a tolerance, that keeps ε after so many releases."""
        return _noise_for(self, epsilon, releases, delta)

    @property
    def _sampled(self) -> int:
        return int(self.clients * self.participation + 1e-9)


@cache  # it takes seconds, and a run asks for it more than once
def _noise_for(accountant: Accountant, epsilon: float, releases: int, delta: float) -> float:
    too_little, enough = 0.5, 1.0
    while accountant.epsilon(enough, releases, delta) > epsilon:
        too_little, enough = enough, 2 * enough
    while accountant.epsilon(too_little, releases, delta) <= epsilon:
        too_little, enough = too_little / 2, too_little
    while enough - too_little > TOLERANCE:
        middle = (too_little + enough) / 2
        if accountant.epsilon(middle, releases, delta) > epsilon:
            too_little = middle
        else:
            enough = middle
    return enough


def default_delta(clients: int) -> float:
    """K^−1.1: below one in the number of clients."""
    return float(clients**-1.1)


def _gaussian(noise: float, releases: int, delta: float) -> float:
    """ε of so many sums of everyone's updates, exactly."""
    return float(_accounting().get_epsilon_gaussian(noise / math.sqrt(releases), delta))


@cache
def _poisson_step(noise: float, q: float) -> Any:
    """The distribution of the privacy loss of one release."""
    distributions = _accounting().pld.privacy_loss_distribution
    # Losses grow with 1 / z², and so would the time; ε is in the hundreds then.
    interval = INTERVAL * max(1.0, 0.25 / noise**2)
    return distributions.from_gaussian_mechanism(
        noise, sampling_prob=q, value_discretization_interval=interval
    )


@cache
def _fixed_size_step(noise: float, clients: int, sampled: int) -> tuple[Any, Any]:
    """The orders of Rényi differential privacy, and what one release costs at each."""
    dp = _accounting()
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    event = dp.SampledWithoutReplacementDpEvent(clients, sampled, dp.GaussianDpEvent(noise))
    accountant.compose(event)
    return accountant.orders, accountant.rdp


def _accounting() -> Any:
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError as error:
        raise BadInput(
            "the filter dp needs a package that counts ε: pip install 'fedadb[privacy]'"
        ) from error
    return dp_accounting
