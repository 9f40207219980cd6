"""fedadb beside other simulators, on the same work, in one run.

    python -m benchmarks.speed --peers PYTHON [--turns 3] [--leave-out flower,resnet18]

PYTHON is an interpreter of an environment that has torch, flwr[simulation] and pfl: `make peers`
makes one. Contestants take turns; a contestant's figure is the median over its turns of its
seconds a round, without the first round, in which processes start and warm up, and the last. The
last line is one JSON object with the ratios.
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

ROOT = Path(__file__).parent.parent.parent


class Contestant(NamedTuple):
    name: str
    command: list[str]
    settings: Mapping[str, str] = MappingProxyType({})


def contestants(peers: str) -> list[Contestant]:
    ours = [sys.executable, "-m", "benchmarks.speed.ours"]
    cores = str(len(os.sched_getaffinity(0)))
    torchrun = [peers, "-m", "torch.distributed.run", "--nproc-per-node", cores, "-m"]
    return [
        Contestant("floor", [sys.executable, "-m", "benchmarks.speed.floor"]),
        Contestant("fedadb", ours),
        Contestant("fedadb, 1 worker", ours, {"WORKERS": "1"}),
        Contestant("plain loop", [sys.executable, "-m", "benchmarks.speed.plain_loop"]),
        Contestant("pfl", [*torchrun, "benchmarks.speed.peer_pfl"]),
        Contestant("flower", [peers, "-m", "benchmarks.speed.peer_flower"]),
    ]


def take_turn(contestant: Contestant, work: dict[str, object]) -> tuple[float, float]:
    """Seconds a round, and the accuracy in the end."""
    settings = {"WORK": json.dumps(work), "PYTHONPATH": f"{ROOT}/src:{ROOT}", **contestant.settings}
    done = subprocess.run(
        contestant.command, env=os.environ | settings, cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{contestant.name} failed:\n{done.stderr[-3000:]}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    # Where evaluation lags behind, the first record covers two rounds' training and the last none.
    steady = result["seconds"][1:-1]
    return sum(steady) / len(steady), result["accuracy"]


def main() -> None:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    words.add_argument("--peers", default=sys.executable)
    words.add_argument("--turns", type=int, default=3)
    words.add_argument("--leave-out", default="")
    words.add_argument("--rounds", type=int, default=12)
    given = words.parse_args()
    left_out = set(given.leave_out.split(","))
    ratios: dict[str, float] = {}
    works: dict[str, dict[str, object]] = {
        "lenet": {"rounds": given.rounds},
        "resnet18": {
            "model": "resnet18", "rounds": 3, "clients": 10, "sampled": 4, "rows": 96, "epochs": 1,
            "batch": 32, "test": 256,
        },
    }  # fmt: skip
    for model, work in works.items():
        if model in left_out:
            continue
        entered = [c for c in contestants(given.peers) if c.name not in left_out]
        turns: dict[str, list[tuple[float, float]]] = {c.name: [] for c in entered}
        for turn in range(given.turns):
            for contestant in entered:
                turns[contestant.name].append(take_turn(contestant, work))
                seconds, accuracy = turns[contestant.name][-1]
                said = f"{seconds:7.3f} s a round, accuracy {accuracy:.3f}"
                print(f"  turn {turn + 1} {contestant.name:18} {said}", flush=True)
        median = {name: statistics.median(s for s, _ in took) for name, took in turns.items()}
        print(f"\n{model:18} s/round  spread           rounds/s  of fedadb's  accuracy")
        for name, took in turns.items():
            low, high = min(s for s, _ in took), max(s for s, _ in took)
            speed, beside = 1 / median[name], median["fedadb"] / median[name]
            print(
                f"{name:18} {median[name]:7.3f}  {low:6.3f} to {high:6.3f}  {speed:8.2f}  "
                f"{beside:11.2f}  {took[-1][1]:8.3f}"
            )
        print()
        if "floor" in median:
            ratios[f"{model} against the floor"] = median["floor"] / median["fedadb"]
        peers = [s for name, s in median.items() if name in ("plain loop", "pfl", "flower")]
        if peers:
            ratios[f"{model} against the fastest peer"] = min(peers) / median["fedadb"]
        if "fedadb, 1 worker" in median:
            ratios[f"{model} against one worker"] = median["fedadb, 1 worker"] / median["fedadb"]
    print(json.dumps({name: round(value, 3) for name, value in ratios.items()}))


if __name__ == "__main__":
    main()
