"""HOST:PORT, as it is typed."""

import re

from fedadb.core.errors import BadInput


def read_address(given: str, option: str) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/]+):(\d+)", given)
    if not found or not 0 < int(found[2]) < 65536:
        raise BadInput(f"{option} {given}: must be HOST:PORT, such as fed.example.org:8443")
    return found[1].strip("[]"), int(found[2])
