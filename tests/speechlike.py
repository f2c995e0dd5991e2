"""Sound that detectors take for a voice, made from nothing: for tests that must not need a recording."""

from __future__ import annotations

import numpy as np

from peer.engines.base import LISTEN_RATE_HZ, Samples

_FORMANTS_HZ = ((730, 1090, 2440), (270, 2290, 3010), (570, 840, 2410), (440, 1020, 2240), (530, 1840, 2480))


def make_voice(seconds: float, *, peak_db: float = -10.0, seed: int = 1) -> Samples:
    """Return `seconds` of vowels in syllables, four a second: glottal pulses of a moving pitch through formants."""
    rng = np.random.default_rng(seed)
    count = int(seconds * LISTEN_RATE_HZ)
    pitch_hz = 120 + 25 * np.sin(2 * np.pi * 0.7 * np.arange(count) / LISTEN_RATE_HZ) + rng.normal(0, 1, count)
    phase = np.cumsum(pitch_hz / LISTEN_RATE_HZ)
    pulses = (np.diff(np.floor(phase), prepend=0) > 0).astype(float) + rng.normal(0, 0.004, count)
    out = np.zeros(count)
    syllable = int(0.25 * LISTEN_RATE_HZ)
    for index, start in enumerate(range(0, count, syllable)):
        piece = pulses[start : start + syllable]
        voiced = sum(_resonate(piece, hz, width) for hz, width in zip(_pick(rng), (80, 100, 140), strict=True))
        envelope = 0.15 + 0.85 * np.sin(np.pi * (np.arange(len(piece)) + 1) / (syllable + 1)) ** 0.5
        out[start : start + len(piece)] = voiced * envelope * (1.0 if index % 3 else 0.8)
    out *= 10 ** (peak_db / 20) / np.abs(out).max()
    return np.asarray(np.round(out * 32767), dtype=np.int16)


def make_noise(seconds: float, *, level_db: float = -70.0, seed: int = 1) -> Samples:
    """Return `seconds` of white noise whose RMS level is `level_db` dBFS."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 10 ** (level_db / 20) * 32768, int(seconds * LISTEN_RATE_HZ))
    return np.asarray(np.clip(np.round(noise), -32768, 32767), dtype=np.int16)


def _pick(rng: np.random.Generator) -> tuple[int, int, int]:
    return _FORMANTS_HZ[int(rng.integers(len(_FORMANTS_HZ)))]


def _resonate(signal: np.ndarray, frequency_hz: float, width_hz: float) -> np.ndarray:
    """Two-pole resonance by convolution with its impulse response, 40 ms long."""
    time_s = np.arange(int(0.04 * LISTEN_RATE_HZ)) / LISTEN_RATE_HZ
    response = np.exp(-np.pi * width_hz * time_s) * np.sin(2 * np.pi * frequency_hz * time_s)
    return np.convolve(signal, response)[: len(signal)]
