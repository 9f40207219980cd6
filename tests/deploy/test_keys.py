"""Certificates that TLS accepts, keys that only their owner reads."""

import datetime as dt
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedadb.core.errors import BadInput
from fedadb.deploy import keys


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("keys") / "server"
    keys.make_server_keys(place, ["fed.example.org", "10.0.0.7"], days=3)
    return place


def shake(server: Path, ca: Path, name: str) -> None:
    """A TLS handshake with a server that has these keys."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(server / keys.SERVER, server / keys.SERVER_KEY)
    one, other = socket.socketpair()

    def answer() -> None:
        try:
            with theirs.wrap_socket(other, server_side=True) as secure:
                secure.recv(1)
        except ssl.SSLError:
            other.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        context = ssl.create_default_context(cafile=str(ca))
        with context.wrap_socket(one, server_hostname=name) as secure:
            secure.send(b".")
    finally:
        one.close()
        thread.join()


@pytest.mark.parametrize("name", ["fed.example.org", "10.0.0.7", "localhost", "127.0.0.1"])
def test_sites_believe_the_server_by_all_its_names(name: str, made: Path) -> None:
    shake(made, made / keys.CA, name)


def test_no_other_name_and_no_other_authority_is_believed(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(made, made / keys.CA, "evil.example.org")
    keys.make_server_keys(tmp_path / "other", ["fed.example.org"], days=3)
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        shake(made, tmp_path / "other" / keys.CA, "fed.example.org")


def test_secrets_are_for_their_owner_alone(made: Path, tmp_path: Path) -> None:
    keys.make_site_keys(tmp_path / "site")
    secret = [made / n for n in (keys.CA_KEY, keys.SERVER_KEY, keys.SECRET)]
    for path in [*secret, tmp_path / "site" / keys.SITE_KEY]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len({path.read_bytes() for path in secret}) == 3


def test_a_sites_key_is_what_flower_takes(tmp_path: Path) -> None:
    keys.make_site_keys(tmp_path)
    private = load_ssh_private_key((tmp_path / keys.SITE_KEY).read_bytes(), None)
    public = load_ssh_public_key((tmp_path / keys.SITE_PUBLIC).read_bytes())
    assert private.public_key() == public


def test_keys_are_not_replaced(made: Path, tmp_path: Path) -> None:
    before = (made / keys.CA_KEY).read_bytes()
    with pytest.raises(BadInput, match=r"ca\.crt is there already: keys are not replaced"):
        keys.make_server_keys(made, ["localhost"], days=3)
    assert (made / keys.CA_KEY).read_bytes() == before
    keys.make_site_keys(tmp_path)
    with pytest.raises(BadInput, match=r"site\.key is there already"):
        keys.make_site_keys(tmp_path)


def test_certificates_that_cannot_be_used(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.require_valid(made / keys.CA, "it")
    with pytest.raises(BadInput, match=r"nothing\.crt is missing: it is the authority's"):
        keys.require_valid(tmp_path / "nothing.crt", "the authority's")
    (tmp_path / "text.crt").write_text("no certificate")
    with pytest.raises(BadInput, match="is not a certificate"):
        keys.require_valid(tmp_path / "text.crt", "it")

    class Later(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> "Later":
            return cls(2100, 1, 1, tzinfo=tz)

    monkeypatch.setattr(dt, "datetime", Later)
    with pytest.raises(BadInput, match=r"ca\.crt expired on .*: make new keys at the server"):
        keys.require_valid(made / keys.CA, "it")


@pytest.mark.parametrize("host", ["müller", "", "fed.example.org:8443", "https://fed", "a" * 70])
def test_a_host_that_is_no_name(host: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is neither a name nor an address; it has no port"):
        keys.make_server_keys(tmp_path / "x", [host], days=3)
    assert not (tmp_path / "x").exists()


def test_a_long_name_is_a_name(tmp_path: Path) -> None:
    name = ".".join(["a" * 60, "b" * 60, "example.org"])
    keys.make_server_keys(tmp_path, [name], days=3)
    shake(tmp_path, tmp_path / keys.CA, name)


def test_a_sites_key_is_not_made_beside_the_servers(made: Path) -> None:
    with pytest.raises(BadInput, match="has the server's keys: a site's key is made at the site"):
        keys.make_site_keys(made)
