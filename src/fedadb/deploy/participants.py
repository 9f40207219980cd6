"""Which sites take part in a run, and which node of Flower each of them is."""

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import RecordDict
from flwr.serverapp import Grid

from fedadb.core.algorithm import Round
from fedadb.core.data import DataSpec
from fedadb.core.errors import BadInput, Fault, Temporary
from fedadb.deploy.agreement import shared_settings
from fedadb.deploy.delivery import NoReply, send_and_wait
from fedadb.deploy.messages import QUERY, Request, make_content, shown, table_in
from fedadb.deploy.reply_checks import MAX_ROWS, cap_rows
from fedadb.experiment.config import Experiment
from fedadb.experiment.secure_aggregation import counts_alike
from fedadb.experiment.stored import read_sites, spec_to_table
from fedadb.secagg.fixed_point import Coding
from fedadb.storage.files import write_atomically
from fedadb.storage.run_directory import SITES

POLL_SECONDS = 0.5  # between two looks at the grid's nodes
ASK_AGAIN_SECONDS = 5.0  # after which a node that was refused is asked again
INTRODUCTION_SECONDS = 120.0  # for a site to introduce itself, for which it reads its data
MAX_NAME = 60  # characters of a name that a site gives itself
MAX_PARTITION = 10**6


class Site(NamedTuple):
    """A site that introduced itself."""

    name: str
    partition: int  # in simulations; otherwise −1
    rows: int  # 0 with secure aggregation: not known


