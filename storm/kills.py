"""Strikes commands at random moments, lets them resume, and compares their ends with whole ones.

The commands run in forks of this process, which has loaded what they need.
"""

import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import optuna  # noqa: F401

import fedadb.cli.display
import fedadb.experiment.search
import fedadb.observers
import fedadb.report.plots
import fedadb.report.tuning  # noqa: F401
from storm.moments import DISK_ERRORS, Moment, fail_write, signal_itself, strike_at
from storm.outcome import Outcome
from storm.targets import Target, saved_rounds
from storm.traces import POLL, children, difference, is_stopped, orphans, results
from tests.command_line import start

END_SECONDS = 5.0  # within which SIGTERM and SIGINT end a command, and a killed one's children end
GUARD = 600.0  # seconds after which a command counts as hung
KINDS = {
    "KILL": 5, "TERM": 3, "INT": 3, "STOP": 1, "failing write": 3,
    "KILL of a worker": 3, "STOP of a worker": 1, "TERM of a worker": 1,
}  # fmt: skip
CODES = {"TERM": 143, "INT": 130}


class Whole(NamedTuple):
    """A command that nothing struck: what it leaves, how long it takes, what it does to files."""

    results: dict[str, str]
    seconds: float
    operations: int
    writes: int


@dataclass
class Struck:
    """One started command, and how it is told when it was struck."""

    process: BaseProcess
    errors: Path
    when: Callable[[], float]  # the time of the strike; 0 if there was none

    def join(self) -> int | None:
        """The exit code; None if the command hangs, which is then ended."""
        self.process.join(GUARD)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            return None
        return self.process.exitcode


