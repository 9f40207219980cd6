"""Files that the proxy reads again while it runs: the sites' keys, and its own certificate.

So a site is accepted or revoked, and a certificate is renewed, without a restart.
"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from fedadb.deploy.node_requests import Keys, read_keys

LOOK_SECONDS = 1.0  # between two looks at the files


async def follow_keys(
    sites: Path, accepted: Keys, accept: Callable[[Keys], None], log: Callable[[str], None]
) -> None:
    """Pass the keys of the directory on whenever they are not the accepted ones; until cancelled.

    Args:
        sites: The directory.
        accepted: The keys that are accepted already.
        accept: Called with all keys after a change.
        log: Called with a line after a change.
    """
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        keys = read_keys(sites)
        if _names(keys) != _names(accepted):
            accepted = keys
            accept(keys)
            log(f"the accepted sites are {', '.join(sorted(_names(keys).values())) or 'none'}")


def _names(keys: Keys) -> dict[bytes, str]:
    """The name of the site that has a key."""
    return {key: name for key, (name, _) in keys.items()}


async def follow_certificate(
    certificate: Path,
    key: Path,
    context: ssl.SSLContext,
    loaded: bytes,
    log: Callable[[str], None],
) -> None:
    """Let new connections have the certificate of the files whenever it changes; until cancelled.

    Open connections keep the one that they have.

    Args:
        certificate: The file of the certificate.
        key: The file of its private key.
        context: That of the new connections.
        loaded: The certificate that the context has, as the file had it.
        log: Called with a line after a change.
    """
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            found = certificate.read_bytes()
            if found == loaded:
                continue
            # In a context of its own first: a certificate without its key would ruin ours.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            context.load_cert_chain(certificate, key)
        except OSError:  # one of the files is not replaced yet; ssl.SSLError is an OSError too
            continue
        loaded = found
        log("new connections have the new certificate")
