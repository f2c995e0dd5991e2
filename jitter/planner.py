"""Chooses repair and delay together, from what each plan would have done for the last half minute's packets."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jitter.repair import Delays, RepairPlan, Repairs, ask_after_ms

MS_PER_LATE_PCT = 60.0
"""Delay that one per cent of late frames is worth: three times what concealment costs in J, because late frames come
every second, and because the last third of a per cent of a gamma's tail still pays at this price."""
MS_PER_LOST_PCT = 850.0
LOSS_EXPONENT = 1.68
"""The same for frames that were lost, at up to one per cent of loss. With more loss each is worth less, so that what
counts is the share of the loss that is mended: 8.5 ms per per cent of it at 1 %, enough to wait for every answer, less
the heavier the loss: 2.8 ms at 5 %."""
MS_PER_CONCEALED_PCT = 20.0
"""J's own price, the floor of both."""
STALL_MS = 100.0
"""Nothing at all for this long past due is a stall, not jitter."""
STALL_SHARE = 0.0155
"""Of the time, what stalls may leave unfilled: covering a rare stall wholly would delay all the rest."""
STALL_STRETCH = 2.6
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

    def __init__(self, delays: Delays, *, ptime_ms: float, rtt_ms: float, maximum_ms: float) -> None:
        """`delays` as PacketArrivalHistory gives them, at least one packet."""
        self.delays = delays
        self.ptime_ms = ptime_ms
        self.rtt_ms = rtt_ms
        self.maximum_ms = maximum_ms
        self.lost: Flags = delays == np.inf
        self.missing = int(np.count_nonzero(self.lost))
        ordered = np.sort(delays)
        self.arrived: Delays = ordered[: len(ordered) - self.missing]
        """Delays of what came, ascending."""
        self.ask_after_ms = ask_after_ms(self.arrived, self.missing)
        self.sent = _sent_ms(ptime_ms, 1 << len(delays).bit_length())[: len(delays)]
        self.silences: Delays = np.minimum.accumulate((self.sent + delays)[::-1])[::-1] - self.sent
        """For each frame, how long after its earliest moment it took until it or anything later had come."""
        self.stalled = self._in_stall()
        self.spread_ms = self._spread()
        self.judge: _Playing | _Listening | None = None
        """What `choose` has worked out here, for the one listener it is asked for."""

    def repairs(self, *, fec_after_ms: float = 0.0, frames: NDArray[np.intp] | None = None) -> Repairs:
        """Return what each way of repair would have done here."""
        return Repairs(
            self.delays,
            ptime_ms=self.ptime_ms,
            rtt_ms=self.rtt_ms,
            ask_after_ms=self.ask_after_ms,
            fec_after_ms=fec_after_ms,
            frames=frames,
        )

    def _spread(self) -> float:
        """The delay that all but SPREAD_SHARE of what arrived keeps."""
        scattered = self.arrived if self.stalled is None else np.sort(self.delays[~(self.lost | self.stalled)])
        allowed = int(SPREAD_SHARE * len(self.delays))
        return float(scattered[-1 - allowed]) if allowed < len(scattered) else 0.0

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


@lru_cache(maxsize=4)
def _sent_ms(ptime_ms: float, frames: int) -> Delays:
    return np.asarray(np.arange(frames) * ptime_ms, np.float64)


def choose(situation: Situation, plans: Sequence[RepairPlan], listener: Listener) -> Choice:
    """Return the cheapest of `plans`, each with the delay at which it is cheapest."""
    judge = situation.judge
    if judge is None:
        judge = situation.judge = _Playing(situation) if listener is Listener.PLAYOUT else _Listening(situation)
    return min((judge.judge(plan) for plan in plans), key=lambda each: each.cost)


