"""aiortc's own jitter buffer on a trace: what it throws away and how long it holds the rest."""

from __future__ import annotations

from collections.abc import Sequence

from aiortc.jitterbuffer import JitterBuffer
from aiortc.rtp import RtpPacket

from jitter.simulation import TracePacket

PTIME_TICKS = 960


def replay_aiortc(packets: Sequence[TracePacket]) -> dict[str, float]:
    """Run a trace through aiortc's buffer as its receiver does; concealed_pct counts the frames that never came out."""
    buffer = JitterBuffer(capacity=16, prefetch=4)
    arrivals = sorted((p.arrival_ms, index) for index, p in enumerate(packets) if p.arrival_ms is not None)
    by_timestamp: dict[int, float] = {}
    delays = []
    last = 0
    for arrival_ms, index in arrivals:
        packet = RtpPacket(payload_type=111, sequence_number=index & 0xFFFF, timestamp=index * PTIME_TICKS & 0xFFFFFFFF)
        packet._data = b"\0"  # type: ignore[attr-defined]
        by_timestamp[packet.timestamp] = arrival_ms
        _, frame = buffer.add(packet)
        if frame is not None:
            delays.append(arrival_ms - by_timestamp[frame.timestamp])
            last = index
    # what is still held when the trace ends is neither played nor thrown away
    played, held = len(delays), max(0, round(delays[-1] / packets[0].ptime_ms)) if delays else 0
    sent = max(1, min(last + 1, len(packets)) - held)
    arrived = sum(packet.arrival_ms is not None for packet in packets[:sent])
    return {
        "mean_delay_ms": sum(delays) / max(played, 1),
        "p95_delay_ms": sorted(delays)[int(0.95 * (played - 1))] if played else 0.0,
        "concealed_pct": 100 * max(0, sent - played) / sent,
        "overhead_pct": 0.0,
        "unused_pct": 100 * max(0, arrived - played) / max(arrived, 1),
    }