@dataclass
class Participants:
    """The sites of a run: client k is the site `names[k]`.

    Clients are numbered by partition in a simulation, and otherwise in the order of the sites'
    names. A resumed run keeps the numbers of its first start.
    """

    grid: Grid
    experiment: Experiment
    spec: DataSpec
    out: Path  # the run's directory
    run: str = ""
    names: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # that each site says it has
    counted: list[int] = field(default_factory=list)  # by which it counts in a mean
    only_sum: int | None = None  # the rows of all sites, with secure aggregation
    attempt: int = 0  # of secure aggregation
    _introduced: dict[int, Site] = field(default_factory=dict)  # by node
    _refused: dict[str, NoReply] = field(default_factory=dict)  # the reason by name
    _ask_after: dict[int, float] = field(default_factory=dict)  # the time by refused node

    def gather(self, on_status: Callable[[str], None]) -> None:
        """Wait until all sites of the run are connected; report changes to `on_status`."""
        expected, wait = self.experiment.federation.clients, self.experiment.deployment.wait
        stored, status, end = self._stored(), "", time.monotonic() + wait
        while True:
            # At least one look at the nodes, even if the wait is shorter than that takes.
            left = max(POLL_SECONDS, end - time.monotonic())
            connected = self.connected(min(INTRODUCTION_SECONDS, left))
            if (new := self._status(expected, connected, stored)) != status:
                status = new
                on_status(f"waiting for sites: {status}")
            complete = len(connected) >= expected
            if complete and connected.keys() >= set(stored.get("names", ())):
                break
            for name, refused in self._refused.items():
                if refused.final and name in stored.get("names", [name]):
                    raise Fault(f"{name} cannot take part: {refused.reason}")
            if time.monotonic() > end:
                raise Temporary(f"not all sites connected within {wait:g} s: {status}")
            time.sleep(POLL_SECONDS)
        sites = [self._introduced[node] for node in connected.values()]
        sites = self._as_stored(sites, stored) if stored else self._in_order(sites, expected)
        self.names, self.rows = [site.name for site in sites], [site.rows for site in sites]
        deployment = self.experiment.deployment
        self.counted = self.rows if deployment.rows else cap_rows(self.rows, deployment.max_share)
        self.run = stored["run"] if stored else secrets.token_hex(16)
        self.attempt = stored.get("attempt", 0)

    def store(self) -> None:
        """Write which site is which client to the run's directory."""
        table = {
            "run": self.run,
            "names": self.names,
            "rows": self.rows,
            "data": spec_to_table(self.spec),
            **({"attempt": self.attempt} if self.attempt else {}),
        }
        write_atomically(self.out / SITES, json.dumps(table).encode())

    @property
    def coding(self) -> Coding:
        """How sites encode their replies for secure aggregation."""
        assert self.only_sum is not None, "the sites have exchanged keys"
        e = self.experiment
        largest = e.deployment.secure_range
        return Coding(len(self.names), self.only_sum, largest, counts_alike(e))

    def raise_attempt(self) -> None:
        """Let sites use new masks, also after a restart."""
        self.attempt += 1
        self.store()

    def connected(self, seconds: float = INTRODUCTION_SECONDS) -> dict[str, int]:
        """The node of each connected site by name, after new nodes have introduced themselves.

        They have so many seconds for that.
        """
        nodes = {info.node_id: info.name for info in self.grid.get_nodes()}
        self._introduced = {n: site for n, site in self._introduced.items() if n in nodes}
        new = {
            node: name
            for node, name in nodes.items()
            if node not in self._introduced
            and time.monotonic() >= self._ask_after.get(node, 0)
            # Once the run's sites are known, other sites are left alone.
            and (not self.names or not name or name in self.names)
        }
        if new:
            self._introduce(new, min(seconds, self.experiment.deployment.deadline))
            refused = new.keys() - self._introduced.keys()
            self._ask_after |= dict.fromkeys(refused, time.monotonic() + ASK_AGAIN_SECONDS)
        by_name: dict[str, int] = {}
        for node, site in self._introduced.items():
            if site.name in by_name:
                raise BadInput(
                    f"nodes {by_name[site.name]} and {node} have the same name {site.name!r}: stop "
                    "one, or give it another name"
                )
            by_name[site.name] = node
        return by_name

    def wait_for(
        self, clients: Sequence[int], needed: int, on_away: Callable[[list[str]], None]
    ) -> dict[str, int]:
        """As `connected`, after a wait for so many of these clients' sites.

        It lasts for up to `deployment.reconnect` seconds. `on_away` is called with the names of
        sites that are not there, whenever they change.
        """
        end = time.monotonic() + self.experiment.deployment.reconnect
        noted: list[str] = []
        while True:
            connected = self.connected()
            away = [self.names[k] for k in clients if self.names[k] not in connected]
            if len(clients) - len(away) >= needed or time.monotonic() >= end:
                return connected
            if away != noted:
                noted = away
                on_away(away)
            time.sleep(POLL_SECONDS)

    def request(self, k: int, round: Round, last_used: int = 0) -> dict[str, Any]:
        """The table of a request to client k; −1 if the request does not concern one client."""
        settings, data = shared_settings(self.experiment), spec_to_table(self.spec)
        made = Request(self.run, k, last_used, round, settings, data, attempt=self.attempt)
        return made._asdict()

    def _introduce(self, nodes: Mapping[int, str], seconds: float) -> None:
        """Ask nodes who they are; the grid already knows the names of those with a key."""
        content = make_content(self.request(-1, Round(0, self.experiment.rounds, 0, 0)))
        contents = dict.fromkeys(nodes, content)
        replies = send_and_wait(self.grid, contents, QUERY, "", seconds)
        for node, reply in replies.items():
            name = nodes[node] or f"node {node}"
            answer = self._admit(reply, nodes[node])
            if isinstance(answer, NoReply):
                self._refused[name] = answer
            else:
                self._refused.pop(name, None)
                self._introduced[node] = answer

    def _admit(self, reply: RecordDict | NoReply, known_name: str) -> Site | NoReply:
        """The site that introduced itself, or why it cannot take part."""
        if isinstance(reply, NoReply):
            return reply
        try:
            hidden = self.experiment.deployment.secure_aggregation
            site = _read_introduction(table_in(reply), known_name, hidden)
        except Exception as error:  # whatever a site sends, it must not stop the others
            return NoReply(shown(f"its introduction is not valid: {error}"))
        if not known_name and site.name in {other.name for other in self._introduced.values()}:
            return NoReply(f"another site has the name {site.name!r}")
        fixed = self.experiment.deployment.rows
        if fixed and fixed.get(site.name) != site.rows:
            known = fixed.get(site.name, "not listed")
            reason = f"it has {site.rows} rows, but deployment.rows.{site.name} is {known}"
            return NoReply(reason, final=True)
        return site

    def _stored(self) -> dict[str, Any]:
        path = self.out / SITES
        return dict(read_sites(path)) if path.exists() else {}

    def _in_order(self, sites: list[Site], expected: int) -> list[Site]:
        if len(sites) > expected:
            raise BadInput(
                f"{len(sites)} sites are connected ({', '.join(site.name for site in sites)}), but "
                f"federation.clients = {expected}"
            )
        simulated = all(site.partition >= 0 for site in sites)
        return sorted(sites, key=lambda site: (site.partition if simulated else 0, site.name))

    def _as_stored(self, sites: list[Site], stored: Mapping[str, Any]) -> list[Site]:
        by_name = {site.name: site for site in sites}
        known = [by_name[name] for name in stored["names"]]
        for site, rows in zip(known, stored["rows"], strict=True):
            if site.rows != rows:
                raise BadInput(
                    f"{site.name} has {site.rows} rows, but had {rows} when {self.out} was "
                    "started; choose another --out"
                )
        return known

    def _status(
        self, expected: int, connected: Mapping[str, int], stored: Mapping[str, Any]
    ) -> str:
        names = ", ".join(sorted(connected)) or "none"
        parts = [f"{len(connected)} of {expected} are connected ({names})"]
        if absent := [name for name in stored.get("names", ()) if name not in connected]:
            parts.append(f"the run began with {', '.join(absent)} and needs them again")
        parts += [f"{name}: {refused.reason}" for name, refused in self._refused.items()]
        return "; ".join(parts)


def _read_introduction(table: Mapping[str, Any], known_name: str, hidden_rows: bool) -> Site:
    """The site that a node says it is; a name that the server knows by its key takes precedence."""
    partition, rows = _whole(table, "partition"), _whole(table, "rows")
    given = table["site"]
    if not isinstance(given, str):
        raise ValueError("`site` must be a text")
    name = known_name or given or (f"client-{partition}" if partition >= 0 else "")
    if not name or not name.isprintable():
        raise ValueError("its node configuration must set `site` to a name")
    if len(name) > MAX_NAME and not known_name:
        raise ValueError(f"its name {name[:MAX_NAME]!r}… has more than {MAX_NAME} characters")
    if not -1 <= partition <= MAX_PARTITION:
        raise ValueError("its partition does not exist")
    if hidden_rows:
        return Site(name, partition, 0)
    if not 1 <= rows <= MAX_ROWS:
        raise ValueError(f"it has {rows if abs(rows) <= MAX_ROWS else 'impossibly many'} rows")
    return Site(name, partition, rows)


def _whole(table: Mapping[str, Any], key: str) -> int:
    value = table[key]
    if type(value) is not int:
        raise ValueError(f"{key} must be a whole number, not {type(value).__name__}")
    return value
