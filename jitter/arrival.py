"""When packets came, measured against the fastest of the last seconds; behaviour of libwebrtc's PacketArrivalHistory.

Two departures: a lasting step of the path is recognised and taken out of the spread (libwebrtc waits for its window to
pass), and what was never received keeps its place, so that loss, bursts and lateness are read off one array.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from jitter.packet import RTP_CLOCK_HZ

TICKS_PER_MS = RTP_CLOCK_HZ // 1000
BASE_WINDOW_S = 2.0
"""libwebrtc's window for the fastest packet; long enough for 100 packets, short enough to follow 200 ppm (0.4 ms)."""
STEP_WINDOW_S = 0.5
STEP_PACKETS = 20
STEP_MS = 30.0
"""A route change: this many packets over this time, none within STEP_MS of the base. Independent jitter with a mean
of 40 ms does this by chance less than once a day of calls."""
HISTORY_PACKETS = 1536
"""30 s at 20 ms, the time constant of libwebrtc's forgetting (0.983 per 500 ms)."""


class PacketArrivalHistory:
    """Relative delay of each of the last HISTORY_PACKETS packets of one source; lost ones are infinite."""

    __slots__ = (
        "_fastest",
        "_highest",
        "_last_arrival",
        "_last_raw_ms",
        "_lowest",
        "_newest_timestamp",
        "_ring",
        "_slow_first",
        "_slow_min_ms",
        "_slow_packets",
        "_slow_since",
        "base_ms",
        "jitter_ms",
        "newest_excess_ms",
        "packets",
    )

    def __init__(self) -> None:
        self._ring: NDArray[np.float64] = np.full(HISTORY_PACKETS, np.inf)
        self.reset()

    def reset(self) -> None:
        """Forget everything, as at a new source."""
        self._fastest: deque[tuple[float, float]] = deque()
        self._highest = -1
        self._lowest = -1
        self._last_arrival = 0.0
        self._last_raw_ms = 0.0
        self._slow_packets = 0
        self._slow_since = 0.0
        self._slow_min_ms = 0.0
        self._slow_first = 0
        self.base_ms = 0.0
        """Arrival minus media time of the fastest recent packet, ms: the clock everything here is relative to."""
        self.jitter_ms = 0.0
        """Interarrival jitter of RFC 3550 §6.4.1, in ms."""
        self.newest_excess_ms = 0.0
        """Delay of the packet sent last among those received, ms."""
        self._newest_timestamp = 0
        self.packets = 0
        """Packets recorded since the last reset."""
        self._ring.fill(np.inf)

    @property
    def highest(self) -> int:
        """Highest sequence number recorded; -1 before the first."""
        return self._highest

    @property
    def packets_sent(self) -> int:
        """Packets from the first recorded to the newest, lost ones included."""
        return self._highest - self._lowest + 1

    @property
    def last_arrival(self) -> float:
        """When the newest packet came, seconds."""
        return self._last_arrival

    def add(self, sequence: int, timestamp: int, arrival: float) -> float:
        """Record a first transmission (unwrapped counters, seconds); return its delay against the base, ms."""
        raw_ms = arrival * 1000 - timestamp / TICKS_PER_MS
        highest = self._highest
        if highest < 0:
            highest = sequence - 1
            self._lowest = sequence
            self.base_ms = self._last_raw_ms = raw_ms
        elif sequence <= highest - HISTORY_PACKETS:
            return raw_ms - self.base_ms
        fastest = self._fastest
        while fastest and fastest[-1][1] >= raw_ms:
            fastest.pop()
        fastest.append((arrival, raw_ms))
        while fastest[0][0] < arrival - BASE_WINDOW_S:
            fastest.popleft()
        self.base_ms = base_ms = fastest[0][1]
        excess = raw_ms - base_ms
        if sequence > highest:
            if sequence > highest + 1:
                self._mark_lost(highest + 1, sequence)
            self._highest = sequence
            self._newest_timestamp = timestamp
            self.newest_excess_ms = excess
        self._ring[sequence % HISTORY_PACKETS] = excess
        self.jitter_ms += (abs(raw_ms - self._last_raw_ms) - self.jitter_ms) / 16
        self._last_raw_ms = raw_ms
        self._last_arrival = arrival
        self.packets += 1
        if excess <= STEP_MS:
            self._slow_packets = 0
            return excess
        return self._follow_step(sequence, raw_ms, excess, arrival)

    def _mark_lost(self, first: int, upto: int) -> None:
        for lost in range(max(first, upto - HISTORY_PACKETS), upto):
            self._ring[lost % HISTORY_PACKETS] = np.inf

    def _follow_step(self, sequence: int, raw_ms: float, excess: float, arrival: float) -> float:
        """Count packets that are all far from the base; once they are enough, the path itself has moved."""
        if not self._slow_packets:
            self._slow_since, self._slow_min_ms, self._slow_first = arrival, raw_ms, sequence
        self._slow_packets += 1
        self._slow_min_ms = min(self._slow_min_ms, raw_ms)
        if self._slow_packets < STEP_PACKETS or arrival - self._slow_since < STEP_WINDOW_S:
            return excess
        step = self._slow_min_ms - self.base_ms
        for late in range(max(self._slow_first, self._highest - HISTORY_PACKETS + 1), self._highest + 1):
            at = late % HISTORY_PACKETS
            self._ring[at] = max(0.0, self._ring[at] - step)
        self._fastest.clear()
        self._fastest.append((arrival, self._slow_min_ms))
        self.base_ms = self._slow_min_ms
        self.newest_excess_ms -= step
        self._slow_packets = 0
        return excess - step

    def excuse(self, sequence: int, *, at_most_ms: float) -> float:
        """Count the packet just added as no later than `at_most_ms`; return its delay in the record, ms."""
        if sequence <= self._highest - HISTORY_PACKETS:
            return at_most_ms
        at = sequence % HISTORY_PACKETS
        self._slow_packets = 0
        excess = self._ring[at] = min(float(self._ring[at]), at_most_ms)
        return excess

    def overdue_ms(self, *, now: float, ptime_ms: float = 20.0) -> float:
        """Return how late the packet after the newest is by now against its earliest moment, ms."""
        return self.delay_ms(self._newest_timestamp, now=now) - ptime_ms

    def delay_ms(self, timestamp: int, *, now: float) -> float:
        """Return how far `now` is behind the earliest moment at which media time `timestamp` can be here, ms."""
        return now * 1000 - timestamp / TICKS_PER_MS - self.base_ms

    def due(self, timestamp: int, delay_ms: float) -> float:
        """Return when media time `timestamp` is `delay_ms` behind its earliest moment, seconds."""
        return (timestamp / TICKS_PER_MS + self.base_ms + delay_ms) / 1000

    def delays_ms(self, packets: int = HISTORY_PACKETS) -> NDArray[np.float64]:
        """Return the relative delays of the newest `packets` packets in sending order, lost ones infinite."""
        count = min(packets, HISTORY_PACKETS, self._highest - self._lowest + 1)
        if count <= 0:
            return np.zeros(0)
        first = self._highest - count + 1
        start, stop = first % HISTORY_PACKETS, self._highest % HISTORY_PACKETS + 1
        if start < stop:
            return self._ring[start:stop].copy()
        return np.concatenate((self._ring[start:], self._ring[:stop]))
