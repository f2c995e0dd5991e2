"""Decides what is buffered and what is repaired: one pure object, the same in replay and in a live call.

In come arrivals, round-trip times and what the far end reports; out comes a `Decision`. Spread of arrivals sizes the
buffer. RTT never does: it says which answers can still come, and so how far repair may raise the target.
"""

from __future__ import annotations

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
from jitter.planner import Choice, Listener, Situation, choose
from jitter.repair import ABLE, NO_REPAIR, Abilities, RepairPlan, candidates

DEFAULT_RTT_MS = 100.0
"""libwebrtc's, until one is measured."""
UPDATE_S = 0.5
LOSS_PACKETS = 512
"""10 s at 20 ms: repair is off again within 15 s of a clean network."""
SURE_PACKETS = 64
"""Fewer than this say nothing about a share."""
START_HOLE_DEADLINE_MS = 100.0
CHEAPER = 0.9
"""A plan in force is left only for one that costs less than this share of it: no flapping."""
DWELL_S = 2.0
SEARCH_S = 2.0
STALL_MARGIN_MS = 5.0
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
    return FixedPolicy(float(value))


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
        self._ptime_ms = ptime_ms
        self._manager = DelayManager()
        self._rtt_ms: float | None = None
        self._fastest_rtt_ms = DEFAULT_RTT_MS
        self._next_update = 0.0
        self._plan_since = 0.0
        self._loss_share = 0.0
        self.decision = Decision(
            target_delay_ms=START_DELAY_MS,
            hole_deadline_ms=START_HOLE_DEADLINE_MS,
            spread_ms=START_DELAY_MS,
            stall_after_ms=START_DELAY_MS,
            ask_after_ms=0.0,
            rtt_ms=DEFAULT_RTT_MS,
            plan=plan or NO_REPAIR,
            reason="start",
        )
        """What holds now; replaced, never changed."""

    @property
    def loss_share(self) -> float:
        """Share of the last LOSS_PACKETS packets that did not come by themselves, 0..1."""
        return self._loss_share

    def handle_round_trip(self, *, rtt_ms: float, now: float, fastest_ms: float | None = None) -> None:
        """Learn the RTT of the media path, as the control channel's echoes or RTCP give it (use p90 where known)."""
        self._rtt_ms = rtt_ms
        self._fastest_rtt_ms = rtt_ms if fastest_ms is None else fastest_ms
        if abs(rtt_ms - self.decision.rtt_ms) > 0.2 * self.decision.rtt_ms:
            self._next_update = min(self._next_update, now)

    def handle_packet_duration(self, ptime_ms: float) -> None:
        """Learn the media time of one packet."""
        self._ptime_ms = ptime_ms

    def handle_arrival(self, sequence: int, timestamp: int, arrival: float) -> None:
        """Learn of one first transmission, unwrapped counters, seconds."""
        excess = self.history.add(sequence, timestamp, arrival)
        if self._policy is not None:
            self._policy.handle_arrival(excess, reordered=sequence < self.history.highest, now=arrival)

    def handle_stall(self, *, until: float) -> None:
        """Note that this host, not the network, held packets up until `until` (seconds): nothing rises meanwhile."""
        self._manager.freeze(until=until)

    def update(self, *, now: float) -> Decision:
        """Return the decision that holds at `now`; made anew twice a second."""
        if now < self._next_update:
            return self.decision
        self._next_update = now + UPDATE_S
        delays = self._settled()
        if not len(delays):
            return self.decision
        recent = delays[-LOSS_PACKETS:]
        lost = int(np.count_nonzero(np.isinf(recent)))
        self._loss_share = lost / max(len(recent), SURE_PACKETS)
        rtt_ms = DEFAULT_RTT_MS if self._rtt_ms is None else self._rtt_ms
        situation = Situation(
            delays,
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
            hole_deadline_ms=wish if self._listener is Listener.LISTEN else START_HOLE_DEADLINE_MS,
            spread_ms=choice.spread_ms,
            stall_after_ms=choice.spread_ms + (STALL_MARGIN_MS if self._loss_share < RARE_LOSS else 3 * self._ptime_ms),
            ask_after_ms=situation.ask_after_ms,
            rtt_ms=rtt_ms,
            fastest_rtt_ms=min(rtt_ms, self._fastest_rtt_ms),
            plan=choice.plan,
            reason=f"loss {100 * self._loss_share:.1f} %, {choice.plan} needs {choice.delay_ms:.0f} ms",
        )
        return self.decision

    def _settled(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Delays without the newest packets, which may only seem lost."""
        delays = self.history.delays_ms()
        unsettled = int(self.decision.target_delay_ms / self._ptime_ms) + 2
        return delays[:-unsettled] if len(delays) > unsettled else delays[:0]

    def _choose(self, situation: Situation, now: float) -> Choice:
        """Judge the plan in force, and every SEARCH_S or when it no longer serves, all the others."""
        if self._fixed_plan is not None:
            return choose(situation, (self._fixed_plan,), self._listener)
        held = self.decision.plan
        current = choose(situation, (held,), self._listener)
        plans = candidates(self._loss_share, held, abilities=self._abilities)
        if now < self._search_at and held in plans:
            return current
        self._search_at = now + SEARCH_S
        best = choose(situation, plans, self._listener)
        if best.plan == held:
            return current
        if held in plans and (now - self._plan_since < DWELL_S or best.cost > CHEAPER * current.cost):
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
