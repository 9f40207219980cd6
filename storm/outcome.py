"""What a part of the storm counted, what it found, and how it ends."""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPORT_SECONDS = 30.0  # between two lines of progress


@dataclass
class Outcome:
    """The counts of one part. A violation is a promise that was broken."""

    part: str
    seed: int
    again: str  # the command that repeats the part
    counts: Counter[str] = field(default_factory=Counter)
    measured: dict[str, Any] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _reported: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        print(f"{self.part}: seed {self.seed}; to repeat: {self.again}", flush=True)

    def count(self, name: str, times: int = 1) -> None:
        """Count an event, and now and then show how far the part is."""
        self.counts[name] += times
        if time.monotonic() - self._reported > REPORT_SECONDS:
            self._reported = time.monotonic()
            shown = ", ".join(f"{key} {value}" for key, value in self.counts.items())
            print(f"{self.part}, {self.seconds:.0f} s: {shown}", flush=True)

    @property
    def seconds(self) -> float:
        """The time since the part began."""
        return time.monotonic() - self._began

    def violation(self, sentence: str) -> None:
        """Note that a promise was broken."""
        self.violations.append(sentence)
        print(f"VIOLATION: {sentence}", file=sys.stderr, flush=True)

    def require(self, holds: bool, sentence: str) -> bool:
        """Note a violation unless the condition holds; returns the condition."""
        if not holds:
            self.violation(sentence)
        return holds

    def leave_out(self, sentence: str) -> None:
        """Say what this machine does not allow to be tried."""
        self.not_run.append(sentence)
        print(f"not run: {sentence}", flush=True)

    def finish(self, out: Path) -> bool:
        """Print the table, write it as JSON, and return whether every promise was kept."""
        out.mkdir(parents=True, exist_ok=True)
        table = {
            "part": self.part,
            "seed": self.seed,
            "again": self.again,
            "seconds": round(self.seconds, 1),
            "counts": dict(self.counts),
            "measured": self.measured,
            "not_run": self.not_run,
            "violations": self.violations,
        }
        file = out / f"{self.part}-{self.seed}.json"
        file.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
        print("\n".join(_lines({**self.counts, **self.measured}.items())))
        print(f"{len(self.violations)} violations in {self.seconds:.0f} s; counts: {file}")
        if self.violations:
            print(f"repeat with: {self.again}", file=sys.stderr)
        return not self.violations


def _lines(rows: Iterable[tuple[str, Any]]) -> list[str]:
    shown = [(name, str(value)) for name, value in rows]
    width = max((len(name) for name, _ in shown), default=0)
    return [f"  {name:<{width}}  {value}" for name, value in shown]
