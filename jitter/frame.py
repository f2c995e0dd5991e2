"""What a reader puts out."""

from __future__ import annotations

import enum
from typing import NamedTuple

from jitter.decoder import Samples


class FrameKind(enum.Enum):
    """Where the samples of a frame come from."""

    DECODED = "decoded"
    """From the packet itself."""
    FEC = "fec"
    """From the copy inside the next packet (Opus LBRR)."""
    RED = "red"
    """From a redundant block of a later packet (RFC 2198)."""
    RETRANSMITTED = "retransmitted"
    """From a packet that was asked for again."""
    CONCEALED = "concealed"
    """From nothing: the decoder's guess, or silence where the guess has faded."""
    COMFORT_NOISE = "comfort_noise"
    """The sender sent nothing on purpose (DTX)."""


DECODED, CONCEALED = FrameKind.DECODED, FrameKind.CONCEALED
"""The members met for every frame: looking one up in its class costs more than comparing it."""


class AudioFrame(NamedTuple):
    """A run of output samples with one origin; a tuple because a hundred a second are made for every call."""

    samples: Samples
    """int16 (n,) at the decoder's rate."""
    position_samples: int
    """Samples put out before this frame, concealed ones included."""
    kind: FrameKind
    arrival: float | None
    """When the packet it comes from arrived, seconds; None where no packet is behind it."""
