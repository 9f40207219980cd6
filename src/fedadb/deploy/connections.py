"""The open connections of the proxy, and the limits of what its clients may occupy.

A client that has not proved to be a site must not keep sites away, so it can neither occupy a
connection for long nor make the proxy refuse a new one: the oldest such connection makes room.
"""

import asyncio
import ipaddress
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

Task = asyncio.Task[None]
_Groups = defaultdict[str, dict[Task, None]]  # in each group, the oldest task comes first


@dataclass(frozen=True)
class Limits:
    """Times are in seconds, sizes in bytes."""

    handshake: float = 10.0  # of TLS
    first_request: float = 10.0  # from the handshake until the head of a request is complete
    idle: float = 75.0  # from a response until the head of the next request is complete
    # A body or a response must not pause for longer than `grace`, nor fall that far behind a
    # transfer at `rate`. The SuperLink refuses a signature after 305 s; most bodies have 5 MB.
    grace: float = 10.0
    rate: float = 16 << 10
    response: float = 300.0  # of the SuperLink
    close: float = 2.0  # for a client to close its side of a connection

    strangers: int = 256  # connections without a valid signature
    per_address: int = 32  # of these, for each address
    per_site: int = 16  # connections
    requests: int = 8  # of a site at the same time; further ones wait

    body: int = 8 << 20  # Flower sends large messages in parts of 5 MB
    small_body: int = 64 << 10  # of requests that upload nothing


class OpenConnections:
    """The tasks that serve open connections: per address at first, and per site once it signs."""

    def __init__(self, limits: Limits, log: Callable[[str], None]) -> None:
        self.limits = limits
        self._log = log
        self._strangers: _Groups = defaultdict(dict)
        self._sites: _Groups = defaultdict(dict)
        self._group: dict[Task, tuple[_Groups, str]] = {}

    def add(self, task: Task, address: str) -> None:
        """Count a connection before its TLS handshake."""
        group = network(address)
        self._put(task, self._strangers, group)
        if len(self._strangers[group]) > self.limits.per_address:
            self._close_oldest(self._strangers, group)
        elif sum(map(len, self._strangers.values())) > self.limits.strangers:
            self.make_room()

    def recognise(self, task: Task, site: str) -> None:
        """Count a connection for a site instead, after a valid signature."""
        if self._group.get(task) == (self._sites, site):
            return
        self.remove(task)
        self._put(task, self._sites, site)
        if len(self._sites[site]) > self.limits.per_site:
            # A site that lost its power has connections that nobody will close.
            self._close_oldest(self._sites, site)

    def remove(self, task: Task) -> None:
        if task in self._group:
            groups, name = self._group.pop(task)
            del groups[name][task]
            if not groups[name]:
                del groups[name]

    def make_room(self) -> None:
        """Close the oldest connection of the address that has the most without a signature."""
        if self._strangers:
            largest = max(self._strangers, key=lambda name: len(self._strangers[name]))
            self._close_oldest(self._strangers, largest)

    def _put(self, task: Task, groups: _Groups, name: str) -> None:
        groups[name][task] = None
        self._group[task] = (groups, name)

    def _close_oldest(self, groups: _Groups, name: str) -> None:
        oldest = next(iter(groups[name]))
        self.remove(oldest)
        oldest.cancel()
        self._log(f"{name}: closed its oldest connection, because it has too many")


def network(address: str) -> str:
    """The address, or for IPv6 the /64 network, in which one client has any number of them."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))
