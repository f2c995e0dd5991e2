"""Voice that no turn holds, and that may yet turn out to be the beginning of one. Pure.

A lone word over the reply sounds like a listening sound, and a recogniser may make nothing of it; when more follows
within a breath, it was the first word of that, and the turn that opens then begins with it.
"""

from __future__ import annotations

from typing import Final

from peer.engines.base import LISTEN_RATE_HZ

_BREATH_SAMPLES: Final = int(1.5 * LISTEN_RATE_HZ)
"""What begins within so long of what was left out goes on with it: slow speakers pause for a second between words."""
_LONGEST_SAMPLES: Final = 6 * LISTEN_RATE_HZ
"""A room full of noises, each within a breath of the last, is handed on no further back than this."""


class UnclaimedVoice:
    """The last stretch of voice that was taken for nothing, by sample positions of the call's audio at 16 kHz."""

    __slots__ = ("_start", "_stop")

    def __init__(self) -> None:
        self._start = self._stop = -2 * _BREATH_SAMPLES

    def keep(self, start_samples: int, stop_samples: int) -> None:
        """Note that the voice of [start, stop) belongs to no turn; it joins what it follows within a breath."""
        self._start, self._stop = self._beginning(start_samples), stop_samples

    def claim(self, start_samples: int) -> int:
        """Return where a turn begins whose voice begins at `start_samples`: there, or with what that goes on from."""
        start = self._beginning(start_samples)
        self._start = self._stop = -2 * _BREATH_SAMPLES
        return start

    def _beginning(self, start_samples: int) -> int:
        if start_samples - self._stop > _BREATH_SAMPLES:
            return start_samples
        return min(start_samples, max(self._start, start_samples - _LONGEST_SAMPLES))
