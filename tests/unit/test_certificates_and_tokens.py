"""Certificates as browsers ask for them, and one-time tokens."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import ec

from transport.certificates import CertificateRotation
from transport.control_tokens import TOKENS_PER_CALL, TokenRegistry

DAY_S = 86_400.0


def test_certificates_are_p256_and_valid_for_at_most_fourteen_days() -> None:
    rotation = CertificateRotation(unix_now=1_800_000_000.0)
    for certificate in (rotation.current, rotation.next):
        assert isinstance(certificate.private_key.curve, ec.SECP256R1)
        validity = certificate.certificate.not_valid_after_utc - certificate.certificate.not_valid_before_utc
        assert validity.days <= 14


def test_a_year_of_rotations_never_surprises_a_page() -> None:
    """What serves a day later was always announced before, and is valid when it serves."""
    now = 1_800_000_000.0
    rotation = CertificateRotation(unix_now=now)
    rotated = 0
    for _ in range(400):
        announced = rotation.certificate_sha256_list
        now += DAY_S
        rotated += rotation.handle_timer(unix_now=now)
        assert rotation.current.sha256 in announced
        certificate = rotation.current.certificate
        assert certificate.not_valid_before_utc.timestamp() <= now - DAY_S / 2
        assert certificate.not_valid_after_utc.timestamp() >= now + DAY_S / 2
    assert rotated == 57


def test_after_a_long_sleep_the_serving_certificate_is_fresh() -> None:
    now = 1_800_000_000.0
    rotation = CertificateRotation(unix_now=now)
    now += 40 * DAY_S
    assert rotation.handle_timer(unix_now=now)
    assert rotation.current.certificate.not_valid_after_utc.timestamp() > now
    assert not rotation.handle_timer(unix_now=now + 1)


def test_a_token_opens_its_call_once() -> None:
    registry = TokenRegistry()
    token = registry.issue("call-1", now=0.0)
    other = registry.issue("call-2", now=0.0)
    assert registry.redeem(token, now=1.0) == "call-1"
    assert registry.redeem(token, now=1.0) is None
    assert registry.redeem(other, now=1.0) == "call-2"


def test_wrong_expired_and_revoked_tokens_are_refused_alike() -> None:
    registry = TokenRegistry(ttl_s=10.0)
    expired, revoked = registry.issue("a", now=0.0), registry.issue("b", now=0.0)
    registry.revoke("b")
    for token in ("x" * 43, "", "\ud800", expired, revoked):
        assert registry.redeem(token, now=10.0) is None


def test_only_the_newest_tokens_of_a_call_live() -> None:
    registry = TokenRegistry()
    tokens = [registry.issue("call", now=0.0) for _ in range(TOKENS_PER_CALL + 3)]
    assert len(set(tokens)) == len(tokens)
    assert [registry.redeem(token, now=1.0) for token in tokens] == [None] * 3 + ["call"] * TOKENS_PER_CALL
