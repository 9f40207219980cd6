"""What the sites of a run with secure aggregation agreed on when it began."""

from collections.abc import Collection
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from fedadb.deploy.refusals import NOT_ALLOWED, Refusal
from fedadb.storage.files import read_json

SECAGG = "secagg"  # directory in the run's memory
AGREED = "agreed.json"


class Agreed(BaseModel):
    """What a run began with."""

    model_config = ConfigDict(strict=True, extra="forbid")

    keys: dict[str, str]  # the public key of each site, in hexadecimal digits
    rows: int  # of this site
    rounds: int  # of the run
    seed: int | None = None  # of the experiment


AGREED_FORM = TypeAdapter(Agreed)


def require_new_seed(state: Path, names: Collection[str], rows: int, seed: int) -> None:
    """Raise a Refusal if a run with this seed had other sites, or other rows of this site.

    With the same seed, all that has not changed trains from the same weights in the same order:
    the difference of the two sums would be one site's update.
    """
    for path in state.glob(f"*/{SECAGG}/{AGREED}"):
        earlier = read_json(path, AGREED_FORM)
        if earlier.seed != seed:
            continue
        if earlier.keys.keys() != set(names):
            raise Refusal(
                NOT_ALLOWED,
                "an earlier run with this seed had other sites, and the server could subtract "
                f"its sums: set another seed than {seed} at the server and all sites",
                travels=True,
            )
        if earlier.rows != rows:
            raise Refusal(
                NOT_ALLOWED,
                f"this site had {earlier.rows} rows in an earlier run with this seed, not "
                f"{rows}, and the server could subtract its sums: set another seed than {seed} "
                "at the server and all sites",
            )
