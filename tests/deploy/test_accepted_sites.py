"""Sites are accepted and revoked while the server runs."""

import shutil
from pathlib import Path

import pytest

from fedadb.deploy import keys
from fedadb.deploy.accepted_sites import ACCEPTED, accept_nobody, public_keys, update_accepted


class Operator:
    """Puts keys into a server's directory; notes what the server registers and audits."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "server" / keys.SITES).mkdir(parents=True)
        self.registered: list[str] = []
        self.events: list[tuple[str, str]] = []

    def add(self, name: str, key: str) -> None:
        if not (self.directory / key).exists():
            keys.make_site_keys(self.directory / key)
        sites = self.directory / "server" / keys.SITES
        shutil.copy(self.directory / key / keys.SITE_PUBLIC, sites / f"{name}.pub")

    def remove(self, name: str) -> None:
        (self.directory / "server" / keys.SITES / f"{name}.pub").unlink()

    def update(self) -> list[str]:
        return update_accepted(
            self.directory / "server",
            lambda name, path: self.registered.append(f"{name} {path.read_text()}"),
            lambda event, site, key: self.events.append((event, site)),
        )

    def accepted(self) -> dict[str, str]:
        return public_keys(self.directory / "server", ACCEPTED)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    made = Operator(tmp_path)
    made.add("north", "one")
    assert made.update() == ["north is accepted"]
    return made


def test_a_site_joins_and_is_revoked(operator: Operator) -> None:
    operator.add("south", "two")
    assert operator.update() == ["south is accepted"]
    assert list(operator.accepted()) == ["north", "south"]
    assert operator.update() == []
    operator.remove("north")
    assert operator.update() == ["north is no longer accepted"]
    assert list(operator.accepted()) == ["south"]
    assert operator.events == [
        ("accepted", "north"),
        ("accepted", "south"),
        ("revoked", "north"),
    ]


def test_a_site_that_was_revoked_is_accepted_again(operator: Operator) -> None:
    """The SuperLink, which takes a key only once, is not told again."""
    operator.remove("north")
    operator.update()
    operator.add("north", "one")
    assert operator.update() == ["north is accepted"]
    assert len(operator.registered) == 1


def test_a_new_key_replaces_the_old_one(operator: Operator) -> None:
    operator.add("north", "two")
    assert operator.update() == ["north is no longer accepted", "north is accepted"]
    key = (operator.directory / "two" / keys.SITE_PUBLIC).read_text()
    assert operator.accepted() == {"north": key}
    assert operator.registered[-1] == f"north {key}"


def test_a_key_that_cannot_be_used_changes_nothing(operator: Operator) -> None:
    sites = operator.directory / "server" / keys.SITES
    (sites / "broken.pub").write_text("ecdsa-sha2-nistp384 AAAA")
    operator.add("twin", "one")
    first, second = operator.update()
    assert "broken.pub is not a site's public key" in first
    assert "twin has the key of another site" in second
    assert list(operator.accepted()) == ["north"]


def test_a_server_that_starts_accepts_nobody_at_first(operator: Operator) -> None:
    accept_nobody(operator.directory / "server")
    assert operator.accepted() == {}
    assert operator.update() == ["north is accepted"]


def test_a_fingerprint_is_that_of_ssh_keygen() -> None:
    """The key is arbitrary; `ssh-keygen -lf` printed the fingerprint."""
    key = (
        "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBBMQz1IQ"
        "LhlgN6++Y7os0cjsRIDxCo+4LO3Iu062+jluVpWlP0r7qhp2F/0+4p0tyJa76LWYapzwImrxg3DuBjRR"
        "VPP9bDASQGi7+WlIkhC+PenmseED2YQ/L60gXLRecg== comment"
    )
    assert keys.fingerprint(key) == "SHA256:g0C+CtHmVjSF1Lk2jyGiM1Y9eR1w04umVmTcD2q5lxM"
