"""One federation, from an experiment to a directory of results."""

import hashlib
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedadb.core.algorithm import Round
from fedadb.core.errors import BadInput
from fedadb.core.packing import pack
from fedadb.core.stream import Stream
from fedadb.engine import checkpoint, record
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.evaluate import evaluate
from fedadb.engine.federate import Snapshot, federate
from fedadb.engine.files import owned, write_whole
from fedadb.engine.local import Learner
from fedadb.engine.record import Record
from fedadb.experiment import config
from fedadb.experiment.build import World, build, sample
from fedadb.experiment.config import Experiment
from fedadb.experiment.environment import environment

EXPERIMENT = "experiment.toml"
ENVIRONMENT = "environment.json"
ROUNDS = "rounds.jsonl"
CHECKPOINT = "checkpoint.safetensors"
MODEL = "model.safetensors"


@dataclass(frozen=True)
class History:
    """What a run recorded, and where."""

    directory: Path
    rounds: list[Record]

    @property
    def accuracy(self) -> list[float]:
        return [r["accuracy"] for r in self.rounds]

    def top(self, n: int = 5) -> float:
        """The mean accuracy of the n best rounds."""
        best = sorted(self.accuracy, reverse=True)[:n]
        return sum(best) / len(best)


def run(experiment: Experiment, out: str | Path | None = None) -> History:
    """Train the federation, or go on where an earlier call stopped."""
    directory = Path(out) if out else default_directory(experiment)
    return History(directory, list(rounds(experiment, directory)))


def default_directory(experiment: Experiment) -> Path:
    """runs/…, named by what is run."""
    table = experiment.table()
    words = [table["dataset"], table["algorithm"]["name"], f"seed{table['seed']}"]
    digest = hashlib.sha256(json.dumps(_decisive(table)).encode()).hexdigest()
    return Path("runs") / re.sub(r"[^\w.-]+", "-", "-".join([*words, digest[:8]]))


def rounds(experiment: Experiment, out: Path) -> Iterator[Record]:
    """The rounds of a run as they are done; first those that an earlier call has done.

    Nothing is written before everything that can be wrong with the experiment has been checked.
    """
    require_own(out, experiment)
    if (out / MODEL).exists():
        yield from record.read(out / ROUNDS)
        return
    world = build(experiment)
    out.mkdir(parents=True, exist_ok=True)
    with owned(out), one_thread():
        about = environment(world.test.x.device)
        write_whole(out / ENVIRONMENT, json.dumps(about, indent=2).encode())
        write_whole(out / EXPERIMENT, experiment.toml().encode())
        yield from _train(experiment, world, out)


def _train(experiment: Experiment, world: World, out: Path) -> Iterator[Record]:
    algorithm, local, f = experiment.algorithm, experiment.local, world.f
    rng = Stream(experiment.seed)
    if (out / CHECKPOINT).exists():
        start, memories = checkpoint.load(out / CHECKPOINT, algorithm, f.weights())
    else:
        before = Round(0, experiment.rounds, experiment.federation.clients)
        start, memories = Snapshot(before, algorithm.init(f.weights())), {}
    yield from record.keep(out / ROUNDS, start.round.t)

    cohort = OneByOne(Learner(algorithm, f, local), world.shards, rng, memories)
    now, began = start, time.perf_counter()
    for now in federate(
        algorithm,
        f,
        cohort,
        choose=lambda t: sample(experiment.federation, experiment.seed, t),
        rng=rng,
        start=start,
    ):
        w = algorithm.deployed(now.server)
        scores = evaluate(f, w, world.test, world.look, local.batch_size)
        line = {
            "round": now.round.t,
            **scores._asdict(),
            "clients": now.clients,
            "lr": local.lr_at(now.round.t),
            "seconds": time.perf_counter() - began,
        }
        # Recorded first: a round that was recorded but not saved is done again, to the same end.
        record.append(out / ROUNDS, line)
        checkpoint.save(out / CHECKPOINT, now, memories)
        yield line
        began = time.perf_counter()
    about = {"experiment": experiment.toml(), "classes": json.dumps(world.classes)}
    checkpoint.write_tensors(out / MODEL, pack(algorithm.deployed(now.server)), about)


def require_own(out: Path, experiment: Experiment) -> None:
    """The directory is free, or holds this very experiment."""
    if not out.exists():
        return
    if not out.is_dir():
        raise BadInput(f"{out} is a file; --out must name a directory")
    if (out / EXPERIMENT).exists():
        there = _flat(_decisive(config.load(out / EXPERIMENT)))
        here = _flat(_decisive(experiment.table()))
        for key in sorted(there.keys() | here.keys()):
            if there.get(key) != here.get(key):
                raise BadInput(
                    f"{out} holds another experiment: {key} is {there.get(key)!r} there and "
                    f"{here.get(key)!r} here; choose another --out"
                )
    elif strangers := [
        p.name for p in out.iterdir() if not p.name.startswith((".", ENVIRONMENT, EXPERIMENT))
    ]:
        raise BadInput(f"{out} is not a run: it holds {strangers[0]}; choose another --out")


def _decisive(table: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide what is computed; the number of workers does not."""
    engine = {k: v for k, v in table.get("engine", {}).items() if k != "workers"}
    return {**table, "engine": engine}


def _flat(table: dict[str, Any], path: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in table.items():
        leaves |= _flat(value, f"{path}{key}.") if isinstance(value, dict) else {path + key: value}
    return leaves


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums in one order, so that the same experiment gives the same bits on any number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
