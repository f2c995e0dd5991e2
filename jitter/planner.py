"""Chooses repair and delay together, from what each plan would have done for the last half minute's packets."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jitter.repair import Delays, RepairPlan, ask_after_ms, needs_ms

MS_PER_LATE_PCT = 60.0
"""Delay that one per cent of late frames is worth: three times what concealment costs in J, because late frames come
every second, and because the last third of a per cent of a gamma's tail still pays at this price."""
MS_PER_LOST_PCT = 340.0
LOSS_EXPONENT = 1.15
"""The same for frames that were lost, at up to one per cent of loss. With more loss each is worth less, so that what
counts is the share of the loss that is mended: 3.4 ms per per cent of it at 1 %, less the heavier the loss."""
MS_PER_CONCEALED_PCT = 20.0
"""J's own price, the floor of both."""
STALL_MS = 100.0
"""Nothing at all for this long past due is a stall, not jitter."""
STALL_SHARE = 0.0125
"""Of the time, what stalls may leave unfilled: covering a rare stall wholly would delay all the rest."""
STALL_STRETCH = 1.6
"""How much longer the held sound lasts when it is stretched on demand during a stall."""
BRIDGED_PART = 0.35
BRIDGED_TIME = 0.018
"""What stretching takes over of a lost frame (a period of 7 ms in 20), and of all the time."""
TAIL_SHARE = 0.2
"""At MS_PER_LATE_PCT, a fifth of all frames late costs more than any delay."""
SPREAD_SHARE = 0.0025
MARGIN_MS = 1.0
MS_PER_OVERHEAD_PCT = 0.05
"""Bits are cheap once they are in proportion to the loss, not free."""


Flags = NDArray[np.bool_]


class Listener(enum.Enum):
    """Who is served: ears need even time, machines only order."""

    PLAYOUT = "playout"
    LISTEN = "listen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A plan, the delay it needs, and what it is expected to give."""

    plan: RepairPlan
    delay_ms: float
    """Playout: delay of every frame. Listen: how long past due a hole is held open."""
    spread_ms: float
    """Delay that all but SPREAD_SHARE of the packets keep, stalls apart."""
    concealed_pct: float
    cost: float
    """Comparable between choices made from the same delays, ms."""


class Situation:
    """What choices are made from, with what they share worked out once."""

    __slots__ = (
        "arrived",
        "ask_after_ms",
        "bridge_needs",
        "delays",
        "floor_ms",
        "lost",
        "maximum_ms",
        "missing",
        "ptime_ms",
        "rtt_ms",
        "sent",
        "silences",
        "spread_ms",
        "stall_delay_ms",
        "weights",
    )

    def __init__(self, delays: Delays, *, ptime_ms: float, rtt_ms: float, maximum_ms: float) -> None:
        """`delays` as PacketArrivalHistory gives them, at least one packet."""
        self.delays = delays
        self.ptime_ms = ptime_ms
        self.rtt_ms = rtt_ms
        self.maximum_ms = maximum_ms
        self.lost = np.isinf(delays)
        self.missing = int(np.count_nonzero(self.lost))
        self.arrived = delays[~self.lost] if self.missing else delays
        self.ask_after_ms = ask_after_ms(self.arrived, self.missing)
        self.floor_ms = self._floor()
        """No delay below this can be the cheapest."""
        self.sent = np.arange(len(delays)) * ptime_ms
        self.silences: Delays = np.asarray(np.minimum.accumulate((self.sent + delays)[::-1])[::-1] - self.sent)
        """For each frame, how long after its earliest moment it took until it or anything later had come."""
        stalled = self._in_stall()
        self.stall_delay_ms = 0.0 if stalled is None else self._stall_delay()
        self.weights = self._weights(stalled)
        """What leaving each frame unfilled costs, ms; then, for each that was lost, the share that can be bridged."""
        self.bridge_needs = np.append(delays[1:] + ptime_ms, np.inf)[self.lost]
        """The delay at which a lost frame is known for one in time to stretch what follows into it."""
        self.spread_ms = self._spread(stalled)

    def _floor(self) -> float:
        if not len(self.arrived):
            return 0.0
        at = int((1 - TAIL_SHARE) * (len(self.arrived) - 1))
        return float(np.partition(self.arrived, at)[at])

    def _weights(self, stalled: Flags | None) -> Delays:
        lost_pct = max(100 * self.missing / len(self.delays), 1.0)
        per_lost = max(MS_PER_LOST_PCT / lost_pct**LOSS_EXPONENT, MS_PER_CONCEALED_PCT)
        weights = np.where(self.lost, per_lost, min(MS_PER_LATE_PCT, per_lost))
        if stalled is not None:
            weights[stalled & ~self.lost] = 0.0
        weights *= 100 / len(self.delays)
        share = min(BRIDGED_PART, BRIDGED_TIME * len(self.delays) / max(self.missing, 1))
        bridged = weights[self.lost] * share
        weights[self.lost] -= bridged
        return np.concatenate((weights, bridged))

    def _spread(self, stalled: Flags | None) -> float:
        """The delay that all but SPREAD_SHARE of what arrived keeps."""
        scattered = self.arrived if stalled is None else self.delays[~(self.lost | stalled)]
        allowed = int(SPREAD_SHARE * len(self.delays))
        if allowed >= len(scattered):
            return 0.0
        at = len(scattered) - 1 - allowed
        return float(np.partition(scattered, at)[at])

    def _in_stall(self) -> Flags | None:
        """Which frames fell into a stall, those included that had a short delay because they were sent at its end."""
        silence = self.silences
        long: Flags = (silence >= STALL_MS) & (silence < np.inf)
        if not long.any():
            return None
        marked = long.copy()
        for step in range(1, int(STALL_MS / self.ptime_ms) + 2):
            marked[step:] |= long[:-step] & (silence[step:] > 0)
        return marked

    def _stall_delay(self) -> float:
        """The delay at which stalls, stretched over, leave STALL_SHARE of the time unfilled."""
        silence = self.silences[np.isfinite(self.silences)]
        starts = silence[1:][(silence[1:] >= STALL_MS) & (silence[:-1] < STALL_MS)]
        allowed_ms = STALL_SHARE * len(self.delays) * self.ptime_ms
        low, high = 0.0, self.maximum_ms
        while high - low > 1.0:
            middle = (low + high) / 2
            if float(np.maximum(starts - STALL_STRETCH * middle, 0).sum()) > allowed_ms:
                low = middle
            else:
                high = middle
        return high


