"""Whisper's log-mel spectrogram (openai/whisper, audio.py), in numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peer.engines.base import LISTEN_RATE_HZ

_WINDOW_SAMPLES = 400
_HOP_SAMPLES = 160
_LINEAR_STEP_HZ = 200.0 / 3.0
_LOG_FROM_HZ = 1000.0
_LOG_STEP = np.log(6.4) / 27.0
"""Slaney's mel scale: linear to 1 kHz, logarithmic above."""


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    log_from = _LOG_FROM_HZ / _LINEAR_STEP_HZ
    return np.where(mel < log_from, mel * _LINEAR_STEP_HZ, _LOG_FROM_HZ * np.exp(_LOG_STEP * (mel - log_from)))


def _hz_to_mel(hz: float) -> float:
    return _LOG_FROM_HZ / _LINEAR_STEP_HZ + float(np.log(hz / _LOG_FROM_HZ) / _LOG_STEP)


def make_filters(bands: int) -> NDArray[np.float32]:
    """Return triangular filters of equal area on Slaney's mel scale, shape (bands, 201)."""
    edges = _mel_to_hz(np.linspace(0.0, _hz_to_mel(LISTEN_RATE_HZ / 2), bands + 2))
    bins = np.fft.rfftfreq(_WINDOW_SAMPLES, 1.0 / LISTEN_RATE_HZ)
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    triangles: NDArray[np.float64] = np.maximum(0.0, np.minimum(rising, falling))
    return (triangles * (2.0 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)


class LogMel:
    """Log-mel features of audio at 16 kHz, a frame every 10 ms."""

    def __init__(self, *, bands: int) -> None:
        self._filters = make_filters(bands)
        self._window = np.hanning(_WINDOW_SAMPLES + 1)[:-1].astype(np.float32)

    def extract(self, audio: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return features of shape (bands, samples // 160) for float audio (samples,)."""
        padded = np.pad(audio, _WINDOW_SAMPLES // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW_SAMPLES)[::_HOP_SAMPLES][:-1]
        power = np.square(np.abs(np.fft.rfft(frames * self._window, axis=1))).astype(np.float32)
        level: NDArray[np.float32] = np.log10(np.maximum(self._filters @ power.T, 1e-10)).astype(np.float32)
        floored: NDArray[np.float32] = np.maximum(level, level.max() - np.float32(8.0))
        return (floored + np.float32(4.0)) / np.float32(4.0)
