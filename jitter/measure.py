"""The figures of one replay, under the names of the replay command's JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitter.frame import FrameKind
from jitter.simulation import TICKS_PER_MS, Simulation, TracePacket
from jitter.stats import ReaderStats
from jitter.trace import Trace

REPAIRED = {FrameKind.FEC, FrameKind.RED, FrameKind.RETRANSMITTED}


def measure(
    packets: Sequence[TracePacket],
    simulation: Simulation,
    trace: Trace,
    stats: ReaderStats,
    *,
    timestamps: Sequence[int],
    longest_gap_ms: float,
) -> dict[str, float]:
    """Return the figures; shares in %, times in ms, rounded to 3 digits."""
    by_timestamp = {timestamp: index for index, timestamp in enumerate(timestamps)}
    starts = np.asarray(timestamps)
    total = len(packets)
    came = {index for index, packet in enumerate(packets) if packet.arrival_ms is not None}
    arrived = len(came)
    fastest = min(p.arrival_ms - p.sent_ms for p in packets if p.arrival_ms is not None)
    used: set[int] = set()
    repaired: set[int] = set()
    count = len(trace.played)
    delays, behind, weights = np.zeros(count), np.zeros(count), np.zeros(count)
    for row, played in enumerate(trace.played):
        index = by_timestamp.get(played.timestamp)
        if index is None:
            index = int(np.searchsorted(starts, played.timestamp, "right")) - 1
        (repaired if played.kind in REPAIRED else used).add(index)
        skipped_ms = (played.timestamp - timestamps[index]) / TICKS_PER_MS
        delays[row] = (played.output - played.arrival) * 1000
        behind[row] = played.output * 1000 - packets[index].sent_ms - skipped_ms - fastest
        weights[row] = played.duration
    output = max(stats.total_samples_received, 1)
    figures = {
        "packets": total,
        "lost_pct": 100 * (total - arrived) / total,
        "late_pct": 100 * stats.packets_late / total,
        "repaired_pct": 100 * len(repaired - used) / total,
        "concealed_pct": 100 * stats.concealed_samples / output,
        "mean_delay_ms": 1000 * stats.jitter_buffer_delay / max(stats.jitter_buffer_emitted_count, 1),
        "mean_behind_ms": float(np.average(behind, weights=weights)) if count else 0.0,
        "p95_delay_ms": _weighted_quantile(delays, weights, 0.95) if count else 0.0,
        "accelerated_pct": 100 * stats.removed_samples_for_acceleration / output,
        "expanded_pct": 100 * stats.inserted_samples_for_deceleration / output,
        "longest_gap_ms": longest_gap_ms,
        "overhead_pct": simulation.overhead_pct(),
        "unused_pct": 100 * len(came - used) / max(arrived, 1),
    }
    return {name: round(value, 3) for name, value in figures.items()}


def _weighted_quantile(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    weights: np.ndarray[tuple[int], np.dtype[np.float64]],
    probability: float,
) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, probability * reached[-1])])
