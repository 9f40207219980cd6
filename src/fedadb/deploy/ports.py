"""Network addresses, and ports of this machine."""

import re
import socket
from contextlib import suppress

from fedadb.core.errors import BadInput


def parse_address(text: str, option: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; `option` names the command line's option in errors."""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/]+):(\d+)", text)
    if not match or not 0 < int(match[2]) < 65536:
        raise BadInput(f"{option} {text}: must be HOST:PORT, such as fed.example.org:8443")
    return match[1].strip("[]"), int(match[2])


def require_free_port(host: str, port: int, option: str) -> None:
    """Raise BadInput if this machine cannot listen there."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{option} {host}:{port}: {reason}; choose another") from error


def free_port() -> int:
    """A port of 127.0.0.1 that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def here(host: str) -> str:
    """An address at which this machine reaches a process of its own that listens at the host."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # all addresses of this machine


def is_open(host: str, port: int) -> bool:
    """Whether a process listens there."""
    with suppress(OSError), socket.create_connection((here(host), port), 1):
        return True
    return False
