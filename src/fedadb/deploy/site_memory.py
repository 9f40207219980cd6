"""What a site remembers of a run between its rounds, such as FedDyn's gradient.

What a site learns in a round counts only if the server uses the reply. So a round starts from the
memory after the last round that the server used, even if replies were dropped in between or a
restarted server repeats a round.
"""

import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from flwr.app import RecordDict

from fedadb.core.errors import BadInput
from fedadb.deploy.messages import BYTES, array_record
from fedadb.storage.files import write_atomically
from fedadb.storage.run_directory import EARLIER_CHECKPOINTS

MAX_ROUND = 1_000_000_000
ORDER_BYTES = 32  # of the digest of an order
SiteMemory = MutableMapping[int, bytes]  # the packed memory after each round, by round


class FileMemory(SiteMemory):
    """Stores memories as files, which survive a restart of the site."""

    def __init__(self, directory: Path, run: str) -> None:
        if not re.fullmatch(r"[0-9a-f]{8,64}", run):  # it becomes a path, and the server sent it
            raise BadInput(f"the run's identity {run!r} is not a hexadecimal number")
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
        if type(t) is not int or not 0 <= t < MAX_ROUND:  # it becomes a path as well
            raise BadInput("the number of a round is not a whole number in range")
        return self.directory / f"{t:06}.safetensors"


class NodeStateMemory(SiteMemory):
    """Stores memories in the state of a Flower node, for simulations: it ends with the process."""

    def __init__(self, state: RecordDict) -> None:
        self.state = state

    def __getitem__(self, t: int) -> bytes:
        return self.state.array_records[f"after-{t}"][BYTES].data

    def __setitem__(self, t: int, data: bytes) -> None:
        self.state[f"after-{t}"] = array_record(data)

    def __delitem__(self, t: int) -> None:
        del self.state[f"after-{t}"]

    def __iter__(self) -> Iterator[int]:
        return (int(name.removeprefix("after-")) for name in self.state.array_records)

    def __len__(self) -> int:
        return len(self.state.array_records)


class TracedMemory(SiteMemory):
    """Stores with each memory the digest of the order by which the site was trained.

    With secure aggregation, a server could otherwise let one site alone train a round again with
    another model. What this site sends in the next round would then differ, and nothing else: the
    difference of two sums would be one site's. So masks depend on the origin of the memory.
    """

    def __init__(self, memories: SiteMemory, order: str) -> None:
        self.memories, self.order = memories, bytes.fromhex(order)

    def __getitem__(self, t: int) -> bytes:
        return self.memories[t][ORDER_BYTES:]

    def __setitem__(self, t: int, data: bytes) -> None:
        self.memories[t] = self.order + data

    def __delitem__(self, t: int) -> None:
        del self.memories[t]

    def __iter__(self) -> Iterator[int]:
        return iter(self.memories)

    def __len__(self) -> int:
        return len(self.memories)


def origin(memories: SiteMemory, t: int) -> str:
    """The order by which the traced memory after round t was trained; empty if there is none."""
    return memories.get(t, b"")[:ORDER_BYTES].hex()


def store_memory(memory: SiteMemory, last_used: int, t: int, data: bytes) -> None:
    """Store the memory after round t, and delete those that the server cannot name any more.

    It can name the last used round, and earlier ones if it returns to an earlier checkpoint.
    """
    memory[t] = data
    used = sorted(stored for stored in memory if stored <= last_used)
    kept = {*used[-EARLIER_CHECKPOINTS - 1 :], t}
    for stale in [stored for stored in memory if stored not in kept]:
        del memory[stale]
