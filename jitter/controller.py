"""Decides what is buffered and what is repaired: one pure object, the same in replay and in a live call.

In come arrivals, round-trip times and what the far end reports; out comes a `Decision`. Spread of arrivals sizes the
buffer. RTT never does: it says which answers can still come, and so how far repair may raise the target.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from jitter.arrival import PacketArrivalHistory
from jitter.delay import (
    MAX_DELAY_MS,
    START_DELAY_MS,
    DelayManager,
    DelayPolicy,
    FixedPolicy,
    FormulaPolicy,
    PathView,
    QuantilePolicy,
)
from jitter.loss_level import LossLevel
from jitter.planner import MARGIN_MS, STALL_MS, Choice, Listener, Situation, choose
from jitter.repair import (
    ABLE,
    LOSS_FOR_MORE_COPIES,
    LOSS_FOR_ONE_COPY,
    NO_REPAIR,
    Abilities,
    Delays,
    RepairPlan,
    candidates,
)

DEFAULT_RTT_MS = 100.0
"""libwebrtc's, until one is measured."""
UPDATE_S = 0.5
LISTEN_UPDATE_S = 1.0
LISTEN_PACKETS = 768
"""A hole's deadline may follow more slowly, and on less evidence, than the delay of every sample."""
START_HOLE_DEADLINE_MS = 100.0
CHEAPER = 0.9
"""A plan in force is left only for one that costs less than this share of it: no flapping."""
DWELL_S = 2.0
LESS_AFTER_S = 8.0
"""How long a plan is kept that has become no better than one of fewer bits."""
HOLE_DEADLINE_KEPT_S = 10.0
CALM_MS = 8.0
CALM_HOLE_DEADLINE_MS = 40.0
SEARCH_S = 5.0
LISTEN_SEARCH_S = 15.0
"""How often every plan is judged; at once when loss leaves the class that the plan in force is for."""
STALL_MARGIN_MS = 5.0
ALARM_ODDS = 5
"""On a path that has stalled, a packet may be taken for the beginning of a stall so many times as often as one began: a
false alarm repeats what is left of one packet, a true one missed conceals three times as much."""
RARE_LOSS = 0.002
"""Below this share, a packet that fails to come in time speaks of a stall and not of loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the receiver does now, and what it wants of the sender."""

    target_delay_ms: float
    """Playout: delay against the fastest packet."""
    hole_deadline_ms: float
    """Listen: how long past its earliest moment a missing packet is waited for."""
    spread_ms: float
    """How late packets are without anything being wrong."""
    stall_after_ms: float
    """When the next packet is later than jitter and usual losses explain: the network stands still."""
    ask_after_ms: float
    """When to ask for a missing packet, ms past its earliest moment."""
    rtt_ms: float
    plan: RepairPlan
    reason: str
    fastest_rtt_ms: float = DEFAULT_RTT_MS
    """No answer to a request can come sooner."""


def parse_policy(name: str) -> DelayPolicy | None:
    """Return the policy called `name` (fixed:MS, quantile, formula), None for auto; raises ValueError for another."""
    if name == "auto":
        return None
    if name == "quantile":
        return QuantilePolicy()
    if name == "formula":
        return FormulaPolicy()
    kind, _, value = name.partition(":")
    if kind != "fixed":
        raise ValueError(f"no policy {name!r}: auto, quantile, formula or fixed:MS")
    try:
        delay_ms = float(value)
    except ValueError:
        delay_ms = -1.0
    if not 0 <= delay_ms <= MAX_DELAY_MS:
        raise ValueError(f"policy {name!r}: MS is a number from 0 to {MAX_DELAY_MS:g}")
    return FixedPolicy(delay_ms)


