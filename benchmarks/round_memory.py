"""Peak memory of a round with 10, 100 and 1000 clients of a model with 11 million weights.

Replies are added to the mean as they arrive, so the peak does not depend on their number. Each
measurement runs in a process of its own; that of worker processes has the server's peak and the
largest worker's.

python -m benchmarks.round_memory
"""

import argparse
import resource
import subprocess
import sys
from contextlib import closing

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from fedadb.algorithms import ALGORITHMS
from fedadb.core.algorithm import Round
from fedadb.core.data import Examples, LocalPlan, Shard
from fedadb.core.model import Domain, assemble
from fedadb.core.stream import Stream
from fedadb.core.transform import AsIs
from fedadb.engine.cohorts import OneByOne
from fedadb.engine.evaluate import TestSet
from fedadb.engine.federate import federate, initial
from fedadb.engine.local import Learner
from fedadb.engine.pool import Pool
from fedadb.engine.process import keep_freed_memory

WIDTH = 3316  # a layer of WIDTH × WIDTH weights
CLIENTS = (10, 100, 1000)


def train_round(algorithm_name: str, clients: int, workers: int) -> None:
    """Train one round in which each client takes one step, and print the peaks in MiB."""
    keep_freed_memory()
    algorithm = ALGORITHMS[algorithm_name]()
    body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
    f = assemble(body, algorithm.heads, Domain.unbounded((WIDTH,)), 4, Stream(0))
    examples = Examples(torch.randn(64, WIDTH), torch.arange(64) % 4)
    shards = [Shard(examples, torch.arange(2) + k % 32, 4, AsIs()) for k in range(clients)]
    learner = Learner(algorithm, f, LocalPlan(epochs=1, batch_size=2))
    start = initial(learner, Round(0, 1, clients, 2 * clients))
    everyone = list(range(clients))
    if workers == 1:
        plain = OneByOne(learner, shards, Stream(0))
        for _ in federate(learner, plain, choose=lambda t: everyone, rng=Stream(0), start=start):
            pass
    else:
        test_set = TestSet(f, examples, AsIs(), 64)
        with closing(Pool(learner, shards, Stream(0), workers, test_set)) as pool:
            for _ in federate(learner, pool, choose=lambda t: everyone, rng=Stream(0), start=start):
                pass
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        print(resource.getrusage(who).ru_maxrss / 1024)


def peaks(algorithm: str, clients: int, workers: int) -> list[float]:
    """The peak of the process, and that of its largest child, in MiB."""
    arguments = ["--algorithm", algorithm, "--clients", str(clients), "--workers", str(workers)]
    command = [sys.executable, "-m", "benchmarks.round_memory", *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(line) for line in output.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", default="fedavg")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    if given.clients is not None:
        train_round(given.algorithm, given.clients, given.workers)
        return
    table = Table(title="Peak memory of a round in MiB, 11 M weights")
    for title in ("algorithm", "workers", *(f"{n} clients" for n in CLIENTS), "largest / least"):
        table.add_column(title, justify="left" if title == "algorithm" else "right")
    for algorithm, workers in (("fedavg", 1), ("fedavg", 2), ("fedexp", 1)):
        found = [peaks(algorithm, clients, workers) for clients in CLIENTS]
        for what, column in enumerate(zip(*found, strict=True)):
            if workers > 1 or what == 0:
                name = algorithm if what == 0 else "  its largest worker"
                ratio = max(column) / min(column)
                table.add_row(name, str(workers), *(f"{n:.0f}" for n in column), f"{ratio:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
