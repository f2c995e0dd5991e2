"""Comfort noise as loud as the room, and the judgement whether anyone is speaking."""

from __future__ import annotations

import numpy as np

from jitter.decoder import Samples

RISE = 1.02
"""How fast the floor forgets, per packet: 3 dB in 0.7 s of uninterrupted speech, which the next pause takes back."""
PASSIVE_OVER_FLOOR = 4.0
"""Power against the floor below which a frame holds no speech (6 dB)."""
SILENT_POWER = 16.0 * 16.0
"""About -66 dB of full scale: silence on any line."""
LOWEST_FLOOR = 16.0
"""Digital silence is no measure of a room."""
NOISE_SECONDS = 1


class ComfortNoise:
    """Follows the quietest sound of the stream."""

    def __init__(self, sample_rate_hz: int) -> None:
        noise = np.random.default_rng(0).standard_normal(sample_rate_hz * NOISE_SECONDS)
        smooth = np.convolve(noise, np.full(4, 0.5), "same")
        self._noise = smooth.astype(np.float32)
        self._at = 0
        self._floor = 1e9
        self.is_passive = False
        """Whether the sound learnt last is at the floor."""

    def learn(self, samples: Samples) -> None:
        """Take in one frame of decoded sound."""
        values = samples.astype(np.float32)
        power = float(values.dot(values)) / (len(samples) or 1)
        self._floor = max(min(self._floor * RISE, power), LOWEST_FLOOR)
        self.is_passive = power < max(SILENT_POWER, PASSIVE_OVER_FLOOR * self._floor)

    def make(self, samples: int) -> Samples:
        """Return `samples` samples of noise at the floor, int16."""
        if self._at + samples > len(self._noise):
            self._at = 0
        level = float(np.sqrt(min(self._floor, SILENT_POWER)))
        piece = self._noise[self._at : self._at + samples] * level
        self._at += samples
        return piece.astype(np.int16)
