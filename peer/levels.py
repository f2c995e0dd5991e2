"""Loudness of 10 ms slots and the noise floor under them: where exactly a voice ends, and how loud silence is."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import numpy as np

from peer.engines.base import Samples

SLOT_SAMPLES: Final = 160
"""10 ms at 16 kHz."""
SILENCE_DB: Final = -90.0
"""Digital silence; levels are clipped here, so that zeros do not drag the floor to minus infinity."""
_FULL_SCALE_POWER: Final = 32768.0**2


class LevelMeter:
    """RMS level in dBFS of each 10 ms slot, for the last `slots` of them; fed any lengths, no allocation per call."""

    def __init__(self, *, slots: int = 128) -> None:
        self._levels: Final[deque[float]] = deque(maxlen=slots)
        self._scratch: Final = np.zeros(SLOT_SAMPLES, np.float32)
        self._filled = 0
        self._end = 0

    @property
    def end_samples(self) -> int:
        """Position after the last whole slot."""
        return self._end

    def feed(self, samples: Samples) -> int:
        """Take `samples` (int16) and return how many slots they completed."""
        done, at = 0, 0
        while at < len(samples):
            count = min(SLOT_SAMPLES - self._filled, len(samples) - at)
            self._scratch[self._filled : self._filled + count] = samples[at : at + count]
            self._filled += count
            at += count
            if self._filled == SLOT_SAMPLES:
                power = float(np.dot(self._scratch, self._scratch)) / (SLOT_SAMPLES * _FULL_SCALE_POWER)
                self._levels.append(max(SILENCE_DB, 10 * math.log10(power)) if power > 0 else SILENCE_DB)
                self._filled = 0
                self._end += SLOT_SAMPLES
                done += 1
        return done

    def last(self, count: int) -> list[float]:
        """Return the levels of the last `count` slots, oldest first; fewer at the beginning."""
        size = len(self._levels)
        return [self._levels[index] for index in range(max(0, size - count), size)]

    def last_above(self, threshold_db: float, *, not_before: int, not_after: int) -> int | None:
        """Return the end position of the last slot louder than `threshold_db` that ends within the given positions."""
        position = self._end
        for level in reversed(self._levels):
            if position < not_before:
                return None
            if level > threshold_db and position <= not_after:
                return position
            position -= SLOT_SAMPLES
        return None


class QuietGain:
    """Lifts quiet microphones for detectors that were trained on loud ones: up to 30 dB, never into clipping.

    Only what the room's stillness allows is lifted: the floor itself stays under -62 dBFS, so that noise never becomes
    loud, and the loudest slot of the last while under -20 dBFS.
    """

    _MOST_DB: Final = 30.0
    _FLOOR_DB: Final = -62.0
    _LOUDEST_DB: Final = -20.0
    _FORGET_DB: Final = 0.02
    """The loudest slot is forgotten by so much a slot, 2 dB a second."""

    def __init__(self) -> None:
        self._loudest_db = SILENCE_DB

    def handle_level(self, level_db: float) -> None:
        """Take the level of the next slot of 10 ms."""
        self._loudest_db = max(level_db, self._loudest_db - self._FORGET_DB)

    def lift(self, samples: Samples, *, floor_db: float) -> Samples:
        """Return `samples` (int16) lifted, or as they are where next to nothing is to be done."""
        gain_db = min(self._MOST_DB, self._FLOOR_DB - floor_db, self._LOUDEST_DB - self._loudest_db)
        if gain_db < 3.0:
            return samples
        lifted = samples * np.float32(10 ** (gain_db / 20))
        return np.asarray(np.clip(lifted, -32768, 32767), np.int16)


class NoiseFloor:
    """Level of silence: threshold = mean + alpha * sigma of its last slots, at least `margin_db` above the mean."""

    def __init__(
        self, *, slots: int = 200, alpha: float = 2.5, margin_db: float = 4.0, start_db: float = -65.0
    ) -> None:
        self._levels: Final[deque[float]] = deque(maxlen=slots)
        self._alpha: Final = alpha
        self._margin_db: Final = margin_db
        self._start_db: Final = start_db
        self._sum = 0.0
        self._sum_of_squares = 0.0

    @property
    def mean_db(self) -> float:
        """Mean level of silence in dBFS; a quiet room's until silence was heard."""
        return self._sum / len(self._levels) if self._levels else self._start_db

    @property
    def sigma_db(self) -> float:
        """Standard deviation of the level of silence in dB; 0 until silence was heard."""
        count = len(self._levels)
        return math.sqrt(max(0.0, self._sum_of_squares / count - self.mean_db**2)) if count else 0.0

    @property
    def threshold_db(self) -> float:
        """Level in dBFS above which a slot is more than silence."""
        count = len(self._levels)
        if count == 0:
            return self._start_db + self._margin_db
        variance = max(0.0, self._sum_of_squares / count - self.mean_db**2)
        threshold = self.mean_db + max(self._margin_db, self._alpha * math.sqrt(variance))
        # A room that has just become louder is two rooms in one average; nothing of it was above its loudest slot.
        return min(threshold, max(self._levels) + self._margin_db / 2)

    def add(self, level_db: float) -> None:
        """Count one slot of silence."""
        if len(self._levels) == self._levels.maxlen:
            oldest = self._levels[0]
            self._sum -= oldest
            self._sum_of_squares -= oldest * oldest
        self._levels.append(level_db)
        self._sum += level_db
        self._sum_of_squares += level_db * level_db
