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
REQUEST_ROLLS = (131, 541)


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
        requests = self.nack * loss_share * (payload_bytes + RETRANSMISSION_BYTES + REQUEST_BYTES)
        return FEC_OVERHEAD_PCT * self.fec + 100 * (copies + requests) / payload_bytes

    def __str__(self) -> str:
        parts = ["fec"] * self.fec + [f"red{self.red_offsets}"] * bool(self.red_offsets) + ["nack"] * self.nack
        return "+".join(parts) or "none"


NO_REPAIR = RepairPlan()


def needs_ms(delays: Delays, plan: RepairPlan, *, ptime_ms: float, rtt_ms: float, ask_after_ms: float) -> Delays:
    """Return the delay each frame needs under `plan`, ms, as `delays`; infinite where nothing would have helped."""
    need = delays.copy()
    count = len(delays)
    if plan.fec and count > 1:
        carried = (np.arange(1, count) * 0.6180339887498949) % 1.0 < FEC_SHARE
        _improve(need[:-1], np.where(carried, delays[1:] + ptime_ms, np.inf))
    for offset in plan.red_offsets:
        if offset < count:
            _improve(need[:-offset], delays[offset:] + offset * ptime_ms)
    if plan.nack:
        lost = np.flatnonzero(np.isinf(delays))
        if len(lost):
            need[lost] = np.minimum(need[lost], _answers(delays, lost, rtt_ms=rtt_ms, ask_after_ms=ask_after_ms))
    return need


def _improve(need: Delays, other: Delays) -> None:
    np.minimum(need, other, out=need)


def _answers(delays: Delays, lost: NDArray[np.intp], *, rtt_ms: float, ask_after_ms: float) -> Delays:
    count = len(delays)
    best = np.full(len(lost), np.inf)
    asked = ask_after_ms
    for answer, request in zip(ANSWER_ROLLS, REQUEST_ROLLS, strict=True):
        reached = np.isfinite(delays[(lost + request) % count])
        _improve(best, np.where(reached, asked + rtt_ms + delays[(lost + answer) % count], np.inf))
        asked += repeat_after_ms(rtt_ms)
    return best


def repeat_after_ms(rtt_ms: float) -> float:
    """Return how long to wait for an answer before asking again (between Pion's 1.0 and libwebrtc's 1.5 RTT)."""
    return max(20.0, 1.25 * rtt_ms)


def ask_after_ms(delays: Delays) -> float:
    """Return the delay past which a missing packet is more likely lost than late, ms."""
    arrived = delays[np.isfinite(delays)]
    lost = len(delays) - len(arrived)
    if not len(arrived):
        return 0.0
    if lost >= len(arrived):
        return float(np.median(arrived))
    return float(np.partition(arrived, len(arrived) - 1 - lost)[len(arrived) - 1 - lost])


SINGLE_COPY = ((1,), (2,), (3,), (4,), (5,))
MORE_COPIES = (*SINGLE_COPY, (1, 2), (1, 3), (2, 4), (1, 4), (1, 2, 3), (1, 2, 4), (1, 3, 5), (2, 3, 5))
LOSS_FOR_NACK = 0.0005
LOSS_FOR_ONE_COPY = 0.03
LOSS_FOR_MORE_COPIES = 0.10
"""A copy doubles the rate: below these shares of loss, 4 % for FEC and a few requests do nearly as well."""


def candidates(loss_share: float, *, nack: bool = True) -> tuple[RepairPlan, ...]:
    """Return the plans whose bits are in proportion to `loss_share` (0..1), cheapest first."""
    fec = RepairPlan(fec=True)
    if loss_share < LOSS_FOR_NACK:
        return (NO_REPAIR, fec)
    if loss_share < LOSS_FOR_ONE_COPY:
        plans = (NO_REPAIR, fec, RepairPlan(nack=True), RepairPlan(fec=True, nack=True))
        return plans if nack else plans[:2]
    sets = SINGLE_COPY if loss_share < LOSS_FOR_MORE_COPIES else MORE_COPIES
    red = tuple(RepairPlan(red_offsets=offsets) for offsets in sets)
    with_nack = tuple(RepairPlan(red_offsets=offsets, nack=True) for offsets in sets if len(offsets) < 3)
    return red + with_nack if nack else red
