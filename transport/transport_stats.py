"""Counters of one call's media, as a snapshot."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportStats:
    """Both directions of the audio; times in seconds are of `loop.time()`."""

    rtt_ms: float | None = None
    """Round trip by RTCP, or by ICE's checks until RTCP has one."""
    ice_rtt_ms: float | None = None
    """Round trip of the last ICE check on the chosen path."""
    packets_received: int = 0
    packets_lost: int = 0
    """Expected and not received, as our receiver reports say."""
    packets_malformed: int = 0
    """Dropped because they could not be parsed."""
    datagrams_dropped: int = 0
    """Dropped because the loop stood still for many seconds."""
    concealed_pct: float = 0.0
    """Output samples made up from nothing, in percent of all."""
    jitter_ms: float = 0.0
    """Interarrival jitter (RFC 3550)."""
    first_packet_at: float | None = None
    last_packet_at: float | None = None
    packets_sent: int = 0
    missed_slots: int = 0
    """20 ms slots of ours skipped because the loop was late."""
    remote_loss_pct: float = 0.0
    """Loss of what we send, in the peer's last report."""
    remote_packets_lost: int = 0
    remote_jitter_ms: float = 0.0
