"""Certificates, keys and secrets of a federation. Each is made on the machine that keeps it."""

import datetime as dt
import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedadb.core.errors import BadInput

CA, CA_KEY = "ca.crt", "ca.key"  # every site gets the first; the second stays at the server
SERVER, SERVER_KEY = "server.crt", "server.key"
SECRET = "runtime.secret"  # shared by the SuperLink and our executor
SITE_KEY, SITE_PUBLIC = "site.key", "site.pub"  # the server gets the second
SITES = "sites"  # the server's directory with NAME.pub for each site that may take part
NOT_OURS = "it is of another kind; `fedadb deploy keys --site` makes one"


def make_server_keys(directory: Path, hosts: Sequence[str], days: int) -> None:
    """Make a certificate authority, a certificate for the server's names, and a secret."""
    for name in (CA, CA_KEY, SERVER, SERVER_KEY, SECRET):
        _require_new(directory / name)
    names = [_subject_name(host) for host in dict.fromkeys([*hosts, "localhost", "127.0.0.1"])]
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (directory / SITES).mkdir(exist_ok=True)
    authority, key = (
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP384R1()),
    )
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedadb federation CA")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedadb federation server")])
    ca = (
        _certificate(issuer, issuer, authority.public_key(), authority.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(authority, hashes.SHA384())
    )
    server = (
        _certificate(subject, issuer, key.public_key(), authority.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority, hashes.SHA384())
    )
    _write(directory / CA_KEY, _pem(authority))
    _write(directory / CA, ca.public_bytes(Encoding.PEM), 0o644)
    _write(directory / SERVER_KEY, _pem(key))
    _write(directory / SERVER, server.public_bytes(Encoding.PEM), 0o644)
    _write(directory / SECRET, secrets.token_hex(32).encode())


def make_site_keys(directory: Path) -> None:
    """Make the key by which the server recognises a site. Its private half stays at the site."""
    for name in (SITE_KEY, SITE_PUBLIC):
        _require_new(directory / name)
    if (directory / CA_KEY).exists():
        raise BadInput(
            f"{directory} has the server's keys: a site makes its key in a directory of its own"
        )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _write(directory / SITE_KEY, private)
    _write(directory / SITE_PUBLIC, public, 0o644)


def require_private(path: Path) -> None:
    """Raise BadInput unless the file is a site's private key."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except Exception as error:  # cryptography raises many kinds for a damaged file
        raise BadInput(f"{path} is not a site's private key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInput(f"{path} is not a site's private key: {NOT_OURS}")


def require_public(path: Path) -> None:
    """Raise BadInput unless the file is a site's public key."""
    try:
        key = load_ssh_public_key(path.read_bytes())
    except Exception as error:  # cryptography raises many kinds for a damaged file
        raise BadInput(f"{path} is not a site's public key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadInput(f"{path} is not a site's public key: {NOT_OURS}")


def require_valid(path: Path, what: str) -> None:
    """Raise BadInput unless the file is a certificate that has not expired."""
    if not path.is_file():
        raise BadInput(
            f"{path} is missing: it is {what}, which `fedadb deploy keys` makes at the server"
        )
    try:
        ends = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except Exception as error:  # as above
        raise BadInput(f"{path} is not a certificate: {error}") from error
    if ends < dt.datetime.now(dt.UTC):
        raise BadInput(
            f"{path} expired on {ends:%d %B %Y}: make new keys at the server, in a new directory, "
            "with `fedadb deploy keys`, and give the new ca.crt to all sites"
        )


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    authority: ec.EllipticCurvePublicKey,
    days: int,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))  # clocks may differ
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False
        )
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    part = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    if len(host) > 253 or not re.fullmatch(rf"{part}(\.{part})*", host):
        raise BadInput(
            f"--host {host!r}: must be a host name or an IP address, without a port or https://"
        )
    return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _require_new(path: Path) -> None:
    if path.exists():
        raise BadInput(f"{path} exists: keys are never replaced; choose another directory")


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Create the file with its final mode, so that others can never read a secret."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
