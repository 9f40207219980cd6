"""Sites are accepted and revoked while the server runs."""

import os
import shutil
from pathlib import Path

import pytest

from fedadb.core.errors import BadInput, Fault
from fedadb.deploy import keys
from fedadb.deploy.accepted_sites import (
    DATABASE,
    REGISTERED,
    accept_nobody,
    accepted_keys,
    require_keys,
    site_names,
    update_accepted,
)
from fedadb.deploy.site_keys import fingerprint


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
            lambda name, key: self.registered.append(f"{name} {key}"),
            lambda event, site, key: self.events.append((event, site)),
        )

    def accepted(self) -> dict[str, str]:
        return accepted_keys(self.directory / "server")


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


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("binary.pub", bytes(range(256)), "is not a site's public key"),
        (
            "half.pub",
            b"ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzO",
            "is not a site's public",
        ),
        ("huge.pub", b"ecdsa-sha2-nistp384 " + bytes(1 << 20), "it has more than 16384 bytes"),
        ("line\nbreak.pub", b"", "the name of a site must be printable"),
        (b"not-utf8-\xff.pub", b"", "the name of a site must be printable"),
    ],
)
def test_whatever_is_put_beside_the_keys_is_one_sentence(
    name: str | bytes, content: bytes, reason: str, operator: Operator
) -> None:
    sites = operator.directory / "server" / keys.SITES
    (sites / os.fsdecode(name)).write_bytes(content)
    for _ in range(2):
        (sentence,) = operator.update()
        assert reason in sentence
        assert sentence.isprintable()
    assert list(operator.accepted()) == ["north"]


def test_links_pipes_and_hidden_files_are_no_keys(operator: Operator) -> None:
    sites = operator.directory / "server" / keys.SITES
    (sites / "dangling.pub").symlink_to("nowhere")
    (sites / "device.pub").symlink_to("/dev/zero")
    (sites / "folder.pub").mkdir()
    os.mkfifo(sites / "pipe.pub")
    shutil.copy(sites / "north.pub", sites / "._north.pub")  # as macOS leaves them
    assert operator.update() == []
    assert site_names(operator.directory / "server") == ["north"]


def test_a_key_with_a_comment_is_the_same_key(operator: Operator) -> None:
    sites = operator.directory / "server" / keys.SITES
    with_comment = (sites / "north.pub").read_text() + " somebody@somewhere\n"
    (sites / "twin.pub").write_text(with_comment)
    assert operator.update() == ["twin has the key of another site: each site makes its own"]
    (sites / "twin.pub").unlink()
    (sites / "north.pub").write_text(with_comment)
    assert operator.update() == []


def test_a_site_that_cannot_be_registered_is_tried_again(operator: Operator) -> None:
    def fail(name: str, key: str) -> None:
        raise Fault("the SuperLink does not respond")

    operator.add("south", "two")
    server = operator.directory / "server"
    sentence = "south cannot be accepted yet: the SuperLink does not respond"
    assert update_accepted(server, fail, lambda *_: None) == [sentence]
    assert operator.update() == ["south is accepted"]


@pytest.mark.parametrize("lost", [False, True])
def test_the_database_keeps_removed_sites_and_a_new_one_knows_nobody(
    lost: bool, operator: Operator
) -> None:
    """Without the database, the sites that are connected would have to start again."""
    server = operator.directory / "server"
    (server / DATABASE).touch()
    operator.add("south", "two")
    operator.update()
    operator.remove("north")
    if lost:
        (server / DATABASE).unlink()
    accept_nobody(server)
    assert (server / REGISTERED).exists() != lost
    assert operator.update() == ["south is accepted"]
    assert len(operator.registered) == 2 + lost


def test_a_server_does_not_start_with_a_key_that_cannot_be_used(operator: Operator) -> None:
    made = operator.directory / "made"
    keys.make_server_keys(made, ["localhost"], days=1)
    (made / keys.SITES / "broken.pub").write_bytes(b"\xff")
    with pytest.raises(BadInput, match=r"broken\.pub is not a site's public key"):
        require_keys(made)


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
    assert fingerprint(key) == "SHA256:g0C+CtHmVjSF1Lk2jyGiM1Y9eR1w04umVmTcD2q5lxM"