class Controller:
    """Target, hole deadline and repair of one direction of one call, as the receiver of it sees them."""

    def __init__(
        self,
        *,
        listener: Listener = Listener.PLAYOUT,
        policy: str = "auto",
        plan: RepairPlan | None = None,
        ptime_ms: float = 20.0,
        abilities: Abilities = ABLE,
    ) -> None:
        """Hold to `plan`, or with None choose among what the far end has the `abilities` for."""
        self.history = PacketArrivalHistory()
        self._listener = listener
        self._policy = parse_policy(policy)
        self._fixed_plan = plan
        self._abilities = abilities
        self._search_at = 0.0
        self._plans: tuple[RepairPlan, ...] = ()
        self._ptime_ms = ptime_ms
        path = PathView(jitter_ms=0.0, rtt_ms=None)
        start_ms = self._policy.target_ms(path) if isinstance(self._policy, FixedPolicy) else START_DELAY_MS
        self._manager = DelayManager(start_ms=start_ms)
        self._rtt_ms: float | None = None
        self._fastest_rtt_ms = DEFAULT_RTT_MS
        self.next_update = 0.0
        """When `update` has something to do, seconds."""
        self._plan_since = 0.0
        self._stalled_since = self._stalled_until = 0.0
        self._deadlines: deque[tuple[float, float]] = deque()
        self._loss = LossLevel()
        self._sent = self._lost = self._counted = 0
        self.decision = Decision(
            target_delay_ms=start_ms,
            hole_deadline_ms=START_HOLE_DEADLINE_MS,
            spread_ms=START_DELAY_MS,
            stall_after_ms=START_DELAY_MS,
            ask_after_ms=0.0,
            rtt_ms=DEFAULT_RTT_MS,
            plan=plan or RepairPlan(fec=abilities.fec),
            reason="start",
        )
        """What holds now; replaced, never changed."""

    @property
    def loss_share(self) -> float:
        """Level of packets that did not come by themselves, 0..1."""
        return self._loss.share

    def handle_round_trip(self, *, rtt_ms: float, now: float, fastest_ms: float | None = None) -> None:
        """Learn the RTT of the media path, as the control channel's echoes or RTCP give it (use p90 where known)."""
        self._rtt_ms = rtt_ms
        self._fastest_rtt_ms = rtt_ms if fastest_ms is None else fastest_ms
        changed = abs(rtt_ms - self.decision.rtt_ms) > 0.2 * self.decision.rtt_ms
        self.decision = replace(self.decision, rtt_ms=rtt_ms, fastest_rtt_ms=min(rtt_ms, self._fastest_rtt_ms))
        if changed:
            self._deadlines.clear()  # they were for another round trip
            self.next_update = min(self.next_update, now)

    def allow_copies(self, offsets: Iterable[int]) -> None:
        """Learn at which offsets the far end can send copies when asked to; none where nobody can be asked."""
        allowed = frozenset(offsets)
        if allowed != self._abilities.red_offsets:
            self._abilities = replace(self._abilities, red_offsets=allowed)

    def handle_packet_duration(self, ptime_ms: float) -> None:
        """Learn the media time of one packet."""
        self._ptime_ms = ptime_ms

    def handle_arrival(self, sequence: int, timestamp: int, arrival: float) -> None:
        """Learn of one first transmission, unwrapped counters, seconds."""
        excess = self.history.add(sequence, timestamp, arrival)
        if arrival < self._stalled_until and arrival >= self._stalled_since:
            excess = self.history.excuse(sequence, at_most_ms=self.decision.spread_ms)
        if self._policy is not None:
            self._policy.handle_arrival(excess, reordered=sequence < self.history.highest, now=arrival)

    def handle_stall(self, *, since: float, until: float) -> None:
        """Note that packets stamped from `since` to `until` (seconds) waited for this host, not in the network.

        They count as no later than packets are without anything being wrong, and nothing rises meanwhile.
        """
        if since > self._stalled_until:
            self._stalled_since = since
        self._stalled_until = max(self._stalled_until, until)
        self._manager.freeze(until=until)

    def update(self, *, now: float) -> Decision:
        """Return the decision that holds at `now`; made anew twice a second."""
        if now < self.next_update:
            return self.decision
        self.next_update = now + (UPDATE_S if self._listener is Listener.PLAYOUT else LISTEN_UPDATE_S)
        delays = self._settled()
        if not len(delays):
            return self.decision
        self._count_losses(delays, now)
        rtt_ms = DEFAULT_RTT_MS if self._rtt_ms is None else self._rtt_ms
        if self._policy is None and self._is_calm(delays):
            return self._stay_calm(delays, rtt_ms, now)
        situation = Situation(
            delays if self._listener is Listener.PLAYOUT else delays[-LISTEN_PACKETS:],
            ptime_ms=self._ptime_ms,
            rtt_ms=rtt_ms,
            maximum_ms=min(MAX_DELAY_MS, self._manager.maximum_ms),
        )
        choice = self._choose(situation, now)
        wish = choice.delay_ms
        if self._policy is not None:
            wish = self._policy.target_ms(PathView(jitter_ms=self.history.jitter_ms, rtt_ms=self._rtt_ms))
        self.decision = Decision(
            target_delay_ms=self._manager.update(wish, now=now),
            hole_deadline_ms=self._held_deadline_ms(wish, now),
            spread_ms=choice.spread_ms,
            stall_after_ms=self._stall_after_ms(situation, choice.spread_ms),
            ask_after_ms=situation.ask_after_ms,
            rtt_ms=rtt_ms,
            fastest_rtt_ms=min(rtt_ms, self._fastest_rtt_ms),
            plan=choice.plan,
            reason=f"loss {100 * self._loss.share:.1f} %, {choice.plan} needs {choice.delay_ms:.0f} ms",
        )
        return self.decision

    def _stall_after_ms(self, situation: Situation, spread_ms: float) -> float:
        """How late a packet is before it speaks of a stall: less where there have been stalls."""
        if self._loss.share >= RARE_LOSS:
            return spread_ms + 3 * self._ptime_ms
        if situation.stalled is None:
            return spread_ms + STALL_MARGIN_MS
        silent = situation.silences >= STALL_MS
        stalls = np.count_nonzero(silent[1:] > silent[:-1])
        allowed = min(int(np.count_nonzero(silent) + ALARM_ODDS * stalls), len(situation.arrived) - 1)
        return min(spread_ms, float(situation.arrived[-1 - allowed]))

    def _held_deadline_ms(self, wish_ms: float, now: float) -> float:
        """Rise at once, fall to the most that was wished for in HOLE_DEADLINE_KEPT_S: wishes vary by chance."""
        if self._listener is not Listener.LISTEN:
            return START_HOLE_DEADLINE_MS
        wishes = self._deadlines
        while wishes and wishes[0][0] < now - HOLE_DEADLINE_KEPT_S:
            wishes.popleft()
        while wishes and wishes[-1][1] <= wish_ms:
            wishes.pop()
        wishes.append((now, wish_ms))
        return wishes[0][1]

    def _is_calm(self, delays: Delays) -> bool:
        """Whether nothing was lost or late enough to weigh anything up."""
        return self.decision.plan == NO_REPAIR and float(delays.max()) < CALM_MS

    def _stay_calm(self, delays: Delays, rtt_ms: float, now: float) -> Decision:
        worst_ms = float(delays.max())
        self.decision = Decision(
            target_delay_ms=self._manager.update(worst_ms + MARGIN_MS, now=now),
            hole_deadline_ms=CALM_HOLE_DEADLINE_MS,
            spread_ms=worst_ms,
            stall_after_ms=worst_ms + STALL_MARGIN_MS,
            ask_after_ms=worst_ms,
            rtt_ms=rtt_ms,
            fastest_rtt_ms=min(rtt_ms, self._fastest_rtt_ms),
            plan=NO_REPAIR,
            reason="calm",
        )
        return self.decision

    def _count_losses(self, delays: Delays, now: float) -> None:
        """Count what has settled since the last time into the level of loss that is acted on."""
        upto = self.history.packets_sent - self._unsettled()
        fresh = min(upto - self._counted, len(delays))
        if fresh > 0:
            self._counted = upto
            self._sent += fresh
            self._lost += int(np.count_nonzero(delays[-fresh:] == np.inf))
            self._loss.handle_totals(sent=self._sent, lost=self._lost, now=now)

    def _unsettled(self) -> int:
        """How many of the newest packets may only seem lost."""
        return int(self.decision.target_delay_ms / self._ptime_ms) + 2

    def _settled(self) -> Delays:
        """Delays without the newest packets, which may only seem lost."""
        delays = self.history.delays_ms()
        unsettled = self._unsettled()
        return delays[:-unsettled] if len(delays) > unsettled else delays[:0]

    def _choose(self, situation: Situation, now: float) -> Choice:
        """Judge the plan in force, and every SEARCH_S or when it no longer serves, all the others."""
        if self._fixed_plan is not None:
            return choose(situation, (self._fixed_plan,), self._listener)
        held = self.decision.plan
        current = choose(situation, (held,), self._listener)
        heavy = len(held.red_offsets) > 1 or self._loss.sustained(now=now) >= LOSS_FOR_MORE_COPIES
        share = self._loss.share if heavy else min(self._loss.share, LOSS_FOR_ONE_COPY)
        plans = candidates(share, held, abilities=self._abilities)
        if now < self._search_at and plans == self._plans:
            return current
        self._search_at = now + (SEARCH_S if self._listener is Listener.PLAYOUT else LISTEN_SEARCH_S)
        self._plans = plans
        best = choose(situation, plans, self._listener)
        if best.plan == held:
            return current
        share = situation.missing / len(situation.delays)
        bits, held_bits = best.plan.overhead_pct(share), held.overhead_pct(share)
        since_s = now - self._plan_since
        saving = bits < held_bits and since_s >= LESS_AFTER_S
        better = best.cost < CHEAPER * current.cost and (bits > held_bits or since_s >= DWELL_S)
        if held in plans and not saving and not better:
            return current
        self._plan_since = now
        return best

    def bound(self, *, minimum_ms: float | None = None, maximum_ms: float | None = None) -> None:
        """Keep the target within bounds given from outside (JS jitterBufferTarget's meaning)."""
        if minimum_ms is not None:
            self._manager.minimum_ms = minimum_ms
        if maximum_ms is not None:
            self._manager.maximum_ms = maximum_ms

    def with_reason(self, reason: str) -> Decision:
        """Return the decision in force, explained differently; for logs."""
        return replace(self.decision, reason=reason)
