"""Who takes part in a real federation: which node is which client, for as long as the run lasts."""

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from flwr.serverapp import Grid

from fedadb.core.algorithm import Round
from fedadb.core.errors import BadInput, Fault
from fedadb.storage.files import write_atomically
from fedadb.storage.run_directory import SITES
from fedadb.core.task import Task
from fedadb.deploy import wire
from fedadb.deploy.exchange import QUERY, exchange
from fedadb.deploy.task import settings
from fedadb.experiment.config import Experiment

PAUSE = 0.5  # seconds between looks for nodes
AGAIN = 5.0  # seconds before a node that was refused is asked again
ANSWER = 120.0  # seconds in which a site must introduce itself: it reads its data for that


class Known(NamedTuple):
    name: str
    partition: int  # in simulations; else −1
    rows: int


@dataclass
class Sites:
    """The nodes of the grid by the names of their sites."""

    grid: Grid
    experiment: Experiment
    task: Task
    out: Path
    run: str = ""
    names: list[str] = field(default_factory=list)  # of client 0, 1, …
    rows: list[int] = field(default_factory=list)
    _known: dict[int, Known] = field(default_factory=dict)  # by node
    _refused: dict[str, str] = field(default_factory=dict)
    _not_before: dict[int, float] = field(default_factory=dict)  # when to ask a node again

    def gather(self, tell: Callable[[str], None]) -> None:
        """Wait for as many sites as the experiment has clients; the same as before, on a restart.

        A simulation's clients are its partitions; others' are the sites in the order of names.
        """
        expected, end = self.experiment.federation.clients, time.monotonic() + self._wait
        stored, told = self._stored(), ""
        while True:
            here = self.here()
            if (status := self._status(expected, here, stored)) != told:
                told = status
                tell(f"waiting: {told}")
            if len(here) >= expected and (not stored or set(stored["names"]) <= here.keys()):
                break
            if time.monotonic() > end:
                raise Fault(f"not all sites came within {self._wait:g} s: {told}")
            time.sleep(PAUSE)
        known = [self._known[node] for node in here.values()]
        simulated = all(one.partition >= 0 for one in known)
        known.sort(key=lambda one: (one.partition if simulated else 0, one.name))
        if stored:
            order = {name: k for k, name in enumerate(stored["names"])}
            known = sorted((one for one in known if one.name in order), key=lambda o: order[o.name])
            for one, rows in zip(known, stored["rows"], strict=True):
                if one.rows != rows:
                    raise BadInput(
                        f"{one.name} has {one.rows} rows and had {rows} when {self.out} was begun; "
                        "use another --out"
                    )
        elif len(known) > expected:
            raise BadInput(
                f"{len(known)} sites are connected ({', '.join(o.name for o in known)}) and "
                f"federation.clients = {expected}"
            )
        self.names, self.rows = [one.name for one in known], [one.rows for one in known]
        self.run = stored["run"] if stored else secrets.token_hex(16)

    def keep(self) -> None:
        """Write down who is who: for whoever goes on with the run."""
        about = {"names": self.names, "rows": self.rows, "task": self.task.table()}
        table = {"run": self.run, **about}
        write_atomically(self.out / SITES, json.dumps(table).encode())

    def here(self) -> dict[str, int]:
        """The node of each site that is connected now; new ones are asked who they are."""
        infos = {info.node_id: info.name for info in self.grid.get_nodes()}
        self._known = {node: one for node, one in self._known.items() if node in infos}
        now = time.monotonic()
        strangers = {
            node: name
            for node, name in infos.items()
            if node not in self._known
            and now >= self._not_before.get(node, 0)
            # While a run goes on, only those who are part of it are of interest.
            and (not self.names or not name or name in self.names)
        }
        if strangers:
            self._meet(strangers)
            refused = strangers.keys() - self._known.keys()
            self._not_before |= dict.fromkeys(refused, time.monotonic() + AGAIN)
        found: dict[str, int] = {}
        for node, one in self._known.items():
            if one.name in found:
                raise BadInput(
                    f"nodes {found[one.name]} and {node} both say that they are {one.name!r}: stop "
                    "one, or give it another name"
                )
            found[one.name] = node
        return found

    def order(self, k: int, round: Round, used: int = 0) -> dict[str, Any]:
        about = settings(self.experiment), self.task.table()
        return wire.Order(self.run, k, used, round, *about)._asdict()

    @property
    def _wait(self) -> float:
        return self.experiment.deployment.wait

    def _meet(self, infos: dict[int, str]) -> None:
        question = wire.content(self.order(-1, Round(0, self.experiment.rounds, 0, 0)))
        answers = exchange(self.grid, dict.fromkeys(infos, question), QUERY, "", ANSWER)
        for node, answer in answers.items():
            name = infos[node]  # what the server knows by the node's key goes before what it says
            if isinstance(answer, str):
                self._refused[name or f"node {node}"] = answer
                continue
            try:
                known = _introduced(wire.about(answer), name)
            except (Fault, KeyError, TypeError, ValueError) as error:
                self._refused[name or f"node {node}"] = f"does not say who it is: {error}"
                continue
            self._refused.pop(known.name, None)
            self._known[node] = known

    def _stored(self) -> dict[str, Any]:
        path = self.out / SITES
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _status(self, expected: int, here: dict[str, int], stored: dict[str, Any]) -> str:
        absent = [name for name in stored.get("names", ()) if name not in here]
        there = ", ".join(sorted(here)) or "nobody"
        said = f"{len(here)} of {expected} sites are here ({there})"
        if absent:
            said += f"; {', '.join(absent)} took part before and must come back"
        for name, reason in self._refused.items():
            said += f"; {name}: {reason}"
        return said


def _introduced(said: dict[str, Any], name: str) -> Known:
    """What a node says of itself, under the name that the server has for its key if it has one."""
    partition, rows = int(said["partition"]), int(said["rows"])
    called = name or str(said["site"]) or (f"client-{partition}" if partition >= 0 else "")
    if not called or not called.isprintable():
        raise ValueError("its configuration must say site")
    if rows < 1:
        raise ValueError(f"it has {rows} rows")
    return Known(called, partition, rows)
