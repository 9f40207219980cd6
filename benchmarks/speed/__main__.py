"""fedadb beside other simulators, on the same work, in one run.

    python -m benchmarks.speed --peers PYTHON [--turns 3] [--leave-out flower,resnet18]

PYTHON is an interpreter of an environment that has the other simulators: `make peers` makes one.
Contestants take turns; a contestant's figure is the median over its turns of its seconds a round,
without the first round, in which processes start and warm up, and the last. All must have learnt
the task in the end. `speed.png` shows the result, and the last line is one JSON object with the
ratios.
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
WORKS: dict[str, dict[str, object]] = {
    "lenet": {"rounds": 14},
    "resnet18": {
        "model": "resnet18", "rounds": 4, "clients": 10, "sampled": 4, "rows": 128, "epochs": 1,
        "batch": 32, "test": 256,
    },
}  # fmt: skip
LEARNT = 0.79  # accuracy in the end; 0.82 can be reached


class Contestant(NamedTuple):
    name: str
    command: list[str]
    settings: Mapping[str, str] = MappingProxyType({})


class Turn(NamedTuple):
    seconds: float  # a round
    accuracy: float


def contestants(peers: str) -> list[Contestant]:
    ours = [sys.executable, "-m", "benchmarks.speed.ours"]
    floor = [sys.executable, "-m", "benchmarks.speed.floor"]
    cores = str(len(os.sched_getaffinity(0)))
    torchrun = [peers, "-m", "torch.distributed.run", "--nproc-per-node", cores, "-m"]
    entered = [
        Contestant("floor", floor),
        Contestant("floor (usual layout)", floor, {"LAYOUT": "contiguous_format"}),
        Contestant("fedadb", ours),
        Contestant("fedadb (1 worker)", ours, {"WORKERS": "1"}),
        Contestant("fedadb (bfloat16)", ours, {"PRECISION": "bfloat16"}),
        Contestant("plain loop", [sys.executable, "-m", "benchmarks.speed.plain_loop"]),
        Contestant("pfl", [*torchrun, "benchmarks.speed.peer_pfl"]),
        Contestant("flower", [peers, "-m", "benchmarks.speed.peer_flower"]),
        Contestant("nvflare", [peers, "-m", "benchmarks.speed.peer_nvflare"]),
    ]
    return [c for c in entered if has_bfloat16() or "bfloat16" not in c.name]


def take_turn(contestant: Contestant, work: Mapping[str, object]) -> Turn:
    settings = {"WORK": json.dumps(work), "PYTHONPATH": f"{ROOT}/src:{ROOT}", **contestant.settings}
    done = subprocess.run(
        contestant.command, env=os.environ | settings, cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{contestant.name} failed:\n{done.stderr[-3000:]}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    # Where evaluation lags behind, the first record covers two rounds' training and the last none.
    steady = result["seconds"][1:-1]
    return Turn(sum(steady) / len(steady), result["accuracy"])


def contest(
    entered: list[Contestant], work: Mapping[str, object], turns: int
) -> dict[str, list[Turn]]:
    took: dict[str, list[Turn]] = {c.name: [] for c in entered}
    for number in range(1, turns + 1):
        for contestant in entered:
            turn = take_turn(contestant, work)
            took[contestant.name].append(turn)
            said = f"{turn.seconds:7.3f} s a round, accuracy {turn.accuracy:.3f}"
            print(f"  turn {number} {contestant.name:20} {said}", flush=True)
    return took


def table(model: str, took: Mapping[str, list[Turn]], median: Mapping[str, float]) -> None:
    print(f"\n{model:20} s/round  spread             rounds/s  of fedadb's  accuracy")
    for name, turns in took.items():
        low, high = min(turns).seconds, max(turns).seconds
        print(
            f"{name:20} {median[name]:7.3f}  {low:7.3f} to {high:7.3f}  {1 / median[name]:8.2f}  "
            f"{median['fedadb'] / median[name]:11.2f}  {turns[-1].accuracy:8.3f}"
        )
    print()


def ratios(model: str, median: Mapping[str, float]) -> dict[str, float]:
    """The figures of merit: how often we do what another does once."""
    fastest = min((median[name] for name in PEERS if name in median), default=None)
    beside = {
        "the floor": median.get("floor"),
        "the floor in the usual layout": median.get("floor (usual layout)"),
        "the fastest peer": fastest,
        "one worker": median.get("fedadb (1 worker)"),
    }
    found = {f"{model} against {n}": s / median["fedadb"] for n, s in beside.items() if s}
    if fastest and "fedadb (bfloat16)" in median:
        found[f"{model} in bfloat16 against the fastest peer"] = (
            fastest / median["fedadb (bfloat16)"]
        )
    return found


def main() -> None:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    words.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    words.add_argument("--turns", type=int, default=3)
    words.add_argument("--leave-out", default="", metavar="NAME,...")
    words.add_argument("--plot", type=Path, default=Path("speed.png"))
    given = words.parse_args()
    left_out = {name.strip() for name in given.leave_out.split(",") if name.strip()}
    everyone = contestants(given.peers)
    names = {c.name for c in everyone} - {"fedadb"} | set(WORKS)
    if unknown := left_out - names:
        print(f"--leave-out: {', '.join(unknown)} is none of {', '.join(sorted(names))}")
    figures: dict[str, float] = {}
    learnt = True
    results: dict[str, dict[str, list[float]]] = {}
    for model, work in WORKS.items():
        if model in left_out:
            continue
        took = contest([c for c in everyone if c.name not in left_out], work, given.turns)
        results[model] = {name: [t.seconds for t in turns] for name, turns in took.items()}
        median = {name: statistics.median(s) for name, s in results[model].items()}
        table(model, took, median)
        figures |= ratios(model, median)
        learnt &= not any(turn.accuracy < LEARNT for turns in took.values() for turn in turns)
    if results:
        plot(results, given.plot)
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
    if not learnt:
        sys.exit("a contestant has not learnt the task: its time is not comparable")


if __name__ == "__main__":
    main()
