"""How much delay to hold: the policies, and the manager that turns their wish into a target that moves with care."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jitter.histogram import ForgettingHistogram

START_DELAY_MS = 60.0
"""Until the path is known; libwebrtc starts at 80."""
MIN_DELAY_MS = 3.0
MAX_DELAY_MS = 500.0
"""What RingRTC caps libwebrtc's target at; past it talking over each other is worse than gaps."""
FALL_MS_PER_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PathView:
    """What a policy may look at besides the arrivals it was told of."""

    jitter_ms: float
    """RFC 3550's."""
    rtt_ms: float | None


class DelayPolicy(Protocol):
    """A rule for the target delay, in ms against the fastest packet."""

    def handle_arrival(self, excess_ms: float, *, reordered: bool, now: float) -> None:
        """Learn one packet's delay against the fastest."""
        ...

    def target_ms(self, path: PathView) -> float:
        """Return the delay it would hold now."""
        ...


class FixedPolicy:
    """Always the same delay."""

    def __init__(self, delay_ms: float) -> None:
        self._delay_ms = delay_ms

    def handle_arrival(self, excess_ms: float, *, reordered: bool, now: float) -> None:
        """Learn nothing."""

    def target_ms(self, path: PathView) -> float:  # noqa: ARG002
        """Return the fixed delay."""
        return self._delay_ms


class FormulaPolicy:
    """Jitter and RTT alone: clamp(1.5 · jitter, 40, cap) with cap = max(40, clamp(2 · RTT + jitter, 30, 300))."""

    def handle_arrival(self, excess_ms: float, *, reordered: bool, now: float) -> None:
        """Learn nothing; RFC 3550's jitter comes with the path."""

    def target_ms(self, path: PathView) -> float:
        """Return the window in ms."""
        cap = max(40.0, min(max(2 * (path.rtt_ms or 0.0) + path.jitter_ms, 30.0), 300.0))
        return min(max(1.5 * path.jitter_ms, 40.0), cap)


BUCKET_MS = 20
BUCKETS = 100
UNDERRUN_QUANTILE = 0.95
UNDERRUN_FORGET = 0.983
UNDERRUN_START_WEIGHT = 2.0
RESAMPLE_S = 0.5
REORDER_FORGET = 0.9993
REORDER_MS_PER_LOSS_PCT = 20


class QuantilePolicy:
    """libwebrtc's way: delay_manager.cc with underrun_optimizer.cc and reorder_optimizer.cc, at their defaults."""

    def __init__(self) -> None:
        self._underrun = ForgettingHistogram(
            buckets=BUCKETS, forget=UNDERRUN_FORGET, start_weight=UNDERRUN_START_WEIGHT
        )
        self._reorder = ForgettingHistogram(buckets=BUCKETS, forget=REORDER_FORGET, start_weight=UNDERRUN_START_WEIGHT)
        self._slot_start: float | None = None
        self._slot_max_ms = 0.0
        self._underrun_ms = START_DELAY_MS
        self._reordered = False

    def handle_arrival(self, excess_ms: float, *, reordered: bool, now: float) -> None:
        """Add the worst delay of each half second, and every reordered packet's own."""
        self._reorder.add(int(excess_ms / BUCKET_MS) if reordered else 0)
        self._reordered |= reordered
        if self._slot_start is None:
            self._slot_start = now
        if now - self._slot_start > RESAMPLE_S:
            self._underrun.add(int(self._slot_max_ms / BUCKET_MS))
            self._underrun_ms = (1 + self._underrun.quantile(UNDERRUN_QUANTILE)) * BUCKET_MS
            self._slot_start, self._slot_max_ms = now, 0.0
        self._slot_max_ms = max(self._slot_max_ms, excess_ms)

    def target_ms(self, path: PathView) -> float:  # noqa: ARG002
        """Return the greater of the underrun and the reorder target, ms."""
        return max(self._underrun_ms, self._reorder_ms() if self._reordered else 0.0)

    def _reorder_ms(self) -> float:
        base = self._underrun_ms
        steps = np.arange(BUCKETS) * BUCKET_MS
        beyond = 1 - np.cumsum(self._reorder.shares)
        cost = np.maximum(0, steps - base) + REORDER_MS_PER_LOSS_PCT * 100 * beyond
        return float((1 + int(np.argmin(cost))) * BUCKET_MS)


class DelayManager:
    """Bounds the wish, follows a rise at once, a fall by FALL_MS_PER_S at most, and nothing while frozen."""

    def __init__(self, *, start_ms: float = START_DELAY_MS) -> None:
        self.target_delay_ms = start_ms
        self.minimum_ms = MIN_DELAY_MS
        self.maximum_ms = MAX_DELAY_MS
        self._since: float | None = None
        self._frozen_until = 0.0

    def freeze(self, *, until: float) -> None:
        """Let no rise happen before `until`: what arrives late now is late by our own doing."""
        self._frozen_until = max(self._frozen_until, until)

    def update(self, wish_ms: float, *, now: float) -> float:
        """Move the target towards `wish_ms`; return it."""
        elapsed = 0.0 if self._since is None else max(0.0, now - self._since)
        self._since = now
        wish = min(max(wish_ms, self.minimum_ms), self.maximum_ms)
        if wish > self.target_delay_ms:
            if now >= self._frozen_until:
                self.target_delay_ms = wish
        else:
            self.target_delay_ms = max(wish, self.target_delay_ms - FALL_MS_PER_S * elapsed)
        return self.target_delay_ms