class Kills:
    """Strikes one target again and again."""

    def __init__(self, target: Target, rng: random.Random, outcome: Outcome, scratch: Path) -> None:
        self.target, self.rng, self.outcome, self.scratch = target, rng, outcome, scratch
        self.started = 0
        self.used = 0  # bytes that the whole command leaves on the disk
        self.known = set(children(os.getpid()))  # of this process, before any command
        scratch.mkdir(parents=True)
        self.whole = self._whole()

    def case(self, strikes: int) -> None:
        """Strike a command so many times, let it resume to its end, and compare."""
        out = self.scratch / "out"
        done: list[str] = []
        for _ in range(strikes):
            before = saved_rounds(out)
            done.append(self._strike(self._kind(), out))
            self.require(saved_rounds(out) >= before, f"rounds were lost after {done}")
        self.compare_end(out, done)

    def compare_end(self, out: Path, done: Sequence[str]) -> None:
        """Let the command resume to its end, and compare that with the end of a whole one."""
        last = self.start(out)
        code, said = last.join(), last.errors.read_text()
        self.require(code == 0, f"exit code {code} at the end, after {done}: {said}")
        self.require(not said, f"after {done} it says: {said}")
        self._require_no_orphans(done)
        differs = difference(self.whole.results, results(out))
        self.require(not differs, f"after {done}: {differs}")
        self.outcome.count("ends compared with an undisturbed run")
        shutil.rmtree(out)

    # one strike

    def _kind(self) -> str:
        kinds = [kind for kind in KINDS if self.target.workers or "worker" not in kind]
        return self.rng.choices(kinds, [KINDS[kind] for kind in kinds])[0]

    def _strike(self, kind: str, out: Path) -> str:
        """Start the command and strike it; returns what was done, in a few words."""
        if kind == "failing write":
            return self.fail_write(1 + int(self.whole.writes * early(self.rng)), out)
        if "worker" not in kind and self.rng.random() < 0.5:
            return self.strike_at(kind, 1 + int(self.whole.operations * early(self.rng)), out)
        delay = self.whole.seconds * early(self.rng)
        struck = self.start(out)
        time.sleep(delay)
        if not self._send(kind, struck):
            self.outcome.count("ended before the strike")
        return self._ended(kind, f"{kind} after {delay:.3f} s", struck)

    def strike_at(self, kind: str, n: int, out: Path) -> str:
        """Start the command, which sends itself the signal before its n-th operation on files."""
        struck = self.start(out, Moment(out, n, signal_itself(getattr(signal, f"SIG{kind}"))))
        if kind == "STOP":
            while struck.process.is_alive() and not is_stopped(struck.process.pid or 0):
                time.sleep(POLL)
        return self._ended(kind, f"{kind} at operation {n}", struck)

    def fail_write(self, n: int, out: Path) -> str:
        """Start the command, whose n-th write fails."""
        number = self.rng.choice(DISK_ERRORS)
        struck = self.start(out, Moment(out, n, fail_write(number), writes_only=True))
        return self._ended("failing write", f"{os.strerror(number)} at write {n}", struck)

    def _ended(self, kind: str, words: str, struck: Struck) -> str:
        """Wait for the end of a command that was struck, and check it."""
        if kind == "STOP":
            self._continue(struck.process.pid or 0)
        code = struck.join()
        struck_at = struck.when()
        if struck_at:
            self.outcome.count(kind)
            self.outcome.count("strikes")
        self._check(kind, words, struck, code, time.monotonic() - struck_at if struck_at else 0.0)
        self._require_no_orphans([words])
        return words

    def _send(self, kind: str, struck: Struck) -> bool:
        """Send the signal to the command or to one of its workers; False if it has ended."""
        number, pid = getattr(signal, f"SIG{kind.partition(' ')[0]}"), struck.process.pid or 0
        workers = children(pid)
        if "worker" in kind:
            if not workers:
                return False
            pid = self.rng.choice(workers)
        if not struck.process.is_alive():
            return False
        now = time.monotonic()
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        struck.when = lambda: now
        if kind == "STOP of a worker":
            self._continue(pid)
        return True

    def _continue(self, pid: int) -> None:
        time.sleep(self.rng.uniform(0, 0.5))
        with suppress(ProcessLookupError):  # it had ended before it was stopped
            os.kill(pid, signal.SIGCONT)

    def _check(
        self, kind: str, words: str, struck: Struck, code: int | None, seconds: float
    ) -> None:
        """Whether the command ended as it should after this strike."""
        said = struck.errors.read_text()
        self.require(code is not None, f"it hangs after {words}")
        self.require("Traceback" not in said, f"after {words} it prints a traceback: {said}")
        if code == 0 or code is None:
            return
        if kind == "KILL":
            self.require(code == -signal.SIGKILL, f"exit code {code} after {words}: {said}")
        elif kind in CODES:
            self._check_interrupted(kind, words, code, said, seconds)
        elif kind == "failing write":
            one_sentence = said.startswith("fedadb: ") and said.count("fedadb: ") <= 3
            self.require(code == 1 and one_sentence, f"exit code {code} after {words}: {said}")
        else:
            self.require(False, f"exit code {code} after {words}: {said}")

    def _check_interrupted(
        self, kind: str, words: str, code: int, said: str, seconds: float
    ) -> None:
        if code == -getattr(signal, f"SIG{kind}") and not said:
            self.outcome.count(f"{kind} before the command began")
            return
        self.require(code == CODES[kind], f"exit code {code} after {words}: {said}")
        resumes = "this resumes: fedadb " in said or said == "fedadb: stopped\n"
        self.require(resumes, f"after {words} it does not name the command: {said}")
        self.require(seconds <= END_SECONDS, f"it ended {seconds:.1f} s after {words}")
        slowest = self.outcome.measured.get("slowest end after TERM or INT, s", 0.0)
        self.outcome.measured["slowest end after TERM or INT, s"] = max(slowest, round(seconds, 2))

    # starting

    def _whole(self) -> Whole:
        out, counts = self.scratch / "out", []
        for writes_only in (False, True):
            shutil.rmtree(out, ignore_errors=True)
            began, counter = time.monotonic(), multiprocessing.get_context("fork").Value("l", 0)
            moment = Moment(out, -1, writes_only=writes_only)
            process = start(*self.target.command(out), before=partial(strike_at, moment, counter))
            process.join()
            seconds = time.monotonic() - began
            assert process.exitcode == 0, f"{self.target.name} fails undisturbed"
            counts.append(counter.value)
        self.used = sum(path.stat().st_blocks * 512 for path in out.rglob("*"))
        whole = Whole(results(out), seconds, *counts)
        shutil.rmtree(out)
        return whole

    def start(self, out: Path, moment: Moment | None = None) -> Struck:
        self.started += 1
        errors = self.scratch / f"errors-{self.started}"
        errors.touch()
        context = multiprocessing.get_context("fork")
        if moment is None:
            return Struck(start(*self.target.command(out), errors=errors), errors, lambda: 0.0)
        counter, at = context.Value("l", 0), context.Value("d", 0.0)

        def strike() -> None:
            at.value = time.monotonic()
            moment.strike()

        before = partial(strike_at, moment._replace(strike=strike), counter)
        process = start(*self.target.command(out), errors=errors, before=before)
        return Struck(process, errors, lambda: at.value)

    def require(self, holds: bool, sentence: str) -> None:
        self.outcome.require(holds, f"{self.target.name}: {sentence}")

    def _require_no_orphans(self, done: Sequence[str]) -> None:
        left = orphans(self.known, END_SECONDS)
        self.require(not left, f"{len(left)} processes are left after {done}")


def early(rng: random.Random) -> float:
    """A share of a command's whole course; a command that resumes has less of it left."""
    return float(rng.random() ** 1.5)
