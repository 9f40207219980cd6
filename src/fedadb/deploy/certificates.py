"""An authority of a federation's own, and the certificates that it signs."""

import datetime as dt
import ipaddress
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedadb.core.errors import BadInput

ISSUER = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedadb federation CA")])
SUBJECT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedadb federation server")])


class Signed(NamedTuple):
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes


def make_authority(ends: dt.datetime) -> Signed:
    """An authority whose certificate it signs itself."""
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = (
        _certificate(ISSUER, key.public_key(), key.public_key(), ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA384())
    )
    return Signed(certificate.public_bytes(Encoding.PEM), _pem(key))


def make_certificate(
    authority: bytes, names: Sequence[x509.GeneralName], ends: dt.datetime
) -> Signed:
    """A new key, and a certificate of a server with these names.

    The authority, given by its private key, signs it.
    """
    signer = load_authority(authority)
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = (
        _certificate(SUBJECT, key.public_key(), signer.public_key(), ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer, hashes.SHA384())
    )
    return Signed(certificate.public_bytes(Encoding.PEM), _pem(key))


def load_authority(key: bytes) -> ec.EllipticCurvePrivateKey:
    """The private key of an authority; ValueError if it is none that `make_authority` makes."""
    signer = load_pem_private_key(key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError("it is of another kind")
    return signer


def is_key_of(key: bytes, certificate: bytes) -> bool:
    """Whether an authority's private key belongs to its certificate."""
    here = load_authority(key).public_key()
    return here == x509.load_pem_x509_certificate(certificate).public_key()


def after(days: int) -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(days=days)


def end_of(certificate: bytes) -> dt.datetime:
    """When a certificate ends; ValueError if it is not one."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def names_of(certificate: bytes) -> list[x509.GeneralName]:
    """The names under which sites accept the server that has this certificate."""
    extensions = x509.load_pem_x509_certificate(certificate).extensions
    return list(extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


def site_problem(certificate: Path, key: Path, authority: Path) -> str | None:
    """Why a site that knows the authority would not trust a server with this certificate and key.

    A site and a server greet each other here by TLS, in memory. The server's name is not checked.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    site = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    site.check_hostname = False
    site.load_verify_locations(authority)
    try:
        server.load_cert_chain(certificate, key)
    except ssl.SSLError:
        return f"{key} is not the key of {certificate}"
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [site.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)]
    for end in [*ends, *ends]:  # TLS 1.3 needs two messages in each direction
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as error:
            return f"{authority} does not vouch for {certificate}: {error.verify_message}"
    return None


def subject_name(host: str) -> x509.GeneralName:
    """The host as a certificate has it."""
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


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    authority: ec.EllipticCurvePublicKey,
    ends: dt.datetime,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ISSUER)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))  # clocks may differ
        .not_valid_after(ends)
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


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
