"""Network namespaces that are joined by a relay which delays and loses packets.

`tc netem` does the same in the kernel, but many kernels lack it. Here every namespace has a tunnel
device, and this process passes the packets from one to the other.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # from Linux's if_tun.h
PACKET = 65536  # bytes
NETWORK = "10.77.0"


class NoNamespaces(Exception):
    """This machine does not let us make network namespaces."""


def _ip(*words: str) -> None:
    try:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        raise NoNamespaces(f"`ip {' '.join(words)}`: {detail.strip()}") from error


@dataclass
class Link:
    """What happens to packets."""

    delay: float = 0.0  # seconds
    loss: float = 0.0  # share of packets
    cut: set[int] = field(default_factory=set)  # places that are cut off


class Relay:
    """Namespaces with the addresses 10.77.0.1, 10.77.0.2, …"""

    def __init__(self, places: int, link: Link, seed: int) -> None:
        self.link, self.places = link, range(1, places + 1)
        self.passed = self.lost = 0
        self._rng, self._tunnels = random.Random(seed), dict[int, int]()
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._pass_packets, daemon=True)

    def __enter__(self) -> "Relay":
        try:
            for k in self.places:
                self._make(k)
        except (NoNamespaces, OSError) as error:
            self.__exit__()
            raise NoNamespaces(str(error)) from error
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        for descriptor in self._tunnels.values():
            os.close(descriptor)
        for k in self.places:
            with suppress(NoNamespaces):
                _ip("netns", "delete", self.namespace(k))

    def namespace(self, k: int) -> str:
        """The name of a place's namespace, which no other process uses."""
        return f"storm-{os.getpid()}-{k}"

    def address(self, k: int) -> str:
        """The address of a place."""
        return f"{NETWORK}.{k}"

    def inside(self, k: int) -> Sequence[str]:
        """The words before a command that is to run in that place."""
        return ["ip", "netns", "exec", self.namespace(k)]

    def _make(self, k: int) -> None:
        name, device = self.namespace(k), f"storm{k}"
        _ip("netns", "add", name)
        descriptor = os.open("/dev/net/tun", os.O_RDWR)
        self._tunnels[k] = descriptor
        request = struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI)
        fcntl.ioctl(descriptor, TUNSETIFF, request)
        os.set_blocking(descriptor, False)
        _ip("link", "set", device, "netns", name)
        _ip("-n", name, "address", "add", f"{self.address(k)}/24", "dev", device)
        _ip("-n", name, "link", "set", device, "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def _pass_packets(self) -> None:
        order = 0
        by_descriptor = {descriptor: k for k, descriptor in self._tunnels.items()}
        while not self._ended.is_set():
            due = self._waiting[0][0] - time.monotonic() if self._waiting else 0.2
            ready, _, _ = select.select(list(by_descriptor), [], [], max(0.0, min(due, 0.2)))
            for descriptor in ready:
                packet = os.read(descriptor, PACKET)
                source, target = by_descriptor[descriptor], self._target(packet)
                if target is None or not self._passes(source, target):
                    self.lost += 1
                    continue
                order += 1
                heapq.heappush(
                    self._waiting, (time.monotonic() + self.link.delay, order, target, packet)
                )
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(self._waiting)
                self.passed += 1
                with suppress(OSError):  # the receiver's queue is full, as it can be in a network
                    os.write(self._tunnels[target], packet)

    def _passes(self, source: int, target: int) -> bool:
        cut = {source, target} & self.link.cut
        return not cut and self._rng.random() >= self.link.loss

    def _target(self, packet: bytes) -> int | None:
        """The place to which an IPv4 packet goes."""
        if len(packet) < 20 or packet[0] >> 4 != 4 or packet[16:19] != bytes([10, 77, 0]):
            return None
        return packet[19] if packet[19] in self._tunnels else None
