"""What secure aggregation excludes: all that needs more than a sum over a fixed set of clients."""

import importlib.util
from typing import TYPE_CHECKING, Any

from fedadb.core.algorithm import upload_kind
from fedadb.core.errors import BadInput
from fedadb.core.filter import Compressor
from fedadb.core.vector import Weights
from fedadb.experiment import validation
from fedadb.experiment.settings import Deployment, Federation
from fedadb.filters.dp import DP

if TYPE_CHECKING:
    from fedadb.experiment.config import Experiment

SETTING = "deployment.secure_aggregation"
FEWEST, MOST = 3, 50  # clients: with two, each learns the other's update from the new model
# Settings about single replies, and the values that switch them off. Secure aggregation does that
# for defaults; only a value that somebody chose is refused.
SINGLE_REPLIES: dict[str, Any] = {
    "median_bound": None,
    "max_share": 1.0,
    "min_replies": None,
    "rows": {},
}


def deployment_table(deployment: Deployment) -> dict[str, Any]:
    """The settings as a table.

    Without secure aggregation its keys are left out: runs had their names before there was any.
    """
    table = validation.to_table(deployment)
    if deployment.secure_aggregation:
        return table
    return {key: value for key, value in table.items() if not key.startswith("secure_")}


def require_only_sums(e: "Experiment") -> None:
    """Raise BadInput if anything in the experiment needs more than the mean of all weights."""
    _require_mean_only(e)
    for one in e.filter:
        name = type(one).__name__
        if isinstance(one, Compressor):
            raise BadInput(
                f"filter: {name} compresses what clients send, but masked words cannot be "
                f"compressed; drop the filter or {SETTING}"
            )
        if one.needs_single_replies:
            raise BadInput(
                f"filter: {one} needs single replies, but with {SETTING} the server has only their "
                "sum; drop one of the two"
            )
    if e.attack is not None:
        raise BadInput(
            "attack: attackers replace single replies, which are masked with "
            f"{SETTING}; drop one of the two"
        )
    if e.record_clients:
        raise BadInput(
            f"record_clients: with {SETTING} the server has no client's model; drop one of the two"
        )
    for key, off in SINGLE_REPLIES.items():
        value = getattr(e.deployment, key)
        if value not in (off, getattr(Deployment(), key)):
            raise BadInput(
                f"deployment.{key} = {value}: is about single replies, but with {SETTING} the "
                "server has only the sum over all sites; drop one of the two"
            )


def counts_alike(e: "Experiment") -> bool:
    """Whether all clients count alike in the mean, and not by their rows."""
    private = any(isinstance(one, DP) for one in e.filter)  # no client may count for more
    return private or e.algorithm.mean_weights == "uniform"


def _require_mean_only(e: "Experiment") -> None:
    name, kind = e.algorithm.name, upload_kind(e.algorithm)
    if kind is not None and kind is not Weights:
        others = [part for part in getattr(kind, "_fields", ()) if part != "w"]
        raise BadInput(
            f"algorithm: clients of {name} also send {', '.join(others)}, but {SETTING} sums "
            "weights only; drop it, or choose a method that sends weights only"
        )
    if e.algorithm.needs_single_replies or e.algorithm.mean_weights is None:
        official = "" if name != "FedDyn" else ", or set algorithm.variant = 'official'"
        raise BadInput(
            f"algorithm: {name} needs more than the mean of the clients' weights, but {SETTING} "
            f"gives that alone; drop it, or choose another method{official}"
        )


def require_all_clients(federation: Federation) -> None:
    """Raise BadInput unless all clients take part in every round, and are neither too few nor many.

    The difference of two sums over different clients would be one client's update.
    """
    clients = federation.clients
    if federation.sampled != clients:
        raise BadInput(
            f"federation.participation = {federation.participation:g}: with {SETTING} all clients "
            "take part in every round; set it to 1, or drop secure aggregation"
        )
    if not FEWEST <= clients <= MOST:
        raise BadInput(
            f"federation.clients = {clients}: {SETTING} is for {FEWEST} to {MOST}; change the "
            "number, or drop it"
        )


def require_cryptography() -> None:
    """Raise BadInput unless the package for keys and masks is installed."""
    if importlib.util.find_spec("cryptography") is None:
        raise BadInput(f"{SETTING} needs a package: `pip install 'fedadb[federation]'`")
