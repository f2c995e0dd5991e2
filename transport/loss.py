"""What the network did to one direction of the media: loss before repair, bursts, jitter. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

BURST_LENGTHS = 8
"""Bursts of 1 to 7 packets are counted apart, longer ones together: no repair tells them apart."""
REORDER_WAIT_S = 0.12
"""A number missing for this long is lost: what comes later than this after its successor was lost to most buffers."""
LEAST_WAIT_S = 0.04
JITTERS_WAITED = 4.0
"""Where packets come evenly, two packets' time and some times the jitter are enough: a step of loss shows sooner."""
WINDOW_S = 5.0
"""Long enough to see a 1 % loss (250 packets), short enough to forget it."""
RECENT_S = 1.0
"""The window that a step of loss must show in."""
REQUESTS_KEPT_S = 2.0
OVERTAKEN_RTT_S = 0.04
"""With so long a round trip an answer comes after later packets; what does not is late, as after a change of route."""
MAX_GAP = 1000
"""A jump of 20 s at 20 ms a packet is a new stream, not a loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossStatistics:
    """Counts since the start, and rates over the last five seconds and the last one."""

    packets_received: int = 0
    packets_lost: int = 0
    packets_repaired: int = 0
    packets_retransmitted: int = 0
    """Of those repaired, by an answer to a request."""
    bursts: tuple[int, ...] = ()
    """How many losses of 1, 2, … packets there were; the last counts the longer ones."""
    loss_pct: float = 0.0
    recent_loss_pct: float = 0.0
    mean_burst: float = 1.0
    p90_burst: int = 1
    """Nine of ten lost packets stand in a burst no longer than this, over the last five seconds."""
    jitter_ms: float = 0.0


@dataclass(slots=True)
class _Missing:
    """Numbers not seen yet, in order, each with when it was first missed."""

    since: dict[int, float] = field(default_factory=dict)
    repaired: set[int] = field(default_factory=set)
    requested: dict[int, float] = field(default_factory=dict)
    """Asked for again, first at these times; some before anything later had come."""


class LossObserver:
    """Follows one direction's sequence numbers; 16-bit numbers are unwrapped here."""

    def __init__(self) -> None:
        self.rtt_s = 0.0
        """The shortest round trip: what comes sooner than half of it after it was asked for is no answer."""
        self._highest: int | None = None
        self._missing = _Missing()
        self._outcomes: deque[tuple[float, int]] = deque()
        self._received = 0
        self._lost = 0
        self._repaired = 0
        self._retransmitted = 0
        self._bursts = [0] * BURST_LENGTHS
        self._last_lost: int | None = None
        self._open_burst = 0
        self._jitter_s = 0.0
        self._last_transit_s: float | None = None

    @property
    def packets_lost(self) -> int:
        """How many packets did not come by themselves since the start."""
        return self._lost

    def handle_packet(self, sequence_number: int, *, now: float, media_time_s: float | None = None) -> None:
        """Take in that a packet arrived; `media_time_s` is its RTP timestamp in seconds, for jitter."""
        number = self._unwrap(sequence_number)
        self.handle_timer(now=now)
        if self._highest is None or abs(number - self._highest) > MAX_GAP:
            self._restart(number)
        highest = self._highest
        assert highest is not None
        is_answer = self._is_answer(number, now)
        if number > highest:
            for absent in range(highest + 1, number + is_answer):
                self._missing.since[absent] = now
            self._highest = number
        if is_answer:
            self._retransmitted += number in self._missing.since
            self.handle_repaired(sequence_number)
            return
        if number <= highest and self._missing.since.pop(number, None) is None:
            return
        self._received += 1
        self._outcomes.append((now, 0))
        if media_time_s is not None and number == self._highest:
            self._measure_jitter(now - media_time_s)

    def handle_requested(self, sequence_number: int, *, now: float) -> None:
        """Take in that a packet was asked for again, perhaps before anything later had come."""
        requested = self._missing.requested
        requested.setdefault(self._unwrap(sequence_number), now)
        while requested and next(iter(requested.values())) < now - REQUESTS_KEPT_S:
            del requested[next(iter(requested))]

    def _is_answer(self, number: int, now: float) -> bool:
        asked_at = self._missing.requested.get(number)
        if asked_at is None or (number > (self._highest or 0) and self.rtt_s >= OVERTAKEN_RTT_S):
            return False
        return now - asked_at >= self.rtt_s / 2

    def handle_repaired(self, sequence_number: int) -> None:
        """Take in that FEC or RED gave a missing packet back, on time or not."""
        number = self._unwrap(sequence_number)
        if number in self._missing.since:
            self._missing.repaired.add(number)

    def handle_timer(self, *, now: float) -> None:
        """Give up the numbers that have been missing too long."""
        while self._missing.since:
            number, since = next(iter(self._missing.since.items()))
            if since > now - self._wait_s():
                break
            del self._missing.since[number]
            self._count_lost(number, since)
        while self._outcomes and self._outcomes[0][0] < now - WINDOW_S:
            self._outcomes.popleft()

    def _wait_s(self) -> float:
        return min(REORDER_WAIT_S, LEAST_WAIT_S + JITTERS_WAITED * self._jitter_s)

    def statistics(self, *, now: float) -> LossStatistics:
        """Return counts and rates at `now`; a number still waited for is not lost yet."""
        self.handle_timer(now=now)
        lengths = [length for _, length in self._outcomes if length]
        recent = [length for at, length in self._outcomes if at > now - RECENT_S]
        return LossStatistics(
            packets_received=self._received,
            packets_lost=self._lost,
            packets_repaired=self._repaired,
            packets_retransmitted=self._retransmitted,
            bursts=self._burst_counts(),
            loss_pct=100.0 * len(lengths) / len(self._outcomes) if self._outcomes else 0.0,
            recent_loss_pct=100.0 * sum(map(bool, recent)) / len(recent) if recent else 0.0,
            mean_burst=_mean_burst(lengths),
            p90_burst=int(np.percentile(_final_lengths(lengths), 90, method="higher")) if lengths else 1,
            jitter_ms=self._jitter_s * 1000,
        )

    def _count_lost(self, number: int, since: float) -> None:
        self._lost += 1
        if number in self._missing.repaired:
            self._missing.repaired.discard(number)
            self._repaired += 1
        if self._last_lost == number - 1:
            self._open_burst += 1
        else:
            self._close_burst()
            self._open_burst = 1
        self._last_lost = number
        self._outcomes.append((since + self._wait_s(), self._open_burst))

    def _close_burst(self) -> None:
        if self._open_burst:
            self._bursts[min(self._open_burst, BURST_LENGTHS) - 1] += 1
        self._open_burst = 0

    def _burst_counts(self) -> tuple[int, ...]:
        counts = list(self._bursts)
        if self._open_burst:
            counts[min(self._open_burst, BURST_LENGTHS) - 1] += 1
        return tuple(counts)

    def _measure_jitter(self, transit_s: float) -> None:
        """RFC 3550, appendix A.8."""
        if self._last_transit_s is not None:
            self._jitter_s += (abs(transit_s - self._last_transit_s) - self._jitter_s) / 16
        self._last_transit_s = transit_s

    def _unwrap(self, sequence_number: int) -> int:
        if self._highest is None:
            return sequence_number
        return self._highest + ((sequence_number - self._highest + 0x8000) & 0xFFFF) - 0x8000

    def _restart(self, number: int) -> None:
        self._close_burst()
        self._missing = _Missing()
        self._highest = number - 1
        self._last_lost = None
        self._last_transit_s = None


def _mean_burst(lengths: list[int]) -> float:
    """`lengths` holds 1, 2, 3 for a burst of three: its packets over its ones are the mean length."""
    return len(lengths) / max(1, sum(length == 1 for length in lengths)) if lengths else 1.0


def _final_lengths(lengths: list[int]) -> list[int]:
    """Return for each lost packet the whole length of its burst."""
    finals: list[int] = []
    burst: list[int] = []
    for length in lengths:
        if length == 1 and burst:
            finals += [len(burst)] * len(burst)
            burst = []
        burst.append(length)
    return finals + [len(burst)] * len(burst)
