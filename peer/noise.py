"""Less noise for speech recognition, from callers whose side removes none: WebRTC's suppressor, as browsers have it.

By itself it acts in a hum alone, the one kind of noise whose removal is worth it (decision 0901), and only for the
recogniser. The voice detectors hear the caller as he is: Silero was trained in noise, and whatever is taken from it
moves the ends of voices. The suppressor gives its sound 96 samples late; it is written to where it belongs, so both
stand on the same sample positions.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from pywebrtc_audio import NoiseSuppressor

from peer.audio_history import AudioHistory
from peer.engines.base import LISTEN_RATE_HZ, Samples

DELAY_SAMPLES: Final = 96
"""What the suppressor's overlapping windows hold back; a test measures it."""
_BLOCK_SAMPLES: Final = 160
_LEVEL: Final = 1
"""12 dB. More takes from the voice too."""
_LOUD_DB: Final = -48.0
_HYSTERESIS_DB: Final = 3.0
_STEADY_DB: Final = 2.5
"""The level of a fan or a hum, which can be removed, varies by 0.5; that of five people talking by 3.4 and more."""
_HUM_COLOUR: Final = 0.1
"""Mean squared step from sample to sample over mean square: a fan's is 0.02, pink noise's 0.5, white noise's 2."""
_SILENT_DB: Final = 4.0
"""A frame no louder than the room's mean level by more than this tells of the room's colour."""
_COLOUR_WEIGHT: Final = 0.05


class NoiseReducer:
    """Cleans what a call's history keeps of each frame; `automatic`: only while the room has a loud and steady hum."""

    def __init__(self, *, automatic: bool) -> None:
        self._automatic: Final = automatic
        self._suppressor: Final[Any] = NoiseSuppressor(LISTEN_RATE_HZ, 1, _LEVEL)
        self._rest: Samples = np.zeros(0, np.int16)
        self._active = not automatic
        self._colour = 2.0

    @property
    def active(self) -> bool:
        """Whether the recogniser hears cleaned sound now."""
        return self._active

    def handle_frame(
        self, samples: Samples, *, position_samples: int, history: AudioHistory, floor_db: float, spread_db: float
    ) -> None:
        """Take a frame (16 kHz, any length) that `history` has just got, and clean it there.

        `floor_db` and `spread_db` are mean and deviation of the room's level, dBFS. The suppressor always listens, so
        that it knows the room when it is wanted.
        """
        joined = np.concatenate([self._rest, samples])
        count = len(joined) // _BLOCK_SAMPLES * _BLOCK_SAMPLES
        start = position_samples - len(self._rest) - DELAY_SAMPLES
        self._rest = joined[count:]
        if self._automatic:
            limit_db = _LOUD_DB - (_HYSTERESIS_DB if self._active else 0.0)
            loud = floor_db > limit_db
            if loud:
                self._look_at_colour(samples, floor_db)
            self._active = loud and spread_db < _STEADY_DB and self._colour < _HUM_COLOUR
        if count:
            cleaned = self._suppressor.process(joined[:count])
            if self._active:
                history.overwrite(cleaned, position_samples=start)

    def _look_at_colour(self, samples: Samples, floor_db: float) -> None:
        sound = samples.astype(np.float32)
        power = float(np.dot(sound, sound))
        if power <= 0 or 10 * math.log10(power / len(sound) / 32768**2) > floor_db + _SILENT_DB:
            return
        steps = np.diff(sound)
        self._colour += _COLOUR_WEIGHT * (float(np.dot(steps, steps)) / power - self._colour)