class _Playing:
    """Judges plans by the delay of every frame; only frames later than the floor can make a difference."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._floor_ms = self._floor()
        """No delay below this can be the cheapest."""
        self._stall_delay_ms = 0.0 if situation.stalled is None else self._stall_delay()
        frames = (situation.delays > min(self._floor_ms, situation.maximum_ms)).nonzero()[0]
        self._repairs = situation.repairs(frames=frames)
        self._lost = situation.lost[frames].nonzero()[0]
        self._weights = self._weigh(frames)
        """What leaving each frame unfilled costs, ms; then, for each that was lost, the share that can be bridged."""
        self._bridge_needs = self._repairs.copy_needs_ms(1)[self._lost]
        """The delay at which a lost frame is known for one in time to stretch what follows into it."""

    def _floor(self) -> float:
        arrived = self._situation.arrived
        if not len(arrived):
            return 0.0
        return float(arrived[int((1 - TAIL_SHARE) * (len(arrived) - 1))])

    def _weigh(self, frames: NDArray[np.intp]) -> Delays:
        situation, lost = self._situation, self._lost
        count = len(situation.delays)
        lost_pct = max(100 * situation.missing / count, 1.0)
        per_lost = max(MS_PER_LOST_PCT / lost_pct**LOSS_EXPONENT, MS_PER_CONCEALED_PCT)
        weights = np.full(len(frames), min(MS_PER_LATE_PCT, per_lost))
        if situation.stalled is not None:
            weights[situation.stalled[frames]] = 0.0
        weights[lost] = per_lost
        weights *= 100 / count
        share = min(BRIDGED_PART, BRIDGED_TIME * count / max(situation.missing, 1))
        bridged = weights[lost] * share
        weights[lost] -= bridged
        return np.concatenate((weights, bridged))

    def _stall_delay(self) -> float:
        """The delay at which stalls, stretched over, leave STALL_SHARE of the time unfilled."""
        silence = self._situation.silences[np.isfinite(self._situation.silences)]
        at = ((silence[1:] >= STALL_MS) & (silence[:-1] < STALL_MS)).nonzero()[0] + 1
        starts = silence[at]
        allowed_ms = STALL_SHARE * _frames_of(at, len(self._situation.delays)) * self._situation.ptime_ms
        low, high = 0.0, self._situation.maximum_ms
        while high - low > 1.0:
            middle = (low + high) / 2
            if float(np.maximum(starts - STALL_STRETCH * middle, 0).sum()) > allowed_ms:
                low = middle
            else:
                high = middle
        return high

    def judge(self, plan: RepairPlan) -> Choice:
        """Return the delay at which `plan` is cheapest, and what it costs then."""
        situation, floor, stall_delay, weights = self._situation, self._floor_ms, self._stall_delay_ms, self._weights
        need = self._repairs.needs_ms(plan)
        every = need
        if len(self._lost):
            every = np.concatenate((need, np.minimum(need[self._lost], self._bridge_needs)))
        tail = ((every > floor) & (every <= situation.maximum_ms)).nonzero()[0]
        order = tail[every[tail].argsort()]
        needs, gained = every[order], weights[order]
        beyond = float(weights[every > situation.maximum_ms].sum())
        delay = max(floor, stall_delay)
        cost = delay + beyond + float(gained.sum())
        if len(order):
            costs = np.maximum(needs + MARGIN_MS, stall_delay) + (cost - delay - gained.cumsum())
            best = int(costs.argmin())
            delay, cost = max(float(needs[best]) + MARGIN_MS, stall_delay), float(costs[best])
        count = len(situation.delays)
        return Choice(
            plan=plan,
            delay_ms=delay,
            spread_ms=situation.spread_ms,
            concealed_pct=100 * int(np.count_nonzero(need > delay)) / count,
            cost=cost + MS_PER_OVERHEAD_PCT * plan.overhead_pct(situation.missing / count),
        )


def _frames_of(stalls: NDArray[np.intp], count: int) -> float:
    """Return for how many of `count` frames the stalls that began at `stalls` speak: an interval each.

    What the time since the newest adds is unknown until it is longer than an interval: counted at once, it would make
    stalls look rarer and rarer until just before the next.
    """
    if not len(stalls):  # one that had begun before the first of the frames
        return float(count)
    first, last = float(stalls[0]), float(stalls[-1])
    gap = (last - first) / (len(stalls) - 1) if len(stalls) > 1 else first
    return len(stalls) * gap + max(count - last - gap, 0.0) + max(first - gap, 0.0)


HOLE_GRID_MS = (40.0, 70.0, 100.0, 130.0, 170.0, 220.0, 300.0)
LISTEN_MS_PER_CONCEALED_PCT = 80.0
"""A recogniser suffers more from a missing syllable than from a late word."""


class _Listening:
    """Judges plans by how long the stream in order waits at holes, for each deadline of the grid."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._repairs = situation.repairs(fec_after_ms=situation.ask_after_ms)
        allowed = sum(deadline <= situation.maximum_ms for deadline in HOLE_GRID_MS) + 1
        self._deadlines = np.array(HOLE_GRID_MS[:allowed])[:, None]

    def judge(self, plan: RepairPlan) -> Choice:
        """Return the deadline at which `plan` is cheapest, and what it costs then."""
        situation = self._situation
        need = self._repairs.needs_ms(plan)
        count = len(need)
        late = need[need > HOLE_GRID_MS[0]]
        late.sort()
        missing = len(late) - late.searchsorted(self._deadlines[:, 0], "right")
        used = len(missing) - np.count_nonzero(missing == 0) + 1
        missing = missing[:used]
        came = np.minimum(need, self._deadlines[:used])
        came += situation.sent
        in_order = np.maximum.accumulate(came, axis=1)
        in_order -= came
        waited = in_order.sum(axis=1)
        costs = (waited + LISTEN_MS_PER_CONCEALED_PCT * 100 * missing) / count
        best = int(costs.argmin())
        return Choice(
            plan=plan,
            delay_ms=HOLE_GRID_MS[best],
            spread_ms=situation.spread_ms,
            concealed_pct=100 * int(missing[best]) / count,
            cost=float(costs[best]) + MS_PER_OVERHEAD_PCT * plan.overhead_pct(situation.missing / count),
        )
