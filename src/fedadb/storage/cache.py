"""The user's cache directory."""

from pathlib import Path

import pooch


def cache_directory() -> Path:
    """The directory for files that can be recreated."""
    return Path(pooch.os_cache("fedadb"))


def make_directory(path: Path) -> None:
    """Create a directory if it is missing; in the cache, which only its user can write to."""
    cache = cache_directory()
    if path.is_relative_to(cache):
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.mkdir(parents=True, exist_ok=True)
