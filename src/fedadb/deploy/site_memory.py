"""What a site remembers of a run between its rounds: FedDyn's gradient, for one.

What was learnt in a round counts only if the server used the reply. So a round starts from what was
remembered in the last one that it did use, be it that replies were dropped in between or that the
server, after a crash, does a round again.
"""

import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from flwr.app import RecordDict

from fedadb.core.errors import BadInput
from fedadb.storage.files import write_atomically
from fedadb.deploy.wire import BYTES, as_record

Remembered = MutableMapping[int, bytes]  # what the site knew after each round it took part in


class InDirectory(Remembered):
    """In files, which survive whatever restarts."""

    def __init__(self, directory: Path, run: str) -> None:
        if not re.fullmatch(r"[0-9a-f]{8,64}", run):  # it names a directory, and comes from afar
            raise BadInput(f"{run!r} is no name of a run")
        self.directory = directory / run

    def __getitem__(self, t: int) -> bytes:
        try:
            return self._path(t).read_bytes()
        except FileNotFoundError as error:
            raise KeyError(t) from error

    def __setitem__(self, t: int, data: bytes) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self._path(t), data)

    def __delitem__(self, t: int) -> None:
        self._path(t).unlink()

    def __iter__(self) -> Iterator[int]:
        return (int(path.stem) for path in sorted(self.directory.glob("*.safetensors")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, t: int) -> Path:
        return self.directory / f"{t:06}.safetensors"


class InState(Remembered):
    """In the node's state, which lasts as long as its process: for simulations."""

    def __init__(self, state: RecordDict) -> None:
        self.state = state

    def __getitem__(self, t: int) -> bytes:
        return self.state.array_records[f"after-{t}"][BYTES].data

    def __setitem__(self, t: int, data: bytes) -> None:
        self.state[f"after-{t}"] = as_record(data)

    def __delitem__(self, t: int) -> None:
        del self.state[f"after-{t}"]

    def __iter__(self) -> Iterator[int]:
        return (int(name.removeprefix("after-")) for name in self.state.array_records)

    def __len__(self) -> int:
        return len(self.state.array_records)


def keep(remembered: Remembered, used: int, t: int, data: bytes) -> None:
    """Remember what is known after round t beside what was known after the last that was used."""
    remembered[t] = data
    for when in [when for when in remembered if when not in (used, t)]:
        del remembered[when]
