"""Certificates that TLS accepts, and keys that only their owner can read."""

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
from fedadb.deploy.certificates import end_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("keys") / "server"
    keys.make_server_keys(directory, ["fed.example.org", "10.0.0.7"], days=3)
    return directory


def handshake(server: Path, ca: Path, name: str) -> None:
    """A TLS handshake with a server that has these keys."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server / keys.SERVER, server / keys.SERVER_KEY)
    client_socket, server_socket = socket.socketpair()

    def answer() -> None:
        try:
            with context.wrap_socket(server_socket, server_side=True) as secure:
                secure.recv(1)
        except ssl.SSLError:
            server_socket.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        client = ssl.create_default_context(cafile=str(ca))
        with client.wrap_socket(client_socket, server_hostname=name) as secure:
            secure.send(b".")
    finally:
        client_socket.close()
        thread.join()


@pytest.mark.parametrize("name", ["fed.example.org", "10.0.0.7", "localhost", "127.0.0.1"])
def test_sites_accept_the_server_under_all_its_names(name: str, server: Path) -> None:
    handshake(server, server / keys.CA, name)


def test_sites_accept_no_other_name_and_no_other_authority(server: Path, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, server / keys.CA, "evil.example.org")
    keys.make_server_keys(tmp_path / "other", ["fed.example.org"], days=3)
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        handshake(server, tmp_path / "other" / keys.CA, "fed.example.org")


def test_only_the_owner_can_read_secrets(server: Path, tmp_path: Path) -> None:
    keys.make_site_keys(tmp_path / "site")
    secret = [server / n for n in (keys.CA_KEY, keys.SERVER_KEY, keys.SECRET)]
    for path in [*secret, tmp_path / "site" / keys.SITE_KEY]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len({path.read_bytes() for path in secret}) == 3


def test_a_sites_key_has_flowers_format(tmp_path: Path) -> None:
    keys.make_site_keys(tmp_path)
    private = load_ssh_private_key((tmp_path / keys.SITE_KEY).read_bytes(), None)
    public = load_ssh_public_key((tmp_path / keys.SITE_PUBLIC).read_bytes())
    assert private.public_key() == public


def test_keys_are_never_replaced(server: Path, tmp_path: Path) -> None:
    before = (server / keys.CA_KEY).read_bytes()
    with pytest.raises(BadInput, match=r"ca\.crt exists: keys are never replaced"):
        keys.make_server_keys(server, ["localhost"], days=3)
    assert (server / keys.CA_KEY).read_bytes() == before
    keys.make_site_keys(tmp_path)
    with pytest.raises(BadInput, match=r"site\.key exists"):
        keys.make_site_keys(tmp_path)


def test_missing_damaged_and_expired_certificates_are_refused(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.require_valid(server / keys.CA, "it")
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
        keys.require_valid(server / keys.CA, "it")


@pytest.mark.parametrize("host", ["müller", "", "fed.example.org:8443", "https://fed", "a" * 70])
def test_an_invalid_host_is_refused(host: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="must be a host name or an IP address, without a port"):
        keys.make_server_keys(tmp_path / "x", [host], days=3)
    assert not (tmp_path / "x").exists()


def test_a_long_host_name_is_accepted(tmp_path: Path) -> None:
    name = ".".join(["a" * 60, "b" * 60, "example.org"])
    keys.make_server_keys(tmp_path, [name], days=3)
    handshake(tmp_path, tmp_path / keys.CA, name)


def test_a_sites_key_is_not_made_beside_the_servers_keys(server: Path) -> None:
    with pytest.raises(
        BadInput, match="has the server's keys: a site makes its key in a directory of its own"
    ):
        keys.make_site_keys(server)


def test_a_renewed_certificate_has_the_old_names_and_the_same_authority(tmp_path: Path) -> None:
    keys.make_server_keys(tmp_path, ["fed.example.org"], days=3)
    ca, old = ((tmp_path / name).read_bytes() for name in (keys.CA, keys.SERVER))
    keys.renew_server_certificate(tmp_path, ["10.0.0.8"], days=20)
    assert (tmp_path / keys.CA).read_bytes() == ca
    assert (tmp_path / keys.SERVER).read_bytes() != old
    for name in ("fed.example.org", "10.0.0.8", "localhost"):
        handshake(tmp_path, tmp_path / keys.CA, name)
    assert stat.S_IMODE((tmp_path / keys.SERVER_KEY).stat().st_mode) == 0o600
    assert not list(tmp_path.glob("*.partial"))


def test_no_certificate_outlives_the_authority(tmp_path: Path) -> None:
    keys.make_server_keys(tmp_path, ["localhost"], days=3)
    keys.renew_server_certificate(tmp_path, [], days=365)
    ends = [end_of((tmp_path / n).read_bytes()) for n in (keys.CA, keys.SERVER, keys.SUPERLINK)]
    assert len(set(ends)) == 1
    assert (ends[0] - dt.datetime.now(dt.UTC)).days == 3 * keys.AUTHORITY_TERMS - 1


def test_a_certificate_is_not_renewed_without_its_authority(tmp_path: Path) -> None:
    keys.make_server_keys(tmp_path, ["localhost"], days=3)
    (tmp_path / keys.CA_KEY).unlink()
    with pytest.raises(BadInput, match=r"ca\.key is missing: a new certificate is made from it"):
        keys.renew_server_certificate(tmp_path, [], days=3)


@pytest.mark.parametrize(("days", "warned"), [(29, True), (30, True), (32, False)])
def test_a_certificate_that_ends_within_thirty_days_is_announced(
    days: int, warned: bool, tmp_path: Path
) -> None:
    keys.make_server_keys(tmp_path, ["localhost"], days=days)
    warning = keys.expiry_warning(tmp_path / keys.SERVER)
    assert (warning is not None) == warned
    if warning:
        assert f"in {days - 1} days: `fedadb deploy keys {tmp_path} --renew`" in warning
    assert keys.expiry_warning(tmp_path / keys.CA) is None


def test_an_expired_certificate_of_the_server_is_refused_with_the_way_out(tmp_path: Path) -> None:
    keys.make_server_keys(tmp_path, ["localhost"], days=3)
    keys.renew_server_certificate(tmp_path, [], days=0)
    with pytest.raises(
        BadInput, match=r"server\.crt expired on .*: `fedadb deploy keys .* --renew`"
    ):
        keys.require_valid(tmp_path / keys.SERVER, "it")


def test_a_key_that_is_not_the_certificates_is_found_before_the_server_starts(
    tmp_path: Path,
) -> None:
    """As if a renewal had been killed between its two files."""
    keys.make_server_keys(tmp_path, ["localhost"], days=30)
    old = (tmp_path / keys.SERVER).read_bytes()
    keys.renew_server_certificate(tmp_path, [], days=30)
    keys.require_server_keys(tmp_path)
    (tmp_path / keys.SERVER).write_bytes(old)
    with pytest.raises(BadInput, match=r"server\.key is not the key of .*server\.crt; .* --renew`"):
        keys.require_server_keys(tmp_path)


def test_a_certificate_of_another_authority_is_found_before_the_server_starts(
    tmp_path: Path,
) -> None:
    for name in ("one", "other"):
        keys.make_server_keys(tmp_path / name, ["localhost"], days=30)
    for name in (keys.SERVER, keys.SERVER_KEY):
        (tmp_path / "one" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(BadInput, match=r"ca\.crt does not vouch for .*server\.crt: .* --renew`"):
        keys.require_server_keys(tmp_path / "one")


@pytest.mark.parametrize("content", [b"", b"no key", bytes(range(256))])
def test_a_damaged_key_of_the_authority_signs_nothing(content: bytes, tmp_path: Path) -> None:
    keys.make_server_keys(tmp_path, ["localhost"], days=30)
    before = (tmp_path / keys.SERVER).read_bytes()
    (tmp_path / keys.CA_KEY).write_bytes(content)
    with pytest.raises(BadInput, match=r"ca\.key is not an authority's key"):
        keys.renew_server_certificate(tmp_path, [], days=30)
    assert (tmp_path / keys.SERVER).read_bytes() == before


def test_a_key_of_another_authority_signs_nothing(tmp_path: Path) -> None:
    for name in ("one", "other"):
        keys.make_server_keys(tmp_path / name, ["localhost"], days=30)
    foreign = (tmp_path / "other" / keys.CA_KEY).read_bytes()
    (tmp_path / "one" / keys.CA_KEY).write_bytes(foreign)
    with pytest.raises(BadInput, match=r"ca\.key is not the key of ca\.crt"):
        keys.renew_server_certificate(tmp_path / "one", [], days=30)


def test_a_certificate_that_is_being_replaced_warns_of_nothing(tmp_path: Path) -> None:
    assert keys.expiry_warning(tmp_path / "missing.crt") is None
    (tmp_path / "half.crt").write_bytes(b"-----BEGIN CERTIFICATE-----\n")
    assert keys.expiry_warning(tmp_path / "half.crt") is None
