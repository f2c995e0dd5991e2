"""Sounds made for tests: no recording is needed to check a codec or a transport."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def speech_like(seconds: float, sample_rate_hz: int = 48_000, *, seed: int = 1) -> NDArray[np.int16]:
    """A voice that says nothing: a gliding pitch with formants, in syllables, with pauses; peak about 12 000."""
    rng = np.random.default_rng(seed)
    n = round(seconds * sample_rate_hz)
    t = np.arange(n) / sample_rate_hz
    knots = np.arange(0, seconds + 0.5, 0.25)
    glide = np.interp(t, knots, rng.uniform(95, 190, len(knots) + 1)[: len(knots)])
    phase = 2 * np.pi * np.cumsum(glide) / sample_rate_hz
    formants = [(550.0, 120.0, 1.0), (1500.0, 200.0, 0.5), (2500.0, 300.0, 0.25)]
    voice = np.zeros(n)
    for k in range(1, 30):
        frequency = k * glide
        gain = sum(level / (1 + ((frequency - centre) / width) ** 2) for centre, width, level in formants)
        voice += gain * np.sin(k * phase)
    voice += 0.02 * rng.standard_normal(n)
    syllables = np.clip(1.3 * np.sin(2 * np.pi * 2.2 * t) ** 2 - 0.1, 0, 1)
    pauses = (t % 2.0) < 1.6
    voice *= syllables * pauses
    return np.asarray(voice / np.abs(voice).max() * 12_000, dtype=np.int16)


def tone(seconds: float, frequency_hz: float, sample_rate_hz: int = 48_000, *, peak: int = 8000) -> NDArray[np.int16]:
    """A sine."""
    t = np.arange(round(seconds * sample_rate_hz)) / sample_rate_hz
    return np.asarray(peak * np.sin(2 * np.pi * frequency_hz * t), dtype=np.int16)


def rms(samples: NDArray[np.int16]) -> float:
    """Root mean square in int16 units."""
    return float(np.sqrt(np.mean(np.square(samples.astype(np.float64))))) if len(samples) else 0.0
