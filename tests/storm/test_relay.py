"""What the relay between network namespaces does with packets, without any namespace."""

from storm.relay import Link, Relay


def packet(target: int) -> bytes:
    """An IPv4 header to 10.77.0.TARGET."""
    return bytes([0x45, *[0] * 15, 10, 77, 0, target])


def test_packets_go_where_their_address_says() -> None:
    relay = Relay(2, Link(), 0)
    relay._tunnels.update({1: -1, 2: -1})
    assert [relay._target(packet(k)) for k in (1, 2, 3)] == [1, 2, None]
    assert relay._target(b"\x60" + bytes(40)) is None  # IPv6


def test_a_place_that_is_cut_off_neither_sends_nor_receives() -> None:
    relay = Relay(3, Link(cut={2}), 0)
    passes = {(a, b): relay._passes(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b}
    assert [pair for pair, passed in passes.items() if passed] == [(1, 3), (3, 1)]


def test_the_share_of_lost_packets() -> None:
    relay = Relay(2, Link(loss=0.25), 0)
    lost = sum(not relay._passes(1, 2) for _ in range(4000))
    assert 900 < lost < 1100
