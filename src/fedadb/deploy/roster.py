"""A site's roster: the public keys of all sites, which people have exchanged without the server."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec

from fedadb.core.errors import BadInput
from fedadb.deploy import keys
from fedadb.deploy.site_keys import public_line, read_private_key, read_public_key
from fedadb.experiment.secure_aggregation import FEWEST, MOST
from fedadb.secagg.keys import canonical

ROSTER = "roster"  # the directory in a site's own, with NAME.pub for every site


class Roster(NamedTuple):
    """All sites of a federation, as one of them knows them."""

    name: str  # of this site
    own_key: ec.EllipticCurvePrivateKey
    public_keys: Mapping[str, ec.EllipticCurvePublicKey]

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits in 16 groups, which are the same at all sites."""
        lines = {name: public_line(key) for name, key in self.public_keys.items()}
        digits = hashlib.sha256(canonical(lines)).hexdigest()
        return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def read_roster(site: Path) -> Roster:
    """The roster in a site's directory; BadInput unless it has all that a site needs."""
    own_key, directory = read_private_key(site / keys.SITE_KEY), site / ROSTER
    public = {path.stem: read_public_key(path) for path in sorted(directory.glob("*.pub"))}
    lines = {name: public_line(key) for name, key in public.items()}
    names = [name for name, line in lines.items() if line == public_line(own_key.public_key())]
    if not FEWEST <= len(public) <= MOST:
        raise BadInput(
            f"{directory} has the public keys of {len(public)} sites, but secure aggregation is "
            f"for {FEWEST} to {MOST}: put the site.pub of every site there as NAME.pub"
        )
    if len(set(lines.values())) < len(lines):
        raise BadInput(f"{directory} has one public key under two names: each site makes its own")
    if not names:
        raise BadInput(
            f"{directory} does not have this site's own {keys.SITE_PUBLIC}: put it there as "
            "NAME.pub, under the name that it has at the server"
        )
    return Roster(names[0], own_key, public)
