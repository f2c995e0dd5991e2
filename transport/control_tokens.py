"""One-time tokens that open control channels, each bound to its call. Pure, but for the randomness of a token.

Only digests are kept, so a dump of memory opens nothing; every refusal is the same None, so a guesser learns nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

TOKEN_TTL_S = 120.0
"""Longer than a page takes to call, short enough that a leaked one is dead soon."""
RENEW_S = 45.0
"""How often an open channel hands out a fresh token, so that the peer always holds one good for another minute."""
TOKENS_PER_CALL = 4
"""The peer may hold one of the answer, one of the channel and one of the data channel; older ones die."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grant:
    call_id: str
    expires_at: float


class TokenRegistry:
    """Issues and redeems tokens; times in seconds."""

    def __init__(self, *, ttl_s: float = TOKEN_TTL_S) -> None:
        self.ttl_s = ttl_s
        self._grants: dict[bytes, _Grant] = {}
        self._by_call: dict[str, list[bytes]] = {}

    def issue(self, call_id: str, *, now: float) -> str:
        """Return a new token of 256 bits for `call_id`."""
        token = secrets.token_urlsafe(32)
        digest = _digest(token)
        self._grants[digest] = _Grant(call_id=call_id, expires_at=now + self.ttl_s)
        digests = self._by_call.setdefault(call_id, [])
        digests.append(digest)
        while len(digests) > TOKENS_PER_CALL:
            self._grants.pop(digests.pop(0), None)
        return token

    def redeem(self, token: str, *, now: float) -> str | None:
        """Return the call that `token` opens, and burn it; None for a wrong, used or expired one alike."""
        digest = _digest(token)
        grant = self._grants.pop(digest, None)
        if grant is None:
            return None
        self._by_call[grant.call_id].remove(digest)
        return grant.call_id if now < grant.expires_at else None

    def revoke(self, call_id: str) -> None:
        """Burn all tokens of a call that has ended."""
        for digest in self._by_call.pop(call_id, []):
            self._grants.pop(digest, None)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
