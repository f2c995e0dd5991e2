"""Round-trip time, one-way delay variation and the remote clock, from echoes with four timestamps. Pure.

The remote's hold time is subtracted by its own two stamps (RFC 5905, section 8), so nothing here depends on when a peer
chose to answer. aioquic's smoothed RTT is never used: it counts delayed acknowledgements, 17 ms on a loopback.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import fmean, pvariance

import numpy as np

WINDOW_S = 2.0
"""Twenty echoes at 10 Hz: a rise shows in the 90th percentile after two of them, a fall is through in two seconds."""
MIN_RTT_WINDOW_S = 10.0
"""As BBR's minimum filter: long enough to meet an empty queue, short enough to follow a route."""
CLOCK_CHUNK_S = 5.0
"""Of each chunk the echo with the smallest RTT judges the clock: it waited least, so its two ways differ least."""
CLOCK_CHUNKS = 60
"""Five minutes: a drift of 1 ppm is then 0.3 ms, what the smallest RTTs resolve."""
MIN_CHUNKS_FOR_DRIFT = 4
MAX_RTT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RttStatistics:
    """What the echoes of the last two seconds say; all None until the first echo came back."""

    latest_ms: float | None = None
    min_ms: float | None = None
    """The smallest of the last ten seconds."""
    p50_ms: float | None = None
    p90_ms: float | None = None
    variance_ms2: float = 0.0
    outbound_variation_ms: float = 0.0
    """95th percentile of the one-way delay from us to the peer over its own ten-second minimum."""
    inbound_variation_ms: float = 0.0
    """The same of the way back."""
    clock_offset_ms: float | None = None
    """The peer's clock minus ours, true to half the difference of the two ways."""
    clock_drift_ppm: float | None = None
    """How much faster the peer's clock runs; None until twenty seconds of it were seen."""
    echoes: int = 0
    echo_loss_pct: float = 0.0
    """Requests of the last two seconds that found no answer, either way's fault."""
    updated_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Echo:
    at: float
    rtt_s: float
    outbound_s: float
    inbound_s: float


class EchoEstimator:
    """Turns echoes into `RttStatistics`; times in seconds, `remote` ones on the peer's clock."""

    def __init__(self) -> None:
        self._echoes: deque[_Echo] = deque()
        self._requests: deque[tuple[float, bool]] = deque()
        self._clock: deque[tuple[float, float]] = deque(maxlen=CLOCK_CHUNKS)
        self._chunk: list[_Echo] = []
        self._count = 0

    def handle_echo(
        self, *, sent_at: float, remote_received_at: float, remote_replied_at: float, received_at: float
    ) -> bool:
        """Take one echo in; False if its stamps cannot be true (held longer than it was away, or away for 30 s)."""
        hold = remote_replied_at - remote_received_at
        rtt = (received_at - sent_at) - hold
        if hold < 0 or not 0 <= rtt <= MAX_RTT_S:
            return False
        echo = _Echo(
            at=received_at,
            rtt_s=rtt,
            outbound_s=remote_received_at - sent_at,
            inbound_s=received_at - remote_replied_at,
        )
        self._echoes.append(echo)
        self._count += 1
        self._requests.append((sent_at, True))
        while self._echoes[0].at < received_at - MIN_RTT_WINDOW_S:
            self._echoes.popleft()
        self._judge_clock(echo)
        return True

    def handle_lost(self, *, sent_at: float) -> None:
        """Count a request that was given up."""
        self._requests.append((sent_at, False))

    def reset(self) -> None:
        """Forget the path, as after a migration; the clock stays what it was."""
        self._echoes.clear()
        self._requests.clear()
        self._chunk.clear()

    def statistics(self, *, now: float) -> RttStatistics:
        """Return what is known at `now`; when echoes stop, the last two seconds that had some stay."""
        if not self._echoes:
            offset, drift = self._clock_estimate(now)
            return RttStatistics(clock_offset_ms=offset, clock_drift_ppm=drift)
        latest = self._echoes[-1]
        recent = [echo for echo in self._echoes if echo.at > latest.at - WINDOW_S]
        rtts_ms = [echo.rtt_s * 1000 for echo in recent]
        offset, drift = self._clock_estimate(now)
        p50, p90 = np.percentile(rtts_ms, (50, 90))
        return RttStatistics(
            latest_ms=latest.rtt_s * 1000,
            min_ms=min(echo.rtt_s for echo in self._echoes) * 1000,
            p50_ms=float(p50),
            p90_ms=float(p90),
            variance_ms2=pvariance(rtts_ms),
            outbound_variation_ms=_variation_ms(
                [echo.outbound_s for echo in recent], min(echo.outbound_s for echo in self._echoes)
            ),
            inbound_variation_ms=_variation_ms(
                [echo.inbound_s for echo in recent], min(echo.inbound_s for echo in self._echoes)
            ),
            clock_offset_ms=offset,
            clock_drift_ppm=drift,
            echoes=self._count,
            echo_loss_pct=self._echo_loss_pct(now),
            updated_at=latest.at,
        )

    def _echo_loss_pct(self, now: float) -> float:
        while self._requests and self._requests[0][0] < now - WINDOW_S - 1.0:
            self._requests.popleft()
        if not self._requests:
            return 0.0
        return 100.0 * (1.0 - fmean(answered for _, answered in self._requests))

    def _judge_clock(self, echo: _Echo) -> None:
        if self._chunk and echo.at - self._chunk[0].at >= CLOCK_CHUNK_S:
            self._clock.append(_offset(self._chunk))
            self._chunk.clear()
        self._chunk.append(echo)

    def _clock_estimate(self, now: float) -> tuple[float | None, float | None]:
        """Return offset in ms at `now` and drift in ppm: a least-squares line through the chunks' best echoes."""
        points = [*self._clock, *([_offset(self._chunk)] if self._chunk else [])]
        if not points:
            return None, None
        if len(points) < MIN_CHUNKS_FOR_DRIFT:
            return points[-1][1] * 1000, None
        at = np.array([point[0] for point in points])
        offset = np.array([point[1] for point in points])
        slope, level = np.polyfit(at - at[-1], offset, 1)
        return float(level + slope * (now - at[-1])) * 1000, float(slope) * 1e6


def _offset(chunk: list[_Echo]) -> tuple[float, float]:
    best = min(chunk, key=lambda echo: echo.rtt_s)
    return best.at, (best.outbound_s - best.inbound_s) / 2


def _variation_ms(delays_s: list[float], fastest_s: float) -> float:
    return float(np.percentile(delays_s, 95) - fastest_s) * 1000
