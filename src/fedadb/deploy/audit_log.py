"""The audit logs as an auditor reads them, who need not have Flower or torch."""

from typing import NamedTuple

from fedadb.core.errors import Fault
from fedadb.storage.hash_chain import Chain

AUDIT = "audit.jsonl"  # file in the directory of a server or a site
SENT, RECEIVED, REFUSED = "sent", "received", "refused"  # events of a server
ASKED, ANSWERED = "asked", "answered"  # and of a site, beside `refused`


class Compared(NamedTuple):
    """How many replies of a site two logs have."""

    both: int
    site_only: int


def compare_answers(server: Chain, site: Chain, name: str) -> Compared:
    """Compare the replies of a site in both logs; a Fault if the server has one that it never sent.

    The site may have sent replies that the server's log does not have: the last one may be under
    way, and the server does not wait for late ones.
    """
    # A site's log comes from somebody else: its entries may have any fields.
    answered = [entry.get("sha256") for entry in site.entries if entry["event"] == ANSWERED]
    received = [
        entry
        for entry in server.entries
        if entry["event"] == RECEIVED and entry.get("site") == name
    ]
    if not received:
        raise Fault(f"the server's log has no reply from {name}")
    for entry in received:
        if entry.get("sha256") not in answered:
            raise Fault(
                f"entry {entry['entry']} of the server's log is a reply of {name} that the site's "
                f"log does not have ({entry.get('what')})"
            )
    known = {entry.get("sha256") for entry in received}
    return Compared(len(received), sum(digest not in known for digest in answered))
