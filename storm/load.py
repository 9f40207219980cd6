"""Loads that are larger than any test's: time and peak memory, and how each grows.

Each measurement is in a process of its own, whose peak is that of nothing else.
"""

import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from storm.outcome import Outcome
from storm.traces import descendants

GROWTH = 0.05  # of memory and open files over many rounds
WARM_UP = 0.1  # the share of rounds after which both must be flat
FEATURES = 16
PAGE = resource.getpagesize()


def _data(rows: int, classes: int = 4, features: int = FEATURES) -> Any:
    import fedadb

    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(rows, features, generator=rng), torch.arange(rows) % classes
    test = max(classes, rows // 10)
    return fedadb.Data(x, y, x[:test], y[:test])


def _resident(process: int) -> int:
    """Bytes of memory that a process and its descendants use now."""
    total = 0
    for pid in (process, *descendants(process)):
        with suppress(OSError):  # it has ended
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return total


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def many_rounds(rounds: int, scratch: Path, workers: int = 1) -> dict[str, float]:
    """A tiny federation over many rounds; memory and open files after a tenth, and at the end."""
    import fedadb

    settings = {
        "rounds": rounds,
        "federation": {"clients": 4, "participation": 0.5, "partition": "iid"},
        "local": {"epochs": 1, "batch_size": 8, "lr": 0.01},
        "engine": {"workers": workers},
    }
    experiment = fedadb.Experiment(
        algorithm="feddyn", model=fedadb.MLP(hidden=(8,)), dataset=_data(64), **settings
    )
    found: dict[str, float] = {}
    began = time.monotonic()
    for record in fedadb.rounds(experiment, scratch / f"rounds-{workers}"):
        if record["round"] in (max(1, int(rounds * WARM_UP)), rounds - 1):
            when = "at the end" if record["round"] == rounds - 1 else "after a tenth"
            found[f"MB {when}"] = _resident(os.getpid()) / 2**20
            found[f"open files {when}"] = _descriptors()
    found["ms per round"] = 1000 * (time.monotonic() - began) / rounds
    return found


def clients_in_a_round(clients: int, scratch: Path) -> dict[str, float]:
    """One round of so many clients with four rows each."""
    return _simulate(clients=clients, rows=4 * clients, hidden=(32,), participation=1.0)


def clients_in_a_partition(clients: int, scratch: Path) -> dict[str, float]:
    """One round of ten among so many clients, each of which holds two rows."""
    return _simulate(clients=clients, rows=2 * clients, hidden=(32,), participation=10 / clients)


def classes(number: int, scratch: Path) -> dict[str, float]:
    """One round on data with so many classes, of FedADB, which keeps anchors per class."""
    return _simulate(
        clients=10, rows=20 * number, hidden=(64,), participation=0.5, classes=number,
        algorithm={"name": "fedadb", "steps": 5},
    )  # fmt: skip


def weights(number: int, scratch: Path) -> dict[str, float]:
    """One round of a model with so many weights, two clients with one step each."""
    width = int(number**0.5)
    return _simulate(
        clients=2, rows=16, hidden=(width,), participation=1.0, features=width, workers=1
    )


def sites(number: int, scratch: Path) -> dict[str, float]:
    """Two rounds of a real federation of so many sites, all on this machine."""
    from fedadb.deploy.ports import free_port
    from fedadb.storage.records import read_records
    from storm.federation import SERVER, Federation, experiment

    federation = Federation(scratch, experiment(number, rounds=2), free_port())
    scratch.mkdir(parents=True)
    federation.prepare()
    began = time.monotonic()
    for name in federation.names:
        federation.start(name)
    peak = 0.0

    def look() -> bool:
        nonlocal peak
        server = federation.running[SERVER].pid
        peak = max(peak, _resident(server) / 2**20)
        return False

    try:
        ended = federation.wait(look)
    finally:
        federation.stop()
    code = federation.running[SERVER].returncode
    assert ended, "the federation hangs"
    assert code == 0, federation.log(SERVER)
    records = read_records(federation.out / "rounds.jsonl")
    return {
        "s in all": time.monotonic() - began,
        "s of the second round": records[-1]["seconds"],
        "MB of the server's processes": peak,
    }


def _simulate(
    clients: int,
    rows: int,
    hidden: Sequence[int],
    participation: float,
    classes: int = 4,
    features: int = FEATURES,
    algorithm: Any = "fedavg",
    workers: int = 2,
) -> dict[str, float]:
    import fedadb

    data = _data(rows, classes, features)
    began = time.monotonic()
    history = fedadb.simulate(
        algorithm, fedadb.MLP(hidden=tuple(hidden)), data, rounds=1,
        federation={"clients": clients, "participation": participation, "partition": "iid"},
        local={"epochs": 1, "batch_size": 8, "lr": 0.01}, engine={"workers": workers},
    )  # fmt: skip
    assert len(history.rounds) == 1
    return {"s in all": time.monotonic() - began, "s of the round": history.rounds[0]["seconds"]}


class Load(NamedTuple):
    """A measurement at several sizes, the last of which is the large one."""

    measure: Callable[[int, Path], Mapping[str, float]]
    sizes: Sequence[int]


def two_workers(rounds: int, scratch: Path) -> dict[str, float]:
    """As `many_rounds`, in worker processes."""
    return many_rounds(rounds, scratch, workers=2)


LOADS = {
    "rounds": Load(many_rounds, (1_000, 10_000)),
    "rounds, 2 workers": Load(two_workers, (1_000, 10_000)),
    "clients in a round": Load(clients_in_a_round, (10, 100, 1_000)),
    "clients in a partition": Load(clients_in_a_partition, (1_000, 10_000, 100_000)),
    "classes": Load(classes, (10, 100, 1_000)),
    "sites": Load(sites, (5, 20)),
    "weights": Load(weights, (1_000_000, 10_000_000, 100_000_000)),
}


def _measure(name: str, size: int, scratch: Path, pipe: Connection) -> None:
    torch.set_num_threads(1)
    found = dict(LOADS[name].measure(size, scratch))
    found["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found["largest child's peak MB"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    pipe.send(found)


def measured(name: str, size: int, scratch: Path) -> dict[str, float] | None:
    """The measurement in a new process; None if that fails."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measure, args=(name, size, scratch, theirs))
    process.start()
    theirs.close()
    try:
        found: dict[str, float] | None = ours.recv()
    except EOFError:
        found = None
    process.join()
    return found


def storm_load(outcome: Outcome, scratch: Path, scale: float = 1.0, only: str = "") -> None:
    """Carry out all measurements; at a smaller scale, with smaller sizes."""
    for name, load in LOADS.items():
        for size in load.sizes if only in name else ():
            small = max(2, int(size * scale))
            found = measured(name, small, scratch / f"{name}-{size}")
            outcome.count("measurements")
            if not outcome.require(found is not None, f"{name}: {small} fails"):
                continue
            assert found is not None
            rounded = {key: round(value, 2) for key, value in found.items()}
            outcome.measured[f"{name}: {small}"] = rounded
            print(f"{name}: {small}: {rounded}", flush=True)
            if "MB at the end" in found:
                for what in ("MB", "open files"):
                    growth = found[f"{what} at the end"] / found[f"{what} after a tenth"] - 1
                    outcome.require(
                        growth <= GROWTH, f"{name}: {what} grew by {100 * growth:.1f} % in {small}"
                    )
