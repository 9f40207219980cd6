"""The form of the data that a server states: with secure aggregation, one per experiment.

A site refuses a form that its data do not fit. A server that may try several could find out in this
way which classes one site has.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedadb.deploy.agreement import shared_settings
from fedadb.deploy.digests import settings_digest
from fedadb.deploy.refusals import NOT_ALLOWED, Refusal
from fedadb.experiment.config import Experiment
from fedadb.storage.files import read_json, write_atomically

STATED = "stated.json"  # file in the site's state: the digest of the form by that of the experiment
DIGESTS = TypeAdapter(dict[str, str])


def require_same_data(state: Path, e: Experiment, data: Mapping[str, Any]) -> None:
    """Raise a Refusal if the server stated another form of the data before.

    Args:
        state: The site's directory with one subdirectory per run.
        e: This site's copy of the experiment; with other classes in it, another form is right.
        data: The form that the server states, as a table.
    """
    own = {"classes": e.deployment.classes, "shape": e.deployment.shape}
    here, stated = settings_digest({**shared_settings(e), **own}), settings_digest(data)
    path = state / STATED
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
