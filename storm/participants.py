"""Strikes the server and the sites of a real federation at random moments."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

from fedadb.deploy.ports import free_port
from storm.federation import SERVER, Federation, experiment
from storm.kills import CODES, END_SECONDS
from storm.outcome import Outcome
from storm.traces import adopt_orphans, orphans, results

SITES, ROUNDS = 2, 12
KINDS = ("KILL", "KILL", "TERM", "INT", "STOP")
STRIKES = 6  # of one federation
SAME = ("model.safetensors", "rounds.jsonl")


class StruckFederation:
    """One federation, struck several times."""

    def __init__(self, outcome: Outcome, rng: random.Random, directory: Path) -> None:
        self.outcome, self.rng, self.done = outcome, rng, list[str]()
        self._rounds = 0  # after which the next strike comes
        self.federation = Federation(directory, experiment(SITES, ROUNDS), free_port())
        directory.mkdir(parents=True)
        self.federation.prepare()

    def carry_out(self, strikes: int) -> None:
        """Strike, start again what ended, and compare the end."""
        federation = self.federation
        for name in federation.names:
            federation.start(name)
        try:
            for _ in range(strikes):
                self._rounds = federation.rounds() + self.rng.randrange(3)
                if not self.require(federation.wait(self._is_there), "it hangs"):
                    return
                time.sleep(self.rng.uniform(0, 1))
                if federation.running[SERVER].poll() is not None:
                    break
                self._strike(self.rng.choice(federation.names), self.rng.choice(KINDS))
            if not self.require(federation.wait(lambda: False), "it hangs"):
                return
        finally:
            federation.stop()
        code = federation.running[SERVER].returncode
        self.require(code == 0, f"the server ends with {code}: {federation.log(SERVER)[-400:]}")
        expected, found = federation.expected(), results(federation.out)
        for file in SAME:
            self.require(found.get(file) == expected[file], f"another {file}")
        self.outcome.count("ends compared with a simulation")
        left = orphans(set(), END_SECONDS)
        self.require(not left, f"{len(left)} processes are left")
        shutil.rmtree(federation.directory)

    def _is_there(self) -> bool:
        return self.federation.rounds() >= self._rounds

    def _strike(self, name: str, kind: str) -> None:
        self.done.append(f"{kind} of {name} in round {self.federation.rounds() + 1}")
        process, number = self.federation.running[name], getattr(signal, f"SIG{kind}")
        if process.poll() is not None:
            return
        began = time.monotonic()
        process.send_signal(number)
        self.outcome.count("strikes")
        self.outcome.count(f"{kind} of a {name.partition('-')[0]}")
        if kind == "STOP":
            time.sleep(self.rng.uniform(0, 3))
            os.kill(process.pid, signal.SIGCONT)
            return
        code = process.wait(600)
        seconds = time.monotonic() - began
        if kind in CODES and code != 0:  # a site that is connected ends with 0
            self.require(code == CODES[kind], f"exit code {code}")
        if kind in CODES:
            key = f"slowest end of a {name.partition('-')[0]} after TERM or INT, s"
            slowest = self.outcome.measured.get(key, 0.0)
            self.outcome.measured[key] = max(slowest, round(seconds, 2))
            self.require(seconds <= END_SECONDS, f"it ends after {seconds:.1f} s")
            said = self.federation.log(name).splitlines()[-1:]
            self.require("fedadb deploy" in "".join(said), f"it does not name the command: {said}")
        self.federation.start(name)

    def require(self, holds: bool, sentence: str) -> bool:
        return self.outcome.require(holds, f"a federation, after {self.done}: {sentence}")


def storm_participants(outcome: Outcome, times: int, scratch: Path) -> None:
    """Strike federations until there were so many strikes."""
    adopt_orphans()
    rng, n = random.Random(outcome.seed), 0
    while outcome.counts["strikes"] < times:
        n += 1
        StruckFederation(outcome, rng, scratch / f"federation-{n}").carry_out(STRIKES)
