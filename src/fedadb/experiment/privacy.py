"""An experiment that is differentially private: what it must not do, and what it records."""

from typing import TYPE_CHECKING, Any, NamedTuple

from fedadb.algorithms.feddyn import FedDyn
from fedadb.core.errors import BadInput
from fedadb.core.filter import Compressor
from fedadb.experiment.settings import Deployment
from fedadb.filters.accounting import Accountant
from fedadb.filters.dp import DP
from fedadb.filters.mechanism import Mechanism, MechanismState, NoiseSource

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment

SIMULATED = "simulated: no guarantee"  # the seed gives away the noise and who takes part


class Privacy(NamedTuple):
    """How an experiment is differentially private."""

    dp: DP
    accountant: Accountant
    rounds: int

    @property
    def delta(self) -> float:
        return self.dp.delta_of(self.accountant.clients)

    @property
    def noise(self) -> float:
        return self.dp.noise_of(self.accountant, self.rounds)

    def mechanism(self, source: NoiseSource) -> Mechanism:
        return self.dp.mechanism(self.accountant, self.rounds, source)

    def record(self, state: MechanismState, simulated: bool) -> dict[str, Any]:
        """What a round's record says about privacy."""
        epsilon = self.accountant.epsilon(self.noise, int(state.releases), self.delta)
        promise = self.accountant.relation
        return {
            "epsilon": epsilon,
            "delta": self.delta,
            "noise_multiplier": self.noise,
            "clip_norm": float(state.norm),  # of the next round
            "privacy": f"{promise}; {SIMULATED}" if simulated else promise,
        }


def privacy_of(e: "Experiment") -> Privacy | None:
    """None if the experiment is not differentially private."""
    for one in e.filter:
        if isinstance(one, DP):
            federation = e.federation
            poisson = federation.sampling == "poisson"
            accountant = Accountant(federation.clients, federation.participation, poisson)
            return Privacy(one, accountant, e.rounds)
    return None


def check_privacy(e: "Experiment") -> None:
    """Raise BadInput if something that the experiment does is not differentially private."""
    if not any(isinstance(one, DP) for one in e.filter):
        return
    _check_filters(e)
    if isinstance(e.algorithm, FedDyn) and e.algorithm.variant == "official":
        raise BadInput(
            "filter: DP keeps clients' numbers of rows secret, but FedDyn's variant 'official' "
            "needs them; drop the filter, or use variant = 'reference'"
        )
    per_client = {
        "record_clients": ("evaluates the models of single clients", e.record_clients),
        "personal": ("evaluates the models of single clients", e.personal),
        "validation": ("evaluates on clients' rows", e.validation != 0),
        "deployment.evaluate": ("evaluates on sites' rows", e.deployment.evaluate != "server"),
        "deployment.rows": ("counts clients by their rows", bool(e.deployment.rows)),
        "deployment.max_share": (
            "counts clients by their rows",
            e.deployment.max_share != Deployment().max_share,
        ),
    }
    for setting, (what, on) in per_client.items():
        if on:
            raise BadInput(
                f"{setting} {what}, which is not differentially private; drop it, or the filter dp"
            )


def _check_filters(e: "Experiment") -> None:
    first, *others = [i for i, one in enumerate(e.filter) if isinstance(one, DP)]
    if others:
        raise BadInput("filter: DP is there twice; drop one")
    for i, one in enumerate(e.filter):
        name = type(one).__name__
        if i != first and one.compares_replies:
            raise BadInput(
                f"filter: what {name} does with a reply depends on the others, so that one client "
                f"could change the sum by more than DP allows; drop {name} or DP"
            )
        if i > first and not isinstance(one, Compressor):
            raise BadInput(f"filter: DP must clip what {name} leaves; put DP after {name}")


def check_private_federation(e: "Experiment") -> None:
    """Raise BadInput if the way in which clients take part allows no promise."""
    privacy, federation = privacy_of(e), e.federation
    if privacy is None:
        return
    if privacy.delta >= 1:
        raise BadInput("filter: DP promises nothing about one client alone; give delta, below 1")
    if federation.sampling == "reference" and not privacy.accountant.everyone:
        raise BadInput(
            "federation.sampling = 'reference' draws the same clients in every run, so that DP "
            "cannot count on chance; use 'poisson'"
        )
    if privacy.dp.noise is not None:  # what follows from epsilon takes seconds: checked at start
        privacy.dp.check_quantile(privacy.dp.noise, federation.clients * federation.participation)
