"""searches/NAME.json beside runs: which of them are the trials of a search for settings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import TypeAdapter

from fedadb.core.errors import Fault
from fedadb.storage.files import read_json, write_atomically

SEARCHES = "searches"

# "stopped": it was far behind the others. "diverged": its weights became infinite or nan.
State: TypeAlias = Literal["running", "finished", "stopped", "diverged"]


class Trial(NamedTuple):
    """One run of a search."""

    run: str  # the name of its directory, beside `searches`
    values: Mapping[str, Any]  # of the searched settings, by dotted name
    state: State = "running"
    rounds: int = 0  # that it trained
    score: float | None = None  # validation accuracy, the mean of the best five rounds

    @property
    def eligible(self) -> bool:
        """Whether its settings may be chosen."""
        return self.state == "finished" and self.score is not None


class Search(NamedTuple):
    """A search for the best settings of one method in one experiment."""

    algorithm: str
    experiment: Mapping[str, Any]  # the resolved table; the searched settings are its defaults
    space: Mapping[str, Any]  # what is searched: {low, high, scale} or a list of values, by setting
    sampler: str
    pruner: str
    budget: int  # how many runs the method is given
    trials: Sequence[Trial] = ()
    complete: bool = False  # whether all trials were carried out

    @property
    def tried(self) -> Sequence[Trial]:
        """The trials within the budget; an earlier search may have had a larger one."""
        return self.trials[: self.budget]

    @property
    def best(self) -> Trial | None:
        """The finished trial of the highest score; of equal ones, the earliest."""
        finished = [trial for trial in self.tried if trial.eligible]
        return max(finished, key=lambda trial: trial.score or 0.0, default=None)


FORM: TypeAdapter[Search] = TypeAdapter(Search)


def search_file(out: Path, name: str) -> Path:
    """The file of a search whose runs are in `out`."""
    return out / SEARCHES / f"{name}.json"


def write_search(path: Path, search: Search) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = {**search._asdict(), "trials": [trial._asdict() for trial in search.trials]}
    write_atomically(path, json.dumps(table, indent=1).encode())


def read_search(path: Path) -> Search:
    """The search in a file; a Fault if the file is damaged."""
    try:
        return read_json(path, FORM)
    except Fault as error:
        raise Fault(f"{error}; delete it, and `fedadb tune` makes it anew of the runs") from error


def read_searches(directory: Path) -> dict[Path, Search]:
    """All searches whose runs are in the directory, by their files."""
    return {path: read_search(path) for path in sorted((directory / SEARCHES).glob("*.json"))}
