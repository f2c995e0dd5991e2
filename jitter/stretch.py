"""Shortening and lengthening of speech by whole pitch periods, as libwebrtc's accelerate.cc and preemptive_expand.cc.

Both look for the lag at which the sound best repeats itself (2.5 to 15 ms), and fade one period into the next; in
passive speech any lag will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jitter.decoder import Samples

MIN_LAG_MS = 2.5
MAX_LAG_MS = 15.0
"""Pitch of 400 down to 67 Hz (libwebrtc: lags 10 to 60 at 4 kHz)."""
COARSE_RATE_HZ = 4000
WINDOW_MS = 15.0
"""What is compared, as libwebrtc: the longest period once."""
CORRELATION = 0.9
FAST_CORRELATION = 0.5
"""libwebrtc's thresholds for taking a lag."""


@dataclass(frozen=True, slots=True)
class Pitch:
    """The lag at which a piece of sound best repeats itself."""

    lag_samples: int
    correlation: float
    """Normalised, -1..1."""

    def periods_at_once(self, count: int, sample_rate_hz: int) -> int:
        """Return how many periods to cut from `count` samples in one piece: up to 15 ms, as libwebrtc's fast mode."""
        return max(1, min(int(MAX_LAG_MS * sample_rate_hz / 1000), count // 2) // self.lag_samples)


def find_pitch(samples: Samples, sample_rate_hz: int) -> Pitch | None:
    """Return the best lag at the start of `samples`; None where there are fewer than two shortest periods (5 ms)."""
    factor = sample_rate_hz // COARSE_RATE_HZ
    usable = len(samples) // factor * factor
    signal = samples.astype(np.float32)
    coarse = signal[:usable].reshape(-1, factor) @ _ones(factor) / np.float32(factor)
    shortest = int(MIN_LAG_MS * COARSE_RATE_HZ / 1000)
    longest = min(int(MAX_LAG_MS * COARSE_RATE_HZ / 1000), len(coarse) // 2)
    if longest < shortest:
        return None
    window = min(len(coarse) - longest, int(WINDOW_MS * COARSE_RATE_HZ / 1000))
    correlation = _normalised(coarse, window, shortest, longest)
    best = shortest + int(correlation.argmax())
    low = max(best * factor - factor, shortest * factor)
    high = min(best * factor + factor, len(samples) // 2)
    window = min(usable - high, int(WINDOW_MS * sample_rate_hz / 1000))
    fine = _normalised(signal[: window + high], window, low, high)
    at = int(fine.argmax())
    return Pitch(low + at, float(fine[at]))


def _normalised(signal: NDArray[np.float32], window: int, shortest: int, longest: int) -> NDArray[np.float32]:
    template = signal[:window]
    shifted = signal[shortest : longest + window]
    cross = np.correlate(shifted, template, "valid")
    squares = np.zeros(len(shifted) + 1)
    np.add.accumulate(np.square(shifted, dtype=np.float64), out=squares[1:])
    energy = squares[window:] - squares[: len(squares) - window]
    energy *= float(template.dot(template))
    scale = np.sqrt(energy, out=energy)
    return np.asarray(cross / np.maximum(scale, 1.0, out=scale), np.float32)


@lru_cache(maxsize=8)
def _ones(count: int) -> NDArray[np.float32]:
    return np.ones(count, np.float32)


@lru_cache(maxsize=1024)
def _rise(count: int) -> NDArray[np.float32]:
    return np.asarray(np.arange(1, count + 1) / (count + 1), np.float32)


def cross_fade(leaving: Samples, entering: Samples) -> Samples:
    """Return `leaving` turning into `entering` linearly; both int16 (n,)."""
    mixed = entering.astype(np.float32)
    mixed -= leaving
    mixed *= _rise(len(leaving))
    mixed += leaving
    return mixed.astype(np.int16)


def cut(samples: Samples, lag: int) -> Samples:
    """Return `samples` without `lag` samples, the first of two periods faded into the second; needs 2·lag samples."""
    return np.concatenate((cross_fade(samples[:lag], samples[lag : 2 * lag]), samples[2 * lag :]))


def repeat(samples: Samples, lag: int, *, times: int = 1) -> Samples:
    """Return `samples` with its first period played `times` times more, `lag` samples each; needs 2·lag samples."""
    joint = cross_fade(samples[lag : 2 * lag], samples[:lag])
    return np.concatenate((samples[:lag], *([joint] * times), samples[lag:]))


def hold_out(past: Samples, following: Samples, sample_rate_hz: int, *, periods: int) -> Samples:
    """Return `following`, which goes on from `past`, with each of its periods played `periods` times more.

    All repetitions stand at the front, so that it can be done to sound whose beginning is already out.
    """
    around = min(len(past), len(following))
    past = past[len(past) - around :]
    pitch = find_pitch(np.concatenate((past, following[:around])), sample_rate_hz)
    if pitch is None:
        return following
    lag = pitch.lag_samples
    sound = np.concatenate((past[around - lag :], following))
    return repeat(sound, lag, times=periods * (len(following) // lag))[lag:]
