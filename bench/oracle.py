"""The best single deadline of a trace for a given late loss (Moon, Kurose and Towsley 1998): a reference, not a bound.

With one deadline for the whole trace their search over talkspurts comes down to a quantile of the relative delays. A
buffer that stretches, or fills late packets from FEC, can do better.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitter.simulation import TracePacket


def best_fixed_delay_ms(packets: Sequence[TracePacket], *, late_pct: float) -> float:
    """Return the mean delay, ms, of the smallest deadline that leaves `late_pct` % of what arrived too late."""
    transit = np.array([p.arrival_ms - p.sent_ms for p in packets if p.arrival_ms is not None])
    excess = np.sort(transit - transit.min())
    in_time = min(len(excess), max(1, int(np.ceil(len(excess) * (1 - late_pct / 100)))))
    deadline = excess[in_time - 1]
    return float(deadline - excess[:in_time].mean())
