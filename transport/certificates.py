"""Self-signed certificates of the control channel, as WebTransport's `serverCertificateHashes` asks for them.

ECDSA P-256, valid for no more than 14 days (W3C WebTransport, "custom certificate requirements"). One serves for seven
days; its successor exists before it serves, so that a page which loaded both hashes outlives the change.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROTATION_S = 7 * 86_400.0
SKEW_S = 86_400.0
"""A browser's clock may be a day wrong on either side; seven days and two of these are within the fourteen allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCertificate:
    """A certificate with its key; `serves_from` and `serves_until` in seconds since the epoch."""

    certificate: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey
    serves_from: float
    serves_until: float

    @property
    def sha256(self) -> str:
        """Return the lower-case hex digest of the DER encoding, what `serverCertificateHashes` wants as bytes."""
        return hashlib.sha256(self.certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


class CertificateRotation:
    """Holds the serving certificate and the next; `unix_now` is seconds since the epoch, as certificates name dates."""

    def __init__(self, *, unix_now: float) -> None:
        self.current = make_certificate(serves_from=unix_now)
        self.next = make_certificate(serves_from=self.current.serves_until)

    @property
    def certificate_sha256_list(self) -> list[str]:
        """Return the digests of the serving certificate and of the next one."""
        return [self.current.sha256, self.next.sha256]

    def get_timer(self) -> float:
        """Return when the next certificate begins to serve, in seconds since the epoch."""
        return self.current.serves_until

    def handle_timer(self, *, unix_now: float) -> bool:
        """Let the next certificate serve if it is time; True if it now does."""
        if unix_now < self.current.serves_until:
            return False
        if unix_now >= self.next.serves_until:
            self.next = make_certificate(serves_from=unix_now)
        self.current, self.next = self.next, make_certificate(serves_from=self.next.serves_until)
        return True


def make_certificate(*, serves_from: float) -> ControlCertificate:
    """Return a new certificate that serves for seven days from `serves_from`, valid a day longer on each side."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "antiphon control channel")])
    serves_until = serves_from + ROTATION_S
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_date(serves_from - SKEW_S))
        .not_valid_after(_date(serves_until + SKEW_S))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return ControlCertificate(
        certificate=certificate, private_key=key, serves_from=serves_from, serves_until=serves_until
    )


def _date(unix: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(unix, dt.UTC)
