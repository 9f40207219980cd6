"""What a site remembers of a run between its rounds: FedDyn's gradient, for one.

A round that the server has to do again, after a crash, is trained from what was remembered
before it, so that it ends as it would have.
"""

import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from flwr.app import Array, ArrayRecord, RecordDict

from fedadb.core.errors import BadInput
from fedadb.core.files import write_whole
from fedadb.deploy.wire import BYTES

Remembered = MutableMapping[int, bytes]  # what the site knew after each round it took part in


class InDirectory(Remembered):
    """In files, which survive whatever restarts."""

    def __init__(self, directory: Path, run: str) -> None:
        if not re.fullmatch(r"[0-9a-f]{8,64}", run):  # it names a directory, and comes from afar
            raise BadInput(f"{run!r} is no name of a run")
        self.directory = directory / run

    def __getitem__(self, t: int) -> bytes:
        return self._path(t).read_bytes()

    def __setitem__(self, t: int, data: bytes) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self._path(t), data)

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
        array = Array(dtype="uint8", shape=(len(data),), stype=BYTES, data=data)
        self.state[f"after-{t}"] = ArrayRecord({BYTES: array})

    def __delitem__(self, t: int) -> None:
        del self.state[f"after-{t}"]

    def __iter__(self) -> Iterator[int]:
        return (int(name.removeprefix("after-")) for name in self.state.array_records)

    def __len__(self) -> int:
        return len(self.state.array_records)


def before(remembered: Remembered, t: int) -> bytes | None:
    """What was known when round t began."""
    earlier = [when for when in remembered if when < t]
    return remembered[max(earlier)] if earlier else None


def after(remembered: Remembered, t: int, data: bytes) -> None:
    """Keep what is known now, and what was known before the round; forget the rest."""
    remembered[t] = data
    earlier = sorted(when for when in remembered if when < t)
    for when in [*earlier[:-1], *(when for when in remembered if when > t)]:
        del remembered[when]