def choose(situation: Situation, plans: Sequence[RepairPlan], listener: Listener) -> Choice:
    """Return the cheapest of `plans`, each with the delay at which it is cheapest."""
    evaluate = _for_playout if listener is Listener.PLAYOUT else _for_listening
    return min((evaluate(situation, plan) for plan in plans), key=lambda each: each.cost)


def _needs(situation: Situation, plan: RepairPlan, *, fec_after_ms: float = 0.0) -> Delays:
    return needs_ms(
        situation.delays,
        plan,
        ptime_ms=situation.ptime_ms,
        rtt_ms=situation.rtt_ms,
        ask_after_ms=situation.ask_after_ms,
        fec_after_ms=fec_after_ms,
    )


def _for_playout(situation: Situation, plan: RepairPlan) -> Choice:
    need = _needs(situation, plan)
    bridged = np.minimum(need[situation.lost], situation.bridge_needs)
    every = np.concatenate((need, bridged))
    tail = np.flatnonzero((every > situation.floor_ms) & (every <= situation.maximum_ms))
    order = tail[np.argsort(every[tail])]
    needs = every[order]
    weights = situation.weights
    beyond = float(weights[every > situation.maximum_ms].sum())
    gained = weights[order]
    delay = max(situation.floor_ms, situation.stall_delay_ms)
    cost = delay + beyond + float(gained.sum())
    if len(order):
        costs = np.maximum(needs + MARGIN_MS, situation.stall_delay_ms) + (cost - delay - np.cumsum(gained))
        best = int(np.argmin(costs))
        delay, cost = max(float(needs[best]) + MARGIN_MS, situation.stall_delay_ms), float(costs[best])
    return Choice(
        plan=plan,
        delay_ms=delay,
        spread_ms=situation.spread_ms,
        concealed_pct=100 * np.count_nonzero(need > delay) / len(need),
        cost=cost + MS_PER_OVERHEAD_PCT * plan.overhead_pct(situation.missing / len(need)),
    )


HOLE_GRID_MS = (40.0, 70.0, 100.0, 130.0, 170.0, 220.0, 300.0)
LISTEN_MS_PER_CONCEALED_PCT = 80.0
"""A recogniser suffers more from a missing syllable than from a late word."""


def _for_listening(situation: Situation, plan: RepairPlan) -> Choice:
    need = _needs(situation, plan, fec_after_ms=situation.ask_after_ms)
    count = len(need)
    best_cost, best_deadline, best_missing = np.inf, HOLE_GRID_MS[0], 0
    for deadline in HOLE_GRID_MS:
        missing = int(np.count_nonzero(need > deadline))
        came = situation.sent + np.minimum(need, deadline)
        waited = float((np.maximum.accumulate(came) - came).sum())
        cost = (waited + LISTEN_MS_PER_CONCEALED_PCT * 100 * missing) / count
        if cost < best_cost:
            best_cost, best_deadline, best_missing = cost, deadline, missing
        if not missing or deadline > situation.maximum_ms:
            break
    return Choice(
        plan=plan,
        delay_ms=best_deadline,
        spread_ms=situation.spread_ms,
        concealed_pct=100 * best_missing / count,
        cost=best_cost + MS_PER_OVERHEAD_PCT * plan.overhead_pct(situation.missing / count),
    )
