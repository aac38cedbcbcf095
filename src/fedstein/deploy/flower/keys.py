"""Certificates and keys for a trial: a CA, a server certificate, and a key pair for each agent.

A federation between real parties has a CA of its own, and every agent makes its own key and gives away the public half
only. What is the same is which file goes where (docs/between-machines.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from fedstein.errors import UserError

__all__ = ["check_name", "make_agent_key", "make_certificates"]

DAYS = 90


def check_name(name: str) -> None:
    """Agents' names are file names, and stand in settings."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise UserError(f"The name of an agent must be letters, digits, '.', '_' and '-'. Got {name!r}.")
    if name in ("ca.crt", "server.crt", "server.key") or name.endswith(".pub"):
        raise UserError(f"The name of an agent must not be that of a certificate or a public key. Got {name!r}.")


def make_certificates(folder: Path, hosts: Sequence[str]) -> list[Path]:
    """A new CA and a server certificate for these host names and addresses; the files."""
    hosts = [*dict.fromkeys([*hosts, "localhost", "127.0.0.1"])]  # the SuperLink speaks to itself by these
    for host in hosts:
        if not host.isascii() or not host.isprintable() or " " in host:
            raise UserError(f"The '--hosts' must be plain names or addresses (punycode). Got {host!r}.")
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError as error:
        raise UserError("This needs an extra: pip install 'fedstein[flower]'.") from error
    now = datetime.now(UTC)
    ca_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedstein trial CA")])

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=DAYS))
        )

    usage = dict.fromkeys(("data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False)
    usage |= {"digital_signature": True, "content_commitment": False, "key_encipherment": False}
    ca = (
        builder(ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    server = (
        builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])]), key.public_key())
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return [
        _write(folder / "ca.crt", ca.public_bytes(serialization.Encoding.PEM)),
        _write(folder / "server.crt", server.public_bytes(serialization.Encoding.PEM)),
        _write(folder / "server.key", key.private_bytes(*private), secret=True),
    ]  # the CA's own key is not kept: nothing else is ever signed with it


def make_agent_key(folder: Path, name: str) -> list[Path]:
    """The key pair that an agent is known by, in the form of OpenSSH; the files."""
    check_name(name)
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise UserError("This needs an extra: pip install 'fedstein[flower]'.") from error
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return [_write(folder / name, private, secret=True), _write(folder / f"{name}.pub", public + b"\n")]


def _host(host: str):  # type: ignore[no-untyped-def]
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, content: bytes, secret: bool = False) -> Path:
    """A new file; a secret one is nobody else's to read from the first moment."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644), "wb") as file:
            file.write(content)
    except FileExistsError:
        raise UserError(f"{path} is there already: no key is ever overwritten.") from None
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}.") from error
    return path
