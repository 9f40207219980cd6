"""What a running server tells its operator besides the run.

Sites were added or removed, or a certificate ends soon.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fedadb.deploy import keys

SITES_SECONDS = 2.0  # between two looks for sites that were added or removed
WARNING_SECONDS = 86_400.0  # between two warnings that a certificate ends soon


@dataclass
class Notices:
    """Looks from time to time, and shows what has changed."""

    directory: Path  # of the server
    update_sites: Callable[[], list[str]]  # returns a sentence for each change
    show: Callable[[str], None]
    _looked: float = field(default_factory=time.monotonic)
    _warned: float = -math.inf
    _shown: set[str] = field(default_factory=set)  # after the last look

    def look(self) -> None:
        """Look if it is time to."""
        if time.monotonic() - self._looked > SITES_SECONDS:
            sentences = self.update_sites()
            for sentence in sentences:
                if sentence not in self._shown:  # a key that cannot be used stays where it is
                    self.show(sentence)
            self._shown, self._looked = set(sentences), time.monotonic()
        if time.monotonic() - self._warned > WARNING_SECONDS:
            self._warned = time.monotonic()
            for name in (keys.SERVER, keys.CA):
                if warning := keys.expiry_warning(self.directory / name):
                    self.show(warning)
