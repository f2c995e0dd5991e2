"""A record of what a reader did and why, for plots and measurements; costs nothing when there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jitter.frame import FrameKind


class Played(NamedTuple):
    """A run of media put out."""

    timestamp: int
    """Unwrapped RTP time of its first sample."""
    duration: int
    """Ticks of media."""
    arrival: float
    output: float
    """When its first sample leaves, seconds."""
    kind: FrameKind


class Decided(NamedTuple):
    """One operation, with the state it was decided from."""

    now: float
    operation: str
    target_ms: float
    delay_ms: float


@dataclass(slots=True)
class Trace:
    """Everything in order of time."""

    played: list[Played]
    decided: list[Decided]

    @classmethod
    def empty(cls) -> Trace:
        """Return a trace to be filled."""
        return cls([], [])
