"""Disks that become full: a command ends with a sentence, and resumes when there is room."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storm.kills import Kills
from storm.traces import difference, results

PAGE = 4096
ROOM = 256 << 20  # bytes: enough for every command


class NoMount(Exception):
    """This machine does not let us mount a file system."""


@contextmanager
def small_disk(directory: Path, size: int) -> Iterator[None]:
    """A file system of so many bytes in memory."""
    directory.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "storm", str(directory))
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def enlarge(directory: Path, size: int) -> None:
    """Make room on a small disk."""
    _mount("-o", f"remount,size={size}", str(directory))


def _mount(*words: str) -> None:
    try:
        subprocess.run(["mount", *words], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoMount(str(error)) from error


def fill_disk(kills: Kills) -> None:
    """Let a command run into a full disk several times, with more room each time."""
    disk = kills.scratch / "disk"
    whole = kills.used
    with small_disk(disk, PAGE):
        out, sizes = disk / "out", sorted(kills.rng.sample(range(2, whole // PAGE), 3))
        for pages in sizes:
            enlarge(disk, pages * PAGE)
            struck = kills.start(out)
            code, said = struck.join(), struck.errors.read_text()
            words = f"a disk of {pages * PAGE} bytes"
            kills.require(code in (0, 1), f"exit code {code} on {words}: {said}")
            kills.require("Traceback" not in said, f"on {words} it prints a traceback: {said}")
            if code == 1:
                kills.require("No space left" in said, f"on {words} it says: {said}")
                kills.outcome.count("full disk")
                kills.outcome.count("strikes")
        enlarge(disk, ROOM)
        last = kills.start(out)
        code, said = last.join(), last.errors.read_text()
        kills.require(code == 0, f"exit code {code} after a full disk: {said}")
        differs = difference(kills.whole.results, results(out))
        kills.require(not differs, f"after a full disk: {differs}")
        kills.outcome.count("ends compared with an undisturbed run")
