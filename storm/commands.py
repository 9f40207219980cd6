"""The part `kills` for everything that runs on one machine: all targets in turn."""

import random
from pathlib import Path

from storm.disks import NoMount, fill_disk
from storm.kills import Kills
from storm.outcome import Outcome
from storm.targets import TARGETS
from storm.traces import adopt_orphans

FULL_DISKS = 12  # cases between two of them


def storm_commands(outcome: Outcome, times: int, scratch: Path) -> None:
    """Strike commands until there were so many strikes."""
    adopt_orphans()
    rng = random.Random(outcome.seed)
    stormed = [Kills(t, rng, outcome, scratch / str(n)) for n, t in enumerate(TARGETS)]
    weights = [target.weight for target in TARGETS]
    disks, case = True, 0
    while outcome.counts["strikes"] < times:
        (kills,) = rng.choices(stormed, weights)
        kills.case(rng.randint(3, 8))
        case += 1
        if disks and case % FULL_DISKS == 1:
            try:
                fill_disk(kills)
            except NoMount as error:
                outcome.leave_out(f"full disks: {error}")
                disks = False
