"""What to put out next: a pure function of the buffer's state, as libwebrtc's decision_logic.cc.

The playout point is the media time at which the sound already prepared ends. Its *delay* is how far the present is
behind the earliest moment at which that media could have been here; holding this at the target is all the function
does, by whole pitch periods while there is sound, and for nothing where a hole has to be filled anyway. Departing from
libwebrtc, the delay is read off the clock and not off the filtered length of the buffer, so that jitter does not enter
it; and a stall is met by stretching what is held from the moment it is noticed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from jitter.stretch import CORRELATION, FAST_CORRELATION


class Operation(enum.Enum):
    """libwebrtc's operations; RECOVER is its insertion of FEC into the packet buffer."""

    NORMAL = "normal"
    RECOVER = "recover"
    MERGE = "merge"
    ACCELERATE = "accelerate"
    FAST_ACCELERATE = "fast_accelerate"
    PREEMPTIVE_EXPAND = "preemptive_expand"
    EXPAND = "expand"
    COMFORT_NOISE = "comfort_noise"


ABOVE_MS = 1.0
BELOW_MS = 4.0
"""How far the delay may leave the target and the output frame above it: sound held too long is paid for all the time,
too short only when packets are late."""
FAST_MS = 40.0
"""Above target by this much, any likeness of two periods will do (libwebrtc: four times its upper limit)."""
BRIDGE_MS = 7.5
"""A usual pitch period; a hole is left this much to the sound behind it, which then is stretched."""
MS_PER_PERIOD = 20.0
MOST_PERIODS = 3
"""One period before a hole and one behind it for each frame that is missing; more would be heard as a tone."""
STALL_MS = 100.0
"""How far a stall may be stretched over; what comes after it has to be hurried up again."""
STRETCH_EVERY_MS = 50.0
"""One stretch in five 10 ms frames, as libwebrtc."""


@dataclass(slots=True, kw_only=True)
class BufferStatus:
    """What a decision is made from."""

    delay_ms: float = 0.0
    """Of the playout point, now."""
    target_ms: float = 0.0
    frame_ms: float = 10.0
    """Length of one output frame: the grain of the delay."""
    next_held: bool = False
    """The media at the playout point is here, itself or as a copy."""
    fec_held: bool = False
    """The packet after the hole carries the hole's last frame."""
    hole_ms: float | None = None
    """From the playout point to the earliest media held; None where nothing is held."""
    frame_held_ms: float = 20.0
    """Media time of the earliest packet held."""
    in_pause: bool = False
    """What is missing was never sent (DTX)."""
    filled_ms: float = 0.0
    """Put out since the last media, by concealment or noise."""
    bridged_ms: float = 0.0
    """Of the hole, what stretching the sound before it has filled."""
    hole_follows_ms: float = 0.0
    """Length of a hole behind the packet at the playout point that only concealment could fill."""
    next_missing: bool = False
    """The media at the playout point was sent, is not here, and something behind it is."""
    may_bridge: bool = False
    """There is some budget left for stretching into holes."""
    stalled: bool = False
    """The next packet to be sent is later than jitter explains."""
    since_stretch_ms: float = 1e9
    """Media time since the last stretch."""


def decide(status: BufferStatus) -> Operation:
    """Return the operation that fills the next output frame."""
    if status.next_held:
        return Operation.MERGE if status.filled_ms > 0 else _with_sound(status)
    hole_ms = status.hole_ms
    if hole_ms is None:
        return Operation.COMFORT_NOISE if status.in_pause else Operation.EXPAND
    left_ms = hole_ms - status.bridged_ms - bridge_ahead_ms(status)
    due = status.filled_ms >= left_ms or status.delay_ms - hole_ms >= status.target_ms
    if status.in_pause:
        due = status.filled_ms >= hole_ms or status.delay_ms - hole_ms >= status.target_ms
        return Operation.MERGE if due else Operation.COMFORT_NOISE
    if status.fec_held and status.filled_ms < left_ms and hole_ms <= status.filled_ms + status.frame_held_ms:
        return Operation.RECOVER
    return Operation.MERGE if due and status.filled_ms + status.bridged_ms > 0 else Operation.EXPAND


def bridge_ahead_ms(status: BufferStatus) -> float:
    """Return how much of a hole is left to the stretching of what follows it, ms."""
    if not status.may_bridge or not status.next_missing or status.hole_ms is None:
        return 0.0
    return BRIDGE_MS * min(MOST_PERIODS, int(status.hole_ms / MS_PER_PERIOD))


def _with_sound(status: BufferStatus) -> Operation:
    above = status.delay_ms - status.target_ms
    if status.stalled and above < status.frame_ms + STALL_MS:
        return Operation.PREEMPTIVE_EXPAND
    if status.hole_follows_ms and status.may_bridge and above < status.frame_ms + ABOVE_MS:
        return Operation.PREEMPTIVE_EXPAND
    if above >= status.frame_ms + FAST_MS:
        return Operation.FAST_ACCELERATE
    if status.since_stretch_ms >= STRETCH_EVERY_MS:
        if above >= status.frame_ms + ABOVE_MS:
            return Operation.ACCELERATE
        if above < -BELOW_MS:
            return Operation.PREEMPTIVE_EXPAND
    return Operation.NORMAL


def likeness_asked(status: BufferStatus) -> float:
    """Return the correlation to ask of two periods to cut or repeat one: less, the further the delay is off."""
    off_ms = abs(status.delay_ms - status.target_ms)
    return CORRELATION - (CORRELATION - FAST_CORRELATION) * min(1.0, off_ms / FAST_MS)
