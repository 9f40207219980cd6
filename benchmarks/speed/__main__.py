"""Compares the speed of fedadb with that of other simulators, on the same workload.

    python -m benchmarks.speed --peers PYTHON [--turns 3] [--leave-out flower,resnet18]

PYTHON is the interpreter of an environment with the other simulators; `make peers` creates one.
The simulators take turns. The result of a simulator is the median over its turns of the mean time
of a round, without the first round, in which processes start and warm up, and the last one. All
must have learnt the task in the end. `speed.png` shows the result. The last line of the output is
one JSON object with the ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from benchmarks.speed.plot import plot
from fedadb.experiment.build import has_bfloat16

ROOT = Path(__file__).parent.parent.parent
PEERS = ("plain loop", "pfl", "flower", "nvflare")
WORKLOADS: dict[str, dict[str, object]] = {
    "lenet": {"rounds": 14},
    "resnet18": {
        "model": "resnet18", "rounds": 4, "clients": 10, "sampled": 4, "rows": 128, "epochs": 1,
        "batch": 32, "test": 256,
    },
}  # fmt: skip
LEARNT = 0.79  # the final accuracy that shows it; 0.82 is the best possible


class Simulator(NamedTuple):
    name: str
    command: list[str]
    environment: Mapping[str, str] = MappingProxyType({})


class Turn(NamedTuple):
    seconds: float  # per round
    accuracy: float


def simulators(peers: str) -> list[Simulator]:
    """All simulators; `peers` is the interpreter that runs the others."""
    ours = [sys.executable, "-m", "benchmarks.speed.ours"]
    floor = [sys.executable, "-m", "benchmarks.speed.floor"]
    cores = str(len(os.sched_getaffinity(0)))
    torchrun = [peers, "-m", "torch.distributed.run", "--nproc-per-node", cores, "-m"]
    all_simulators = [
        Simulator("floor", floor),
        Simulator("floor (usual layout)", floor, {"LAYOUT": "contiguous_format"}),
        Simulator("fedadb", ours),
        Simulator("fedadb (1 worker)", ours, {"WORKERS": "1"}),
        Simulator("fedadb (bfloat16)", ours, {"PRECISION": "bfloat16"}),
        Simulator("plain loop", [sys.executable, "-m", "benchmarks.speed.plain_loop"]),
        Simulator("pfl", [*torchrun, "benchmarks.speed.peer_pfl"]),
        Simulator("flower", [peers, "-m", "benchmarks.speed.peer_flower"]),
        Simulator("nvflare", [peers, "-m", "benchmarks.speed.peer_nvflare"]),
    ]
    return [s for s in all_simulators if has_bfloat16() or "bfloat16" not in s.name]


def take_turn(simulator: Simulator, workload: Mapping[str, object]) -> Turn:
    """Run the simulator once."""
    environment = {
        "WORKLOAD": json.dumps(workload),
        "PYTHONPATH": f"{ROOT}/src:{ROOT}",
        **simulator.environment,
    }
    done = subprocess.run(
        simulator.command, env=os.environ | environment, cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{simulator.name} failed:\n{done.stderr[-3000:]}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    # If evaluation is one round behind, the first record covers the training of two rounds, and
    # the last one of none.
    steady = result["seconds"][1:-1]
    return Turn(sum(steady) / len(steady), result["accuracy"])


def compare(
    compared: list[Simulator], workload: Mapping[str, object], turns: int
) -> dict[str, list[Turn]]:
    """The turns of each simulator, by its name."""
    taken: dict[str, list[Turn]] = {simulator.name: [] for simulator in compared}
    for number in range(1, turns + 1):
        for simulator in compared:
            turn = take_turn(simulator, workload)
            taken[simulator.name].append(turn)
            print(
                f"  turn {number} {simulator.name:20} {turn.seconds:7.3f} s per round, "
                f"accuracy {turn.accuracy:.3f}",
                flush=True,
            )
    return taken


def print_table(model: str, taken: Mapping[str, list[Turn]], median: Mapping[str, float]) -> None:
    print(f"\n{model:20} s/round  spread             rounds/s  rel. speed  accuracy")
    for name, turns in taken.items():
        low, high = min(turns).seconds, max(turns).seconds
        print(
            f"{name:20} {median[name]:7.3f}  {low:7.3f} to {high:7.3f}  {1 / median[name]:8.2f}  "
            f"{median['fedadb'] / median[name]:10.2f}  {turns[-1].accuracy:8.3f}"
        )
    print()


def ratios(model: str, median: Mapping[str, float]) -> dict[str, float]:
    """The speed of fedadb divided by that of others."""
    fastest = min((median[name] for name in PEERS if name in median), default=None)
    seconds = {
        "the floor": median.get("floor"),
        "the floor in the usual layout": median.get("floor (usual layout)"),
        "the fastest peer": fastest,
        "one worker": median.get("fedadb (1 worker)"),
    }
    found = {f"{model} against {n}": s / median["fedadb"] for n, s in seconds.items() if s}
    if fastest and "fedadb (bfloat16)" in median:
        found[f"{model} in bfloat16 against the fastest peer"] = (
            fastest / median["fedadb (bfloat16)"]
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--leave-out", default="", metavar="NAME,...")
    parser.add_argument("--plot", type=Path, default=Path("speed.png"))
    given = parser.parse_args()
    left_out = {name.strip() for name in given.leave_out.split(",") if name.strip()}
    everyone = simulators(given.peers)
    names = {simulator.name for simulator in everyone} - {"fedadb"} | set(WORKLOADS)
    if unknown := left_out - names:
        print(f"--leave-out: {', '.join(unknown)} is none of {', '.join(sorted(names))}")
    found: dict[str, float] = {}
    learnt = True
    results: dict[str, dict[str, list[float]]] = {}
    for model, workload in WORKLOADS.items():
        if model in left_out:
            continue
        taken = compare([s for s in everyone if s.name not in left_out], workload, given.turns)
        results[model] = {name: [t.seconds for t in turns] for name, turns in taken.items()}
        median = {name: statistics.median(s) for name, s in results[model].items()}
        print_table(model, taken, median)
        found |= ratios(model, median)
        learnt &= not any(turn.accuracy < LEARNT for turns in taken.values() for turn in turns)
    if results:
        plot(results, given.plot)
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))
    if not learnt:
        sys.exit("a simulator has not learnt the task, so its time is not comparable")


if __name__ == "__main__":
    main()
