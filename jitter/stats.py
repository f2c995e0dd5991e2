"""Counters of a reader under the names of W3C's webrtc-stats (RTCInboundRtpStreamStats), in Python's spelling."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True, kw_only=True)
class ReaderStats:
    """Running totals; samples are at the decoder's rate, delays in seconds summed over samples."""

    packets_received: int = 0
    packets_discarded: int = 0
    """Received and never played: late, duplicate, invalid or out of range."""
    packets_late: int = 0
    packets_duplicated: int = 0
    total_samples_received: int = 0
    """Everything put out, from packets or not."""
    concealed_samples: int = 0
    """Put out from no packet, copy, FEC or retransmission; includes silent_concealed_samples."""
    silent_concealed_samples: int = 0
    """Concealment past the point where it has faded to silence."""
    concealment_events: int = 0
    inserted_samples_for_deceleration: int = 0
    removed_samples_for_acceleration: int = 0
    jitter_buffer_delay: float = 0.0
    """Seconds from arrival to output, summed over emitted samples."""
    jitter_buffer_target_delay: float = 0.0
    jitter_buffer_emitted_count: int = 0
    fec_packets_received: int = 0
    """Frames played from in-band FEC."""
    red_packets_recovered: int = 0
    """Frames played from a redundant block (RFC 2198)."""
    retransmitted_packets_received: int = 0
    """Frames played from a packet that was asked for again."""
    comfort_noise_samples: int = 0
    """Put out where the sender sent nothing on purpose (DTX)."""
    restarts: int = 0
    """New sources and jumps followed."""

    def as_w3c(self) -> dict[str, Any]:
        """Return the counters keyed by W3C's camelCase names."""
        return {_camel(name): value for name, value in asdict(self).items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
