"""The last minute of what the caller sent, by sample position: a turn is a span of it."""

from __future__ import annotations

from typing import Final

import numpy as np

from peer.engines.base import LISTEN_RATE_HZ, Samples


class AudioHistory:
    """A ring of int16 samples at 16 kHz, addressed by running sample position; the oldest are forgotten."""

    __slots__ = ("_capacity_samples", "_end_samples", "_ring")

    def __init__(self, *, capacity_s: float = 60.0) -> None:
        self._capacity_samples: Final = round(capacity_s * LISTEN_RATE_HZ)
        self._ring = np.zeros(self._capacity_samples, np.int16)
        self._end_samples = 0

    @property
    def end_samples(self) -> int:
        """Position behind the newest sample."""
        return self._end_samples

    def append(self, samples: Samples, *, position_samples: int) -> None:
        """Keep `samples`, whose first stands at `position_samples`; a gap before them becomes silence."""
        gap = position_samples - self._end_samples
        if gap > 0:
            self._write(np.zeros(min(gap, self._capacity_samples), np.int16), position_samples)
        self._write(samples[-self._capacity_samples :], max(position_samples, self._end_samples) + len(samples))

    def overwrite(self, samples: Samples, *, position_samples: int) -> None:
        """Put `samples` in the place of those that stand from `position_samples` on, as far as they are still there."""
        oldest = max(0, self._end_samples - self._capacity_samples)
        skip = max(0, oldest - position_samples)
        kept = samples[skip : max(skip, self._end_samples - position_samples)]
        first = position_samples + skip
        self._ring[np.arange(first, first + len(kept)) % self._capacity_samples] = kept

    def span(self, start_samples: int, end_samples: int) -> Samples:
        """Return a copy of [start, end), without what is already forgotten or has not come yet."""
        start = max(start_samples, self._end_samples - self._capacity_samples, 0)
        end = min(end_samples, self._end_samples)
        if end <= start:
            return np.zeros(0, np.int16)
        return self._ring[np.arange(start, end) % self._capacity_samples]

    def _write(self, samples: Samples, end_samples: int) -> None:
        start = (end_samples - len(samples)) % self._capacity_samples
        until_wrap = min(len(samples), self._capacity_samples - start)
        self._ring[start : start + until_wrap] = samples[:until_wrap]
        self._ring[: len(samples) - until_wrap] = samples[until_wrap:]
        self._end_samples = end_samples
