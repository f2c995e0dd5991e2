"""Which round trip is the media's: the echoes', unless RTCP shows that media goes another way. Pure."""

from __future__ import annotations

from typing import Literal

from transport.rtt import RttStatistics

APART_MS = 30.0
APART_SHARE = 0.5
"""By so much the two must differ before they can be two paths: RTCP and ICE measure one packet in a second or more."""
APART_S = 5.0
"""And for so long: after a step of the path RTCP lags behind the echoes by a few seconds."""
FRESH_S = 5.0


class PathRtt:
    """Chooses between the two; times in seconds, round trips in ms."""

    def __init__(self) -> None:
        self.source: Literal["none", "echo", "rtcp"] = "none"
        self.p50_ms: float | None = None
        self.p90_ms: float | None = None
        self._apart_since: float | None = None

    def update(self, *, echo: RttStatistics, rtcp_ms: float | None, now: float) -> bool:
        """Take in both as they stand; True if the source changed."""
        before = self.source
        alive = echo.p50_ms is not None and echo.updated_at is not None and now - echo.updated_at < FRESH_S
        if alive and not self._are_apart(echo, rtcp_ms, now):
            self.source, self.p50_ms, self.p90_ms = "echo", echo.p50_ms, echo.p90_ms
        elif rtcp_ms is not None:
            self.source, self.p50_ms, self.p90_ms = "rtcp", rtcp_ms, rtcp_ms
        return self.source != before

    def _are_apart(self, echo: RttStatistics, rtcp_ms: float | None, now: float) -> bool:
        if rtcp_ms is None or echo.p50_ms is None or echo.p90_ms is None:
            self._apart_since = None
            return False
        nearest = min(max(rtcp_ms, echo.min_ms or echo.p50_ms), echo.p90_ms)
        if abs(rtcp_ms - nearest) <= max(APART_MS, APART_SHARE * echo.p50_ms):
            self._apart_since = None
            return False
        if self._apart_since is None:
            self._apart_since = now
        return now - self._apart_since >= APART_S
