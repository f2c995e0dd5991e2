"""HTTPS for the page: a given certificate, or one made for this host and kept, since browsers remember exceptions."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import socket
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from peer.errors import ConfigError

_VALID_DAYS = 365
"""Browsers refuse more than 398."""
_RENEW_DAYS = 30


def load_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a server context with the PEM files given; raises ConfigError naming the file that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for path in (certificate, key):
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; --certificate and --key name PEM files")
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{certificate} and {key} are not a certificate and its key (PEM): {error}") from error
    return context


def generated_certificate(
    host: str, *, public_address: str, now: dt.datetime, folder: Path | None = None
) -> tuple[Path, Path]:
    """Return (certificate, key) files of a self-signed certificate for `host`, made where none of use is kept.

    ECDSA P-256, a year long; it names the host, the public address, this machine's name and localhost.
    """
    folder = folder or _cache_folder()
    name = "".join(char if char.isalnum() else "-" for char in f"{host} {public_address}".strip())
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    if not _is_of_use(certificate, key, now):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(certificate, key, [host, public_address, socket.gethostname(), "localhost"], now)
    return certificate, key


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "antiphon" / "certificates"


def _is_of_use(certificate: Path, key: Path, now: dt.datetime) -> bool:
    try:
        loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError):
        return False
    return key.is_file() and loaded.not_valid_after_utc > now + dt.timedelta(days=_RENEW_DAYS)


def _write(certificate: Path, key: Path, names: list[str], now: dt.datetime) -> None:
    private_key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Antiphon")])
    alternatives = [name for entry in dict.fromkeys(names) if (name := _alternative_name(entry)) is not None]
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private_key, hashes.SHA256())
    )
    pem = private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key.unlink(missing_ok=True)
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def _alternative_name(name: str) -> x509.GeneralName | None:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return x509.DNSName(name) if name and name.isascii() else None
    return None if address.is_unspecified else x509.IPAddress(address)
