"""A forgetting histogram, as libwebrtc's histogram.cc: new values weigh more, and at the start all weigh alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class ForgettingHistogram:
    """Shares of values 0..buckets-1, each old share fading by `forget` a value."""

    __slots__ = ("_added", "_forget", "_start_weight", "shares")

    def __init__(self, *, buckets: int, forget: float, start_weight: float | None = None) -> None:
        """`start_weight` w makes the n-th value fade the others by min(forget, 1 - w / (n + 1)), as libwebrtc."""
        self._forget = forget
        self._start_weight = start_weight
        self._added = 0
        self.shares: NDArray[np.float64] = np.zeros(buckets)

    def add(self, value: int) -> None:
        """Count one value; beyond the last bucket counts as the last."""
        self._added += 1
        forget = self._forget
        if self._start_weight is not None:
            forget = max(0.0, min(forget, 1 - self._start_weight / (self._added + 1)))
        elif self._added == 1:
            forget = 0.0
        self.shares *= forget
        self.shares[min(max(value, 0), len(self.shares) - 1)] += 1 - forget

    def quantile(self, probability: float) -> int:
        """Return the smallest bucket up to which `probability` (0..1) of the shares lie; 0 while empty."""
        if not self._added:
            return 0
        reached = np.cumsum(self.shares) / self.shares.sum()
        return int(np.searchsorted(reached, probability - 1e-12))

    def reset(self) -> None:
        """Forget every value."""
        self._added = 0
        self.shares.fill(0)
