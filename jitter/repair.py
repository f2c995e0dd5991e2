"""What each way of repair would have done for the packets of the last half minute, and which one is worth its bits.

Every packet gets a *need*: the smallest playout delay (ms, against the fastest packet) at which its frame would have
been there, from itself, from in-band FEC, from a redundant copy, or from an answer to a request. How long to wait, and
what to pay for, are then quantiles of needs. The evidence is the path's own: bursts and spikes need no model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Delays = NDArray[np.float64]
"""Relative delays in sending order, ms, shape (packets,); infinite where nothing came."""

FEC_SHARE = 0.77
"""Share of frames that Opus gives an LBRR copy at 32 kb/s with expected loss set."""
FEC_OVERHEAD_PCT = 4.0
RED_BLOCK_BYTES = 5
"""Header of a block and its share of the packet's own RED header."""
REQUEST_BYTES = 30
RETRANSMISSION_BYTES = 12
PAYLOAD_BYTES = 60
"""A 20 ms frame at 24 kb/s: what overheads are relative to."""
ANSWER_ROLLS = (389, 769)
"""Whose delay stands in for that of a first and a second answer: far enough to be independent, and repeatable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """What the sender is to do, and the receiver to ask, against loss."""

    fec: bool = False
    red_offsets: tuple[int, ...] = ()
    """How many packets later each copy travels."""
    nack: bool = False

    def overhead_pct(self, loss_share: float, *, payload_bytes: int = PAYLOAD_BYTES) -> float:
        """Return the expected extra bits in % of the payload at `loss_share` (0..1)."""
        copies = len(self.red_offsets) * (payload_bytes + RED_BLOCK_BYTES)
        asked = loss_share * (1 - FEC_SHARE * (1 - loss_share) * self.fec)
        requests = self.nack * asked * (payload_bytes + RETRANSMISSION_BYTES + REQUEST_BYTES)
        return FEC_OVERHEAD_PCT * self.fec + 100 * (copies + requests) / payload_bytes

    def __str__(self) -> str:
        parts = ["fec"] * self.fec + [f"red{self.red_offsets}"] * bool(self.red_offsets) + ["nack"] * self.nack
        return "+".join(parts) or "none"


NO_REPAIR = RepairPlan()


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What the far end can do at all."""

    fec: bool = True
    red: bool = True
    nack: bool = True

    def allow(self, plan: RepairPlan) -> bool:
        """Return whether every part of `plan` can be had."""
        return plan.fec <= self.fec and bool(plan.red_offsets) <= self.red and plan.nack <= self.nack


ABLE = Abilities()


def needs_ms(
    delays: Delays,
    plan: RepairPlan,
    *,
    ptime_ms: float,
    rtt_ms: float,
    ask_after_ms: float,
    fec_after_ms: float = 0.0,
) -> Delays:
    """Return the delay each frame needs under `plan`, ms, as `delays`; infinite where nothing would have helped.

    `fec_after_ms` is how long the reader holds out for the packet itself before it takes FEC.
    """
    need = delays.copy()
    count = len(delays)
    if plan.fec and count > 1:
        carried = (np.arange(1, count) * 0.6180339887498949) % 1.0 < FEC_SHARE
        _improve(need[:-1], np.where(carried, np.maximum(delays[1:] + ptime_ms, fec_after_ms), np.inf))
    for offset in plan.red_offsets:
        if offset < count:
            _improve(need[:-offset], delays[offset:] + offset * ptime_ms)
    if plan.nack:
        lost = np.flatnonzero(np.isinf(delays))
        if len(lost):
            need[lost] = np.minimum(
                need[lost], _answers(delays, lost, ptime_ms=ptime_ms, rtt_ms=rtt_ms, ask_after_ms=ask_after_ms)
            )
    return need


def _improve(need: Delays, other: Delays) -> None:
    np.minimum(need, other, out=need)


def _answers(delays: Delays, lost: NDArray[np.intp], *, ptime_ms: float, rtt_ms: float, ask_after_ms: float) -> Delays:
    """When answers would have come; a request shares the fate of the media of its moment: bursts hit both ways."""
    count = len(delays)
    best = np.full(len(lost), np.inf)
    asked = ask_after_ms
    for roll in ANSWER_ROLLS:
        meets = np.minimum(lost + round((asked + rtt_ms / 2) / ptime_ms), count - 1)
        reached = np.isfinite(delays[meets])
        _improve(best, np.where(reached, asked + rtt_ms + delays[(lost + roll) % count], np.inf))
        asked += repeat_after_ms(rtt_ms)
    return best


def repeat_after_ms(rtt_ms: float) -> float:
    """Return how long to wait for an answer before asking again (between Pion's 1.0 and libwebrtc's 1.5 RTT)."""
    return max(20.0, 1.25 * rtt_ms)


def ask_after_ms(arrived: Delays, lost: int) -> float:
    """Return the delay past which a missing packet is more likely lost than late, ms; `arrived`: delays of those."""
    if not len(arrived):
        return 0.0
    at = max(len(arrived) - 1 - lost, len(arrived) // 2)
    return max(0.0, float(np.partition(arrived, at)[at]))


SINGLE_COPY = ((1,), (2,), (3,), (4,), (5,), (6,))
MORE_COPIES = (
    (1, 2),
    (1, 3),
    (2, 3),
    (2, 4),
    (3, 5),
    (1, 2, 3),
    (1, 3, 4),
    (2, 3, 4),
    (2, 3, 5),
    (2, 4, 5),
    (2, 4, 6),
    (3, 5, 6),
)
LOSS_FOR_NACK = 0.0005
LOSS_FOR_ONE_COPY = 0.025
LOSS_FOR_MORE_COPIES = 0.12
LEAVE_SHARE = 0.6
"""A copy doubles the rate: below these shares of loss, 4 % for FEC and a few requests do nearly as well.
A level entered is left at LEAVE_SHARE of what it took to enter it."""


def candidates(loss_share: float, held: RepairPlan, *, abilities: Abilities = ABLE) -> tuple[RepairPlan, ...]:
    """Return the plans whose bits are in proportion to `loss_share` (0..1), cheapest first; `held` may stay a while."""
    copies = len(held.red_offsets)
    plans = _proportionate(loss_share, copies)
    return tuple(plan for plan in plans if abilities.allow(plan)) or (NO_REPAIR,)


def _proportionate(loss_share: float, copies_held: int) -> tuple[RepairPlan, ...]:
    one_copy = LOSS_FOR_ONE_COPY * (LEAVE_SHARE if copies_held else 1.0)
    more_copies = LOSS_FOR_MORE_COPIES * (LEAVE_SHARE if copies_held > 1 else 1.0)
    fec = RepairPlan(fec=True)
    if loss_share < LOSS_FOR_NACK:
        return (NO_REPAIR, fec)
    nack = RepairPlan(nack=True)
    both = RepairPlan(fec=True, nack=True)
    if loss_share < one_copy:
        return (NO_REPAIR, fec, nack, both)
    sets = SINGLE_COPY if loss_share < more_copies else MORE_COPIES
    return (*_with_copies(sets), fec, both, nack, NO_REPAIR)


def _with_copies(sets: tuple[tuple[int, ...], ...]) -> list[RepairPlan]:
    """FEC stands for a copy at offset 1; with three copies there is neither budget nor need for requests."""
    plans = []
    for offsets in sets:
        plan = RepairPlan(fec=offsets[0] > 1, red_offsets=offsets)
        plans.append(plan)
        if len(offsets) < 3:
            plans.append(RepairPlan(fec=plan.fec, red_offsets=offsets, nack=True))
    return plans
