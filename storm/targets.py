"""The commands that are struck, each small and with something to lose."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open

TINY = (
    *("--set", "model=mlp", "--set", "local.epochs=1", "--set", "federation.clients=6"),
    *("--set", "federation.participation=0.5"),
)


class Target(NamedTuple):
    """A command that writes into a directory of its own."""

    name: str
    words: Sequence[str]
    workers: bool = False  # whether it has worker processes
    weight: int = 3  # how often it is struck, relative to the others

    def command(self, out: Path) -> list[str]:
        """The words of the command with its directory."""
        return [*self.words, "--out", str(out)]


def _run(algorithm: str, workers: int, *more: str) -> list[str]:
    sets = [f"algorithm={algorithm}", f"engine.workers={workers}", "rounds=6", *more]
    return ["run", *TINY, *(word for one in sets for word in ("--set", one))]


TARGETS = (
    # The filter remembers what it left out, and so do FedDyn's clients: in files.
    Target("run, 1 worker", _run("fedavg", 1, 'filter=[{name="top_k"}]')),
    Target("run, 2 workers", _run("fedadb", 2, "algorithm.steps=2"), workers=True),
    Target("run, 2 workers, memories", _run("feddyn", 2), workers=True),
    Target(
        "compare",
        [
            *("compare", *TINY, "--algorithms", "fedavg,feddyn", "--seeds", "0,1"),
            *("--set", "rounds=2", "--set", "engine.workers=1"),
        ],
        weight=1,
    ),
    Target(
        "tune",
        [
            *("tune", *TINY, "--algorithms", "fedavg", "--budget", "3"),
            *("--set", "validation=0.2", "--set", "rounds=3", "--set", "engine.workers=1"),
        ],
        weight=1,
    ),
)


def saved_rounds(directory: Path) -> int:
    """The rounds of all checkpoints below the directory: what a resumed command must not lose."""
    total = 0
    for path in directory.rglob("checkpoint.safetensors"):
        with safe_open(path, framework="pt") as file:
            total += json.loads(json.loads(file.metadata()["fedadb"])["round"])[0]
    return total
