"""Clients' memories on disk, with the most recently used ones cached."""

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Generic

from fedadb.core.algorithm import C
from fedadb.core.packing import kind_of, pack, unpack
from fedadb.core.vector import Vector
from fedadb.engine.local import ClientMemory, memory_tensors
from fedadb.storage.tensorfile import read_tensors, write_tensors

CACHED = 8  # memories that stay in the process


class Memories(MutableMapping[int, C], Generic[C]):
    """A mapping from client to memory, stored as files of a directory.

    A changed memory is written as a new version beside the old one, and becomes the client's memory
    by `commit`, if its reply was used. A checkpoint names the versions that belong to it, and
    `prune` removes all others afterwards. So a process can end at any moment, and another one can
    resume from the last checkpoint.
    """

    def __init__(self, directory: Path, like: C, w: Vector, versions: dict[int, int]) -> None:
        self.directory = directory
        self.versions = versions
        self._kind = kind_of(like)
        self._upgrade = memory_tensors if isinstance(like, ClientMemory) else dict
        self._w = w
        self._changed: dict[int, int] = {}  # versions that are not committed
        self._cached: OrderedDict[tuple[int, int], C] = OrderedDict()  # by client and version

    def __getitem__(self, k: int) -> C:
        return self.read(k, self.versions[k])

    def read(self, k: int, version: int) -> C:
        """The client's memory of that version."""
        if (k, version) not in self._cached:
            remedy = (
                f"client {k} cannot resume without it; delete the run's directory to start over"
            )
            tensors, _ = read_tensors(self._path(k, version), remedy)
            device = self._w.flat.device
            on_device = {name: t.to(device) for name, t in self._upgrade(tensors).items()}
            self._cache(k, version, unpack(self._kind, on_device, self._w.layout))
        self._cached.move_to_end((k, version))
        return self._cached[k, version]

    def __setitem__(self, k: int, memory: C) -> None:
        tensors = pack(memory)
        if not tensors:  # the algorithm's clients are stateless
            return
        version = self.versions.get(k, 0) + 1
        self.directory.mkdir(exist_ok=True)
        write_tensors(self._path(k, version), tensors, {})
        self._changed[k] = version
        self._cache(k, version, memory)

    def commit(self, clients: Collection[int]) -> None:
        """Adopt the changed memories of these clients, and forget all other changes."""
        self.versions |= {k: v for k, v in self._changed.items() if k in clients}
        self._changed = {}

    def __delitem__(self, k: int) -> None:
        del self.versions[k]

    def __iter__(self) -> Iterator[int]:
        return iter(self.versions)

    def __len__(self) -> int:
        return len(self.versions)

    def prune(self, *checkpointed: Mapping[int, int]) -> None:
        """Remove all files but those of the checkpoints' versions and of the current ones."""
        if self.directory.exists():
            needed = {item for one in (*checkpointed, self.versions) for item in one.items()}
            paths = {self._path(k, version) for k, version in needed}
            for path in self.directory.iterdir():
                if path not in paths:
                    path.unlink()

    def _path(self, k: int, version: int) -> Path:
        return self.directory / f"client-{k}-{version}.safetensors"

    def _cache(self, k: int, version: int, memory: C) -> None:
        self._cached[k, version] = memory
        self._cached.move_to_end((k, version))
        while len(self._cached) > CACHED:
            self._cached.popitem(last=False)


class ReadOnlyMemories(MutableMapping[int, C], Generic[C]):
    """The memories of given versions, for cohorts that must change none: new ones are dropped."""

    def __init__(self, memories: Memories[C], versions: Mapping[int, int]) -> None:
        self._memories = memories
        self._versions = versions

    def __getitem__(self, k: int) -> C:
        return self._memories.read(k, self._versions[k])

    def __setitem__(self, k: int, memory: C) -> None:
        pass

    def __delitem__(self, k: int) -> None:
        pass

    def __iter__(self) -> Iterator[int]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)
