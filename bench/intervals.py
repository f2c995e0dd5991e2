"""Medians and quantiles with 95 % intervals, by order statistics: no assumption on how the values are spread."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` (0..1) of `values` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def quantile_interval(values: Sequence[float], share: float) -> tuple[float, float]:
    """Return the 95 % interval of a quantile (binomial, normal approximation of the ranks)."""
    ordered = sorted(values)
    count = len(ordered)
    spread = 1.96 * math.sqrt(count * share * (1 - share))
    low = max(0, math.floor(count * share - spread) - 1)
    high = min(count - 1, math.ceil(count * share + spread))
    return ordered[low], ordered[high]


def share_interval(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share in percent (Wilson's score interval)."""
    if not count:
        return 0.0, 100.0
    z = 1.96
    share = hits / count
    middle = share + z * z / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return round(100 * max(0.0, middle - spread) / scale, 1), round(100 * (middle + spread) / scale, 1)
