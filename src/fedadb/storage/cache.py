"""The user's cache directory."""

from pathlib import Path

import pooch


def cache_directory() -> Path:
    """The directory for files that can be recreated."""
    return Path(pooch.os_cache("fedadb"))
