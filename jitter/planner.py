"""Chooses repair and delay together, from what each plan would have done for the last half minute's packets."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jitter.repair import Delays, RepairPlan, needs_ms

LATE_SHARE = 0.0025
"""Frames that may come too late when nothing was lost: past this point of a gamma's tail 1 % less costs > 50 ms."""
UNREPAIRED_SHARE = 0.1
"""Lost frames that may stay lost: repair is asked to mend nine in ten."""
STALL_MS = 100.0
"""Nothing at all for this long past due is a stall, not jitter."""
STALL_SHARE = 0.01
"""Of the time, what stalls may leave unfilled: covering a rare stall wholly would delay all the rest."""
STALL_STRETCH = 1.6
"""How much longer the held sound lasts when it is stretched on demand during a stall."""
MARGIN_MS = 1.0
MS_PER_CONCEALED_PCT = 20.0
MS_PER_OVERHEAD_PCT = 0.05
"""Bits are cheap once they are in proportion to the loss, not free."""


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
    """Delay that all but LATE_SHARE of the packets keep, stalls apart."""
    concealed_pct: float
    meets_goal: bool
    cost: float
    """Comparable between choices made from the same delays, ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a choice is made from."""

    delays: Delays
    ptime_ms: float
    rtt_ms: float
    ask_after_ms: float
    maximum_ms: float


def choose(situation: Situation, plans: Sequence[RepairPlan], listener: Listener) -> Choice:
    """Return the best of `plans`: those that meet the goal before those that do not, then the cheapest."""
    evaluate = _for_playout if listener is Listener.PLAYOUT else _for_listening
    return min((evaluate(situation, plan) for plan in plans), key=lambda each: (not each.meets_goal, each.cost))


def _needs(situation: Situation, plan: RepairPlan) -> Delays:
    return needs_ms(
        situation.delays,
        plan,
        ptime_ms=situation.ptime_ms,
        rtt_ms=situation.rtt_ms,
        ask_after_ms=situation.ask_after_ms,
    )


def _for_playout(situation: Situation, plan: RepairPlan) -> Choice:
    delays = situation.delays
    need = _needs(situation, plan)
    lost = np.isinf(delays)
    missing = int(np.count_nonzero(lost))
    late = _late_delay(situation, need, lost)
    delay = max(late, _stall_delay(situation))
    if missing:
        within = np.sort(need[lost])
        reachable = int(np.searchsorted(within, situation.maximum_ms, "right"))
        wanted = min(int(np.ceil((1 - UNREPAIRED_SHARE) * missing)), reachable)
        if wanted:
            delay = max(delay, float(within[wanted - 1]) + MARGIN_MS)
    delay = min(delay, situation.maximum_ms)
    concealed = 100 * float(np.mean(need > delay))
    unrepaired = int(np.count_nonzero(need[lost] > delay))
    share = missing / len(delays)
    return Choice(
        plan=plan,
        delay_ms=delay,
        spread_ms=late,
        concealed_pct=concealed,
        meets_goal=unrepaired <= UNREPAIRED_SHARE * missing,
        cost=delay + MS_PER_CONCEALED_PCT * concealed + MS_PER_OVERHEAD_PCT * plan.overhead_pct(share),
    )


def _late_delay(situation: Situation, need: Delays, lost: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    scattered = need[~lost & ~_in_stall(situation)]
    if not len(scattered):
        return 0.0
    allowed = int(LATE_SHARE * len(need))
    if allowed >= len(scattered):
        return 0.0
    at = len(scattered) - 1 - allowed
    return float(np.partition(scattered, at)[at]) + MARGIN_MS


def _silences(situation: Situation) -> Delays:
    """For each frame, how long after its earliest moment it took until it or anything later had come."""
    delays = situation.delays
    sent = np.arange(len(delays)) * situation.ptime_ms
    return np.asarray(np.minimum.accumulate((sent + delays)[::-1])[::-1] - sent)


def _in_stall(situation: Situation) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    silence = _silences(situation)
    long = np.isfinite(silence) & (silence >= STALL_MS)
    if not long.any():
        return long
    marked = long.copy()
    reach = int(STALL_MS / situation.ptime_ms) + 1
    for step in range(1, reach + 1):
        marked[step:] |= long[:-step] & (silence[step:] > 0)
    return marked


def _stall_delay(situation: Situation) -> float:
    silence = _silences(situation)
    silence = silence[np.isfinite(silence)]
    starts = silence[1:][(silence[1:] >= STALL_MS) & (silence[:-1] < STALL_MS)]
    if not len(starts):
        return 0.0
    allowed_ms = STALL_SHARE * len(situation.delays) * situation.ptime_ms
    low, high = 0.0, situation.maximum_ms
    while high - low > 1.0:
        middle = (low + high) / 2
        if float(np.maximum(starts - STALL_STRETCH * middle, 0).sum()) > allowed_ms:
            low = middle
        else:
            high = middle
    return high


HOLE_GRID_MS = (20.0, 40.0, 60.0, 80.0, 100.0, 130.0, 160.0, 200.0, 250.0, 300.0)
LISTEN_MS_PER_CONCEALED_PCT = 40.0
"""A recogniser suffers more from a missing syllable than from a late word."""


def _for_listening(situation: Situation, plan: RepairPlan) -> Choice:
    delays = situation.delays
    need = _needs(situation, plan)
    sent = np.arange(len(delays)) * situation.ptime_ms
    share = float(np.mean(np.isinf(delays)))
    best: tuple[float, float, float] | None = None
    for deadline in HOLE_GRID_MS:
        if best is not None and deadline > situation.maximum_ms:
            break
        came = need <= deadline
        out = np.maximum.accumulate(sent + np.where(came, need, deadline))
        waited = float(np.mean((out - sent - need)[came])) if came.any() else deadline
        concealed = 100 * float(np.mean(~came))
        cost = waited + LISTEN_MS_PER_CONCEALED_PCT * concealed
        if best is None or cost < best[0]:
            best = (cost, deadline, concealed)
    assert best is not None
    return Choice(
        plan=plan,
        delay_ms=best[1],
        spread_ms=best[1],
        concealed_pct=best[2],
        meets_goal=True,
        cost=best[0] + MS_PER_OVERHEAD_PCT * plan.overhead_pct(share),
    )
