"""Gives readers a million changed inputs: each is read, or refused in one sentence.

Every reader has a process of its own, so that a crash of it is found too. An input follows from the
seed, the reader's name and its number.
"""

import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from fedadb.engine.process import end_with_parent
from storm.mutations import mutated, shrunk
from storm.outcome import Outcome
from storm.readers import READERS
from storm.readers.reader import REFUSED, Reader

CPU_SECONDS = 20  # of one input; more is a hang
MEMORY = 2 << 30  # bytes beyond what the process has at its start
SENTENCE = 20_000  # characters of a refusal
REPORT_EVERY = 500  # inputs
MAX_FINDINGS = 5  # of one reader
WRITING = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.symlink", "os.truncate")


class Hang(BaseException):
    """A reader took too long."""


class Escape(BaseException):
    """A reader changed something outside of its directory."""


def input_of(name: str, reader: Reader, seed: int, number: int) -> bytes:
    """The input with this number."""
    return mutated(reader.seeds, random.Random(f"{seed}/{name}/{number}"))


def finding(reader: Reader, data: bytes, directory: Path) -> str:
    """What went wrong with the input: an error and its place; empty if nothing did."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        with _only_below(directory):
            reader.read(data, directory)
    except REFUSED as error:
        length = len(str(error))
        return "" if 0 < length < SENTENCE else f"a refusal of {length} characters"
    except (Exception, Hang, Escape) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        ours = [f for f in traceback.extract_tb(error.__traceback__) if "fedadb" in f.filename]
        place = ours[-1] if ours else last
        return f"{type(error).__name__} in {Path(place.filename).name}, {place.name}: {error}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def _kind(found: str) -> str:
    """A finding without what depends on the input."""
    return found.partition(": ")[0]


_below: list[str] = []  # where the active reader may write; empty: everywhere


@contextmanager
def _only_below(directory: Path) -> Iterator[None]:
    """Let nothing be written elsewhere within the block."""
    _below[:] = [str(directory), "/dev/null", "/proc"]
    try:
        yield
    finally:
        _below.clear()


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if not _below or (event != "open" and event not in WRITING):
        return
    path, flags = arguments[0], arguments[2] if event == "open" else os.O_WRONLY
    if isinstance(path, (str, bytes, os.PathLike)) and flags & (os.O_WRONLY | os.O_RDWR):
        full = os.path.abspath(os.fsdecode(path))
        if not full.startswith(tuple(_below)):
            raise Escape(f"{event} {full}")


def _on_alarm(number: int, _: object) -> None:
    raise Hang(f"over {CPU_SECONDS} s")


def limit() -> None:
    """From now on, limit the time and the memory of readers, and where they may write."""
    signal.signal(signal.SIGPROF, _on_alarm)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    sys.addaudithook(_on_event)


def _serve(name: str, seed: int, inputs: range, scratch: Path, pipe: Connection) -> None:
    """Read so many inputs, and send counts and findings."""
    end_with_parent()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    reader, directory, known = READERS[name], scratch / "d", set[str]()
    tempfile.tempdir = str(scratch)
    limit()
    for number in inputs:
        if number % REPORT_EVERY == 0:
            pipe.send(("at", number))
        data = input_of(name, reader, seed, number)
        found = finding(reader, data, directory)
        if found and _kind(found) not in known and len(known) < MAX_FINDINGS:
            known.add(_kind(found))

            def fails(shorter: bytes, kind: str = _kind(found)) -> bool:
                return _kind(finding(reader, shorter, directory)) == kind

            small = shrunk(data, fails)[:300]
            pipe.send(("found", f"input {number}: {found}; shortened: {small!r}"))
    pipe.send(("done", _peak()))
    pipe.close()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def fuzz_reader(name: str, inputs: int, outcome: Outcome, scratch: Path) -> None:
    """Give one reader so many inputs, and note what was found."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    place = scratch / name.replace(" ", "-").replace("/", "-")
    place.mkdir(parents=True)
    process = context.Process(
        target=_serve, args=(name, outcome.seed, range(inputs), place, theirs), daemon=True
    )
    process.start()
    theirs.close()
    at, done = 0, False
    try:
        while True:
            kind, value = ours.recv()
            if kind == "at":
                outcome.count("inputs", int(value) - at)
                at = int(value)
            elif kind == "found":
                outcome.violation(f"{name}, {value}")
            else:
                outcome.count("inputs", inputs - at)
                outcome.measured[f"{name}: inputs; peak of memory"] = f"{inputs}; {value} MB"
                done = True
    except EOFError:
        process.join()
    if not done:
        outcome.violation(
            f"{name}: the process ended with {process.exitcode} at one of the inputs {at} to "
            f"{at + REPORT_EVERY}"
        )
    shutil.rmtree(place)


def storm_fuzz(outcome: Outcome, inputs: int, scratch: Path, only: str = "") -> None:
    """Divide the inputs among all readers by their shares."""
    chosen = {name: reader for name, reader in READERS.items() if only in name}
    total = sum(reader.share for reader in chosen.values())
    for name, reader in chosen.items():
        fuzz_reader(name, max(1, round(inputs * reader.share / total)), outcome, scratch)
