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
    sites: Path, accept: Callable[[Keys], None], log: Callable[[str], None]
) -> None:
    """Pass the keys of the directory on whenever they change; until cancelled."""
    known: dict[bytes, str] | None = None
    while True:
        try:
            keys = read_keys(sites)
        except (OSError, ValueError):  # one of them is being replaced
            await asyncio.sleep(LOOK_SECONDS)
            continue
        found = {key: name for key, (name, _) in keys.items()}
        if found != known:
            known = found
            accept(keys)
            log(f"the accepted sites are {', '.join(sorted(found.values())) or 'none'}")
        await asyncio.sleep(LOOK_SECONDS)


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
