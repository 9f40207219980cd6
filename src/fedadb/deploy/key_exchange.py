"""The server's part of the exchange of keys before a run with secure aggregation.

The server passes on public keys. It cannot replace one, because each site checks all of them
against its own roster.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from flwr.app import RecordDict

from fedadb.core.errors import Fault
from fedadb.deploy.all_sites import add_words, ask_all, masked_words
from fedadb.deploy.delivery import send_and_wait
from fedadb.deploy.key_offers import Offer
from fedadb.deploy.messages import END, KEY, NO_ROUND, ROSTER, make_content, table_in
from fedadb.deploy.participants import Participants
from fedadb.secagg.fixed_point import LARGEST, Words


def exchange_keys(sites: Participants, on_status: Callable[[str], None]) -> int:
    """Let all sites agree on their keys; returns the number of rows of all together.

    It may be repeated, and is after a restart: a site answers as before.
    """
    ask = partial(ask_all, sites, on_status=on_status)
    content = make_content(sites.request(-1, NO_ROUND))
    offers = ask(KEY, "keys of the run", lambda k: content, _offer)
    keys = dict(zip(sites.names, offers, strict=True))
    content = make_content({**sites.request(-1, NO_ROUND), "keys": keys})
    answers = ask(ROSTER, "keys of all sites", lambda k: content, _agreement)
    if len({digest for digest, _ in answers}) > 1:
        raise Fault("the sites do not have the same keys of all sites: compare their versions")
    rows = int(add_words([word for _, word in answers])[0])
    if not len(sites.names) <= rows <= LARGEST:
        raise Fault(f"the sites' numbers of rows add up to {rows}, which is not possible")
    return rows


def end_run(sites: Participants) -> None:
    """Tell all sites that are connected that they can delete their keys of the run."""
    connected = sites.connected()
    content = make_content(sites.request(-1, NO_ROUND))
    nodes = [connected[name] for name in sites.names if name in connected]
    seconds = sites.experiment.deployment.reconnect
    send_and_wait(sites.grid, dict.fromkeys(nodes, content), END, "", seconds)


def _offer(reply: RecordDict) -> dict[str, Any]:
    try:
        return Offer.model_validate(table_in(reply)).model_dump()
    except ValueError as error:
        raise Fault("its key for the run cannot be read") from error


def _agreement(reply: RecordDict) -> tuple[str, Words]:
    return str(table_in(reply).get("digest")), masked_words(reply, 1)
