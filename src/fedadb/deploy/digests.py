"""Digests by which a site recognises what a server orders, and the settings of an experiment."""

import hashlib
from collections.abc import Mapping
from typing import Any

from fedadb.deploy.messages import Request
from fedadb.secagg.keys import canonical


def order_digest(request: Request, received: bytes, memory: str = "") -> str:
    """The digest of what the server orders, to which masks are bound.

    It covers all that the server can choose. Otherwise it could single out one site by orders that
    leave the updates of all others at zero.

    Args:
        request: What the server asks for.
        received: The tensors of the message as they arrived.
        memory: The order by which the memory was trained with which the site begins.
    """
    order: dict[str, Any] = {"data": request.data, "last_used": request.last_used}
    order["round"] = request.round
    if memory:
        order["memory"] = memory
    return hashlib.sha256(canonical(order) + b"\0" + received).hexdigest()


def settings_digest(settings: Mapping[str, Any]) -> str:
    """The digest of shared settings that a site signs with its key."""
    return hashlib.sha256(canonical(settings)).hexdigest()
