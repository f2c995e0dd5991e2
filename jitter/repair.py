"""What each way of repair would have done for the packets of the last half minute, and which one is worth its bits.

Every packet gets a *need*: the smallest playout delay (ms, against the fastest packet) at which its frame would have
been there, from itself, from in-band FEC, from a redundant copy, or from an answer to a request. How long to wait, and
what to pay for, are then quantiles of needs. The evidence is the path's own: bursts and spikes need no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

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
MOST_OFFSET = 9
_NOTHING: Delays = np.full(MOST_OFFSET, np.inf)
"""What comes after the newest packet."""


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
    red_offsets: frozenset[int] = frozenset(range(1, 10))
    """At which offsets it can send copies; a browser only at 1."""
    nack: bool = True

    def allow(self, plan: RepairPlan) -> bool:
        """Return whether every part of `plan` can be had."""
        return plan.fec <= self.fec and self.red_offsets.issuperset(plan.red_offsets) and plan.nack <= self.nack


ABLE = Abilities()


def needs_ms(delays: Delays, plan: RepairPlan, *, ptime_ms: float, rtt_ms: float, ask_after_ms: float) -> Delays:
    """Return the delay each frame needs under `plan`, ms, as `delays`; infinite where nothing would have helped."""
    return Repairs(delays, ptime_ms=ptime_ms, rtt_ms=rtt_ms, ask_after_ms=ask_after_ms).needs_ms(plan)


class Repairs:
    """What each way of repair would have done for the same packets; each way is worked out once, for all plans."""

    __slots__ = (
        "_answers",
        "_ask_after_ms",
        "_copies",
        "_delays",
        "_fec",
        "_fec_after_ms",
        "_frames",
        "_own",
        "_padded",
        "_ptime_ms",
        "_rtt_ms",
    )

    def __init__(
        self,
        delays: Delays,
        *,
        ptime_ms: float,
        rtt_ms: float,
        ask_after_ms: float,
        fec_after_ms: float = 0.0,
        frames: NDArray[np.intp] | None = None,
    ) -> None:
        """Work on all frames or only on `frames`, in ascending order.

        `fec_after_ms` is how long the reader holds out for the packet itself before it takes FEC.
        """
        self._delays = delays
        self._frames = frames
        self._own = delays if frames is None else delays[frames]
        self._ptime_ms = ptime_ms
        self._rtt_ms = rtt_ms
        self._ask_after_ms = ask_after_ms
        self._fec_after_ms = fec_after_ms
        self._padded = np.concatenate((delays, _NOTHING))
        self._copies: dict[int, Delays] = {}
        self._fec: Delays | None = None
        self._answers: Delays | None = None

    def needs_ms(self, plan: RepairPlan) -> Delays:
        """Return the delay each frame needs under `plan`, ms, infinite where nothing helps; not to be changed."""
        need = self._own
        if plan.fec:
            need = np.minimum(need, self._from_fec())
        for offset in plan.red_offsets:
            need = np.minimum(need, self.copy_needs_ms(offset))
        if plan.nack:
            need = np.minimum(need, self._from_answers())
        return need

    def copy_needs_ms(self, offset: int) -> Delays:
        """Return the delay each frame needs if all there is is a copy `offset` packets later, ms."""
        found = self._copies.get(offset)
        if found is None:
            if self._frames is None:
                later = self._padded[offset : offset + len(self._delays)]
            else:
                later = self._padded[self._frames + offset]
            found = self._copies[offset] = later + offset * self._ptime_ms
        return found

    def _from_fec(self) -> Delays:
        if self._fec is None:
            following = self.copy_needs_ms(1)
            if self._fec_after_ms > 0:
                following = np.maximum(following, self._fec_after_ms)
            count = len(self._delays)
            left_out = _left_out(1 << count.bit_length())
            self._fec = following + left_out[slice(count) if self._frames is None else self._frames]
        return self._fec

    def _from_answers(self) -> Delays:
        if self._answers is None:
            self._answers = np.full(len(self._own), np.inf)
            missing = np.flatnonzero(self._own == np.inf)
            if len(missing):
                lost = missing if self._frames is None else self._frames[missing]
                self._answers[missing] = self._answer_lost(lost)
        return self._answers

    def _answer_lost(self, lost: NDArray[np.intp]) -> Delays:
        """When answers would have come; a request shares the fate of the media of its moment: bursts hit both ways."""
        delays = self._delays
        count = len(delays)
        best = np.full(len(lost), np.inf)
        asked = self._ask_after_ms
        for roll in ANSWER_ROLLS:
            meets = np.minimum(lost + round((asked + self._rtt_ms / 2) / self._ptime_ms), count - 1)
            came = delays[(lost + roll) % count]
            came[delays[meets] == np.inf] = np.inf
            np.minimum(best, asked + self._rtt_ms + came, out=best)
            asked += repeat_after_ms(self._rtt_ms)
        return best


@lru_cache(maxsize=4)
def _left_out(frames: int) -> Delays:
    """Infinite for the frames that FEC carries no copy of, spread evenly by the golden ratio; else 0."""
    return np.where((np.arange(1, frames + 1) * 0.6180339887498949) % 1.0 < FEC_SHARE, 0.0, np.inf)


def repeat_after_ms(rtt_ms: float) -> float:
    """Return how long to wait for an answer before asking again (between Pion's 1.0 and libwebrtc's 1.5 RTT)."""
    return max(20.0, 1.25 * rtt_ms)


def ask_after_ms(arrived: Delays, lost: int) -> float:
    """Return the delay past which a missing packet is more likely lost than late; `arrived`: delays, ascending, ms."""
    if not len(arrived):
        return 0.0
    at = max(len(arrived) - 1 - lost, len(arrived) // 2)
    return max(0.0, float(arrived[at]))


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
    if loss_share < LOSS_FOR_NACK:
        level = 0
    elif loss_share < LOSS_FOR_ONE_COPY * (LEAVE_SHARE if copies else 1.0):
        level = 1
    else:
        level = 2 if loss_share < LOSS_FOR_MORE_COPIES * (LEAVE_SHARE if copies > 1 else 1.0) else 3
    return _allowed(level, abilities)


@lru_cache(maxsize=32)
def _allowed(level: int, abilities: Abilities) -> tuple[RepairPlan, ...]:
    """Return the plans of a level of loss that the far end has the abilities for."""
    fec, nack, both = RepairPlan(fec=True), RepairPlan(nack=True), RepairPlan(fec=True, nack=True)
    plans: tuple[RepairPlan, ...]
    if level < 2:
        plans = (NO_REPAIR, fec) if level == 0 else (NO_REPAIR, fec, nack, both)
    else:
        can_more = level == 3 and any(map(abilities.red_offsets.issuperset, MORE_COPIES))
        plans = (*_with_copies(MORE_COPIES if can_more else SINGLE_COPY), fec, both, nack, NO_REPAIR)
    return tuple(plan for plan in plans if abilities.allow(plan)) or (NO_REPAIR,)


def _with_copies(sets: tuple[tuple[int, ...], ...]) -> list[RepairPlan]:
    """FEC stands for a copy at offset 1; with three copies there is neither budget nor need for requests."""
    plans = []
    for offsets in sets:
        plan = RepairPlan(fec=offsets[0] > 1, red_offsets=offsets)
        plans.append(plan)
        if len(offsets) < 3:
            plans.append(RepairPlan(fec=plan.fec, red_offsets=offsets, nack=True))
    return plans
