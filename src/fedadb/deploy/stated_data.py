"""The form of the data that a server states: with secure aggregation, one per experiment.

A site refuses a form that its data do not fit. A server that may try several could find out in this
way which classes one site has.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedadb.deploy.refusals import NOT_ALLOWED, Refusal
from fedadb.deploy.secure_site import settings_digest
from fedadb.storage.files import read_json, write_atomically

STATED = "stated.json"  # file in the site's state: the digest of the form by that of the experiment
DIGESTS = TypeAdapter(dict[str, str])


def require_same_data(state: Path, settings: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Raise a Refusal if the server stated another form of the data for these settings before."""
    path, here, stated = state / STATED, settings_digest(settings), settings_digest(data)
    known = read_json(path, DIGESTS) if path.exists() else {}
    if known.get(here, stated) != stated:
        raise Refusal(
            NOT_ALLOWED,
            "the server stated another form of the data for this experiment before; if it should "
            f"have changed, delete {STATED} in this site's state",
            travels=True,
        )
    if here not in known:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, DIGESTS.dump_json(known | {here: stated}))
