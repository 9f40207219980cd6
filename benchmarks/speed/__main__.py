"""Compares the speed of fedadb with that of other simulators, on the same workload.

    python -m benchmarks.speed --peers PYTHON [--blazefl PYTHON] [--turns 3]
        [--leave-out flower,resnet18]

PYTHON is the interpreter of an environment with the other simulators. BlazeFL has its own, because
it needs a newer Python. `make peers` creates both. The simulators take turns. The result of a
simulator is the median over its turns of the mean time of a round, without the first round, in
which processes start and warm up, and the last one. All must have learnt the task in the end.

The limit is the machine's peak, measured in each turn: what all cores can multiply at most. A
simulator's share of it follows from the multiply-adds of a round.

`speed.json` has the results and `speed.png` shows them. The last line of the output is one JSON
object with the ratios.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from benchmarks.flops import forward_flops, step_flops
from benchmarks.peak import measure_peak
from benchmarks.speed.plot import plot
from benchmarks.speed.workload import Workload
from fedadb.engine.process import cores
from fedadb.experiment.build import has_bfloat16
from fedadb.kernels.library import KernelsUnavailable

ROOT = Path(__file__).parent.parent.parent
PEERS = ("plain loop", "pfl", "flower", "nvflare", "blazefl")
WORKLOADS = {
    "lenet": Workload(rounds=14),
    "resnet18": Workload(
        model="resnet18", rounds=4, clients=10, sampled=4, rows=128, epochs=1, batch=32, test=256
    ),
}
LEARNT = 0.79  # the final accuracy that shows it; 0.82 is the best possible


class Simulator(NamedTuple):
    name: str
    command: list[str]
    environment: Mapping[str, str] = MappingProxyType({})


class Turn(NamedTuple):
    seconds: float  # per round
    accuracy: float


class Comparison(NamedTuple):
    gflop: float  # of a round
    turns: dict[str, list[Turn]]  # by the name of the simulator
    peaks: list[float]  # of the machine, in GFLOP/s, one per turn

    @property
    def peak(self) -> float | None:
        return max(self.peaks, default=None)

    @property
    def seconds(self) -> dict[str, list[float]]:
        return {name: [turn.seconds for turn in turns] for name, turns in self.turns.items()}

    @property
    def median(self) -> dict[str, float]:
        return {name: statistics.median(seconds) for name, seconds in self.seconds.items()}

    def table(self) -> dict[str, object]:
        """What is written to the file of results."""
        return {"peak": self.peak, "gflop": self.gflop, "seconds": self.seconds}


def simulators(peers: str, blazefl: str) -> list[Simulator]:
    """All simulators; `peers` and `blazefl` are the interpreters that run the others."""
    ours = [sys.executable, "-m", "benchmarks.speed.ours"]
    floor = [sys.executable, "-m", "benchmarks.speed.floor"]
    torchrun = [peers, "-m", "torch.distributed.run", "--nproc-per-node", str(cores()), "-m"]
    all_simulators = [
        Simulator("floor", floor),
        Simulator("floor (usual layout)", floor, {"LAYOUT": "contiguous_format"}),
        Simulator("fedadb", ours),
        Simulator("fedadb (1 worker)", ours, {"WORKERS": "1"}),
        Simulator("fedadb (torch kernels)", ours, {"KERNELS": "torch"}),
        Simulator("fedadb (bfloat16)", ours, {"PRECISION": "bfloat16"}),
        Simulator("plain loop", [sys.executable, "-m", "benchmarks.speed.plain_loop"]),
        Simulator("pfl", [*torchrun, "benchmarks.speed.peer_pfl"]),
        Simulator("flower", [peers, "-m", "benchmarks.speed.peer_flower"]),
        Simulator("nvflare", [peers, "-m", "benchmarks.speed.peer_nvflare"]),
        Simulator("blazefl", [blazefl, "-m", "benchmarks.speed.peer_blazefl"]),
    ]
    return [s for s in all_simulators if has_bfloat16() or "bfloat16" not in s.name]


def gflop_of_round(work: Workload) -> float:
    """The operations of the clients' steps and of the evaluation, in billions."""
    f = work.module()
    rows = work.sampled * work.epochs * work.rows
    return (rows * step_flops(f, work.shape) + work.test * forward_flops(f, work.shape)) / 1e9


