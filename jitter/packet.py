"""RTP packets as the buffer sees them, and the unwrapping of their counters."""

from __future__ import annotations

import enum
from dataclasses import dataclass

RTP_CLOCK_HZ = 48_000
"""RTP clock of Opus, whatever the audio's own rate (RFC 7587 §4.1)."""

SEQUENCE_BITS = 16
TIMESTAMP_BITS = 32


@dataclass(frozen=True, slots=True)
class RtpPacket:
    """One received RTP packet: counters as on the wire, and when it arrived."""

    sequence_number: int
    """0..65535."""
    timestamp: int
    """0..2**32-1, in ticks of the RTP clock."""
    payload_type: int
    ssrc: int
    payload: bytes
    arrival: float
    """Seconds on the caller's monotonic clock."""


class InsertResult(enum.Enum):
    """What became of a packet handed to a reader; none of these is an error of the caller."""

    INSERTED = "inserted"
    DUPLICATE = "duplicate"
    """The same media is already held or was already played from a copy."""
    LATE = "late"
    """Its place in the output has been filled without it."""
    INVALID = "invalid"
    """Not decodable: an empty or malformed payload, or media outside 2.5 to 120 ms."""
    OUT_OF_RANGE = "out_of_range"
    """Far from the stream; a second one in sequence makes the reader follow it (RFC 3550 A.1)."""
    RESTARTED = "restarted"
    """Taken as the first packet of a new source (SSRC change or a jump); what was held before comes out first."""


INSERTED, LATE, RESTARTED = InsertResult.INSERTED, InsertResult.LATE, InsertResult.RESTARTED
"""The members met for every packet: looking one up in its class costs more than comparing it."""


def sequence_newer(a: int, b: int) -> bool:
    """Return whether 16-bit sequence number `a` is later than `b`; half the circle counts as later (RFC 1982)."""
    return a != b and (a - b) & 0xFFFF < 0x8000


class Unwrapper:
    """Extends a counter of `bits` bits to an ever-growing integer by the shortest step from the last value."""

    __slots__ = ("_half", "_last", "_mask")

    def __init__(self, bits: int) -> None:
        self._mask = (1 << bits) - 1
        self._half = 1 << (bits - 1)
        self._last: int | None = None

    def unwrap(self, value: int) -> int:
        """Return `value` unwrapped, and measure the next one from it; the first value stands for itself."""
        self._last = self.peek(value)
        return self._last

    def peek(self, value: int) -> int:
        """Return what `unwrap` would, leaving the state as it is."""
        last = self._last
        if last is None:
            return value
        step = (value - last) & self._mask
        return last + (step - self._mask - 1 if step >= self._half else step)

    def follow(self, unwrapped: int) -> None:
        """Measure the next value from `unwrapped`, which `peek` returned."""
        self._last = unwrapped

    def reset(self) -> None:
        """Forget the last value."""
        self._last = None
