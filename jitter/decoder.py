"""What the buffer needs of a codec."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]
"""Mono PCM, shape (samples,)."""


class AudioDecoder(Protocol):
    """One stream's decoder; calls come in the order of the media, and no call raises on bad payload."""

    @property
    def sample_rate_hz(self) -> int:
        """Rate of everything it returns."""
        ...

    def decode(self, payload: bytes) -> Samples:
        """Return the packet's samples, int16 (n,), n as `duration_samples` says; empty if it cannot be decoded."""
        ...

    def conceal(self, samples: int) -> Samples:
        """Return `samples` samples of concealment, int16 (samples,), that follow what was decoded last."""
        ...

    def recover_fec(self, next_payload: bytes, samples: int) -> Samples:
        """Return the `samples` samples just before `next_payload` from the copy inside it, int16 (samples,)."""
        ...

    def has_fec(self, payload: bytes) -> bool:
        """Say whether `payload` carries a copy of the frame before it (Opus LBRR)."""
        ...

    def duration_samples(self, payload: bytes) -> int:
        """Return the samples `payload` decodes to at `sample_rate_hz`; 0 if it is malformed."""
        ...

    def reset(self) -> None:
        """Forget all state, as at the start of a new source."""
        ...