def take_turn(simulator: Simulator, work: Workload) -> Turn:
    """Run the simulator once."""
    environment = {
        "WORKLOAD": json.dumps(asdict(work)),
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


def measured_peak() -> list[float]:
    """The machine's peak in GFLOP/s; none where the loop cannot be compiled."""
    try:
        peak = measure_peak(cores())
    except KernelsUnavailable as error:
        print(f"  the machine's peak is not measured: {error}", flush=True)
        return []
    print(f"  the machine's peak: {peak:.1f} GFLOP/s", flush=True)
    return [peak]


def compare(compared: list[Simulator], work: Workload, turns: int) -> Comparison:
    taken: dict[str, list[Turn]] = {simulator.name: [] for simulator in compared}
    peaks: list[float] = []
    for number in range(1, turns + 1):
        peaks += measured_peak()
        for simulator in compared:
            turn = take_turn(simulator, work)
            taken[simulator.name].append(turn)
            print(
                f"  turn {number} {simulator.name:22} {turn.seconds:7.3f} s per round, "
                f"accuracy {turn.accuracy:.3f}",
                flush=True,
            )
    return Comparison(gflop_of_round(work), taken, peaks)


def print_table(model: str, comparison: Comparison) -> None:
    gflop, peak, median = comparison.gflop, comparison.peak, comparison.median

    def line(name: str, seconds: float, spread: str) -> str:
        share = f"{gflop / seconds / peak:8.1%}" if peak else f"{'':8}"
        return (
            f"{name:22} {seconds:7.3f}  {spread:18}  {1 / seconds:8.2f}  "
            f"{median['fedadb'] / seconds:10.2f}  {gflop / seconds:8.1f}  {share}"
        )

    title = f"{model}, {gflop:.1f} GFLOP"
    print(
        f"\n{title:22} s/round  {'spread':18}  rounds/s  rel. speed   GFLOP/s   of peak  accuracy"
    )
    if peak:
        print(line("peak", gflop / peak, ""))
    for name, turns in comparison.turns.items():
        spread = f"{min(turns).seconds:7.3f} to {max(turns).seconds:7.3f}"
        print(f"{line(name, median[name], spread)}  {turns[-1].accuracy:8.3f}")
    print()


def ratios(model: str, comparison: Comparison) -> dict[str, float]:
    """The speed of fedadb divided by that of others, and by the machine's peak."""
    median = comparison.median
    fastest = min((median[name] for name in PEERS if name in median), default=None)
    seconds = {
        "the floor": median.get("floor"),
        "the floor in the usual layout": median.get("floor (usual layout)"),
        "the fastest peer": fastest,
        "one worker": median.get("fedadb (1 worker)"),
        "torch's kernels": median.get("fedadb (torch kernels)"),
    }
    found = {f"{model} against {n}": s / median["fedadb"] for n, s in seconds.items() if s}
    if fastest and "fedadb (bfloat16)" in median:
        found[f"{model} in bfloat16 against the fastest peer"] = (
            fastest / median["fedadb (bfloat16)"]
        )
    if comparison.peak:
        speed = comparison.gflop / median["fedadb"]
        found[f"{model} as a share of the peak"] = speed / comparison.peak
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--blazefl", default="", metavar="PYTHON")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--leave-out", default="", metavar="NAME,...")
    parser.add_argument("--results", type=Path, default=Path("speed.json"))
    parser.add_argument("--plot", type=Path, default=Path("speed.png"))
    given = parser.parse_args()
    left_out = {name.strip() for name in given.leave_out.split(",") if name.strip()}
    if not shutil.which(given.blazefl) and "blazefl" not in left_out:
        print("blazefl is left out: --blazefl names no interpreter")
        left_out.add("blazefl")
    everyone = simulators(given.peers, given.blazefl)
    names = {simulator.name for simulator in everyone} - {"fedadb"} | set(WORKLOADS)
    if unknown := left_out - names:
        print(f"--leave-out: {', '.join(unknown)} is none of {', '.join(sorted(names))}")
    compared = [simulator for simulator in everyone if simulator.name not in left_out]
    found: dict[str, float] = {}
    results: dict[str, dict[str, object]] = {}
    learnt = True
    for model, work in WORKLOADS.items():
        if model in left_out:
            continue
        comparison = compare(compared, work, given.turns)
        print_table(model, comparison)
        found |= ratios(model, comparison)
        results[model] = comparison.table()
        accuracies = [turn.accuracy for taken in comparison.turns.values() for turn in taken]
        learnt &= not any(accuracy < LEARNT for accuracy in accuracies)
    if results:
        given.results.write_text(json.dumps(results, indent=1) + "\n")
        plot(results, given.plot)
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))
    if not learnt:
        sys.exit("a simulator has not learnt the task, so its time is not comparable")


if __name__ == "__main__":
    main()
