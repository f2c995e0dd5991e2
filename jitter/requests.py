"""Asks for missing packets again (NACK): when, how often, and when no more.

A packet is asked for once it is more likely lost than late, by timer and not only when a later packet shows the hole;
again after the answer is overdue; and no more when an answer could not be in time (libwebrtc's rule asks by age alone).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jitter.arrival import TICKS_PER_MS, PacketArrivalHistory
from jitter.controller import Decision
from jitter.repair import repeat_after_ms

MAX_MISSING = 250
"""As libwebrtc's nack_tracker.cc: 5 s of 20 ms packets."""
MAX_TRIES = 6
MAX_AHEAD = 8
"""Packets asked for by timer before any later one has come: a stall is not a reason to ask for all of it."""
TIMER_MARGIN_MS = 1.0
REMEMBER_S = 1.0
"""How long an answer to a request that was given up is still known for one."""
NEVER = float("inf")


@dataclass(slots=True)
class _Missing:
    timestamp: int
    ask_at: float
    tries: int = 0
    first_asked: float = 0.0


class RequestPlanner:
    """Keeps the list of missing packets of one source."""

    def __init__(self, history: PacketArrivalHistory) -> None:
        self._history = history
        self._missing: dict[int, _Missing] = {}
        self._highest = -1
        self._next_timestamp = 0
        self._duration = 0
        self._pausing = False
        self._ask_at = NEVER
        self._expect_at = NEVER
        self._expected = 0
        self.due = NEVER
        """When `poll` may have something to ask, seconds; infinite while nothing is missing or expected."""

    def reset(self) -> None:
        """Forget all, as at a new source."""
        self._missing.clear()
        self._highest = -1
        self._ask_at = self._expect_at = self.due = NEVER

    def is_answer(self, sequence: int, *, decision: Decision, now: float) -> bool:
        """Take a received packet off the list of missing ones; return whether a request brought it."""
        entry = self._missing.pop(sequence, None) if self._missing else None
        if entry is None or not entry.tries:
            return False
        if sequence > self._highest and decision.fastest_rtt_ms * TICKS_PER_MS >= 2 * self._duration:
            return False  # an answer would have been overtaken: the path has become slower, and all packets are late
        return now - entry.first_asked >= 0.5 * decision.fastest_rtt_ms / 1000

    def handle_packet(
        self, sequence: int, timestamp: int, duration: int, *, decision: Decision, now: float, pause_follows: bool
    ) -> None:
        """Note a received packet (unwrapped counters, ticks) that `is_answer` and the arrival history have seen."""
        highest = self._highest
        if sequence > highest:
            if highest >= 0 and sequence > highest + 1:
                self._note_hole(sequence, timestamp, duration, decision=decision, now=now)
            self._highest = sequence
            self._next_timestamp = timestamp + duration
            self._duration = duration
            self._pausing = pause_follows
            if decision.plan.nack:
                self._expect(sequence + 1, decision)
            elif self._expect_at != NEVER:
                self._expect_at = NEVER
                self.due = self._ask_at

    def _note_hole(self, sequence: int, timestamp: int, duration: int, *, decision: Decision, now: float) -> None:
        for missing in range(max(self._highest + 1, sequence - MAX_MISSING), sequence):
            if missing not in self._missing:
                media = timestamp - (sequence - missing) * duration
                self._add(missing, media, max(self._history.due(media, decision.ask_after_ms), now))

    def _add(self, sequence: int, timestamp: int, ask_at: float) -> None:
        self._missing[sequence] = _Missing(timestamp, ask_at)
        self._ask_at = min(self._ask_at, ask_at)
        self.due = min(self.due, ask_at)
        if len(self._missing) > MAX_MISSING:
            del self._missing[min(self._missing)]

    def _expect(self, sequence: int, decision: Decision) -> None:
        """Look out for the packet `sequence`, of which nothing has shown yet that it was sent."""
        self._expected = sequence
        self._expect_at = NEVER
        if decision.plan.nack and not self._pausing and sequence <= self._highest + MAX_AHEAD:
            media = self._next_timestamp + (sequence - self._highest - 1) * self._duration
            self._expect_at = self._history.due(media, decision.ask_after_ms + TIMER_MARGIN_MS)
        self.due = min(self._ask_at, self._expect_at)

    def get_timer(self) -> float | None:
        """Return when `poll` may have something to ask, in seconds."""
        return self.due if self.due < NEVER else None

    def poll(
        self, *, decision: Decision, deadline_ms: float, filled_until: int, repaired: Callable[[int], bool], now: float
    ) -> list[int]:
        """Return the unwrapped sequence numbers to ask for at `now`.

        `deadline_ms` is how long past its earliest moment an answer is still of use; what lies before the unwrapped
        timestamp `filled_until` is given up; what `repaired`, given its timestamp, says can be had otherwise is too.
        """
        while now >= self._expect_at:
            media = self._next_timestamp + (self._expected - self._highest - 1) * self._duration
            if self._expected not in self._missing:
                self._add(self._expected, media, self._expect_at)
            self._expect(self._expected + 1, decision)
        if now < self._ask_at:
            return []
        asked: list[int] = []
        gone: list[int] = []
        rtt_s = decision.rtt_ms / 1000
        for sequence, entry in self._missing.items():
            if entry.timestamp < filled_until and now > entry.first_asked + REMEMBER_S:
                gone.append(sequence)
            elif now >= entry.ask_at:
                entry.ask_at = NEVER
                given_up = entry.timestamp < filled_until or entry.tries >= MAX_TRIES or not decision.plan.nack
                in_time = now + rtt_s <= self._history.due(entry.timestamp, deadline_ms)
                if not given_up and in_time and not repaired(entry.timestamp):
                    entry.tries += 1
                    entry.first_asked = entry.first_asked or now
                    entry.ask_at = now + repeat_after_ms(decision.rtt_ms) / 1000
                    asked.append(sequence)
        for sequence in gone:
            del self._missing[sequence]
        self._ask_at = min((entry.ask_at for entry in self._missing.values()), default=NEVER)
        self.due = min(self._ask_at, self._expect_at)
        return asked
