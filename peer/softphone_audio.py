"""What the softphone plays and records: files, where speech ends in them, faint noise, and the line's own timeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np
import soundfile
import soxr

from peer.engines.base import Samples
from peer.errors import ConfigError

SEND_RATE_HZ: Final = 48_000
RECORD_RATE_HZ: Final = 16_000
_NOISE_RMS: Final = 3.0
"""About -80 dB of full scale: a quiet room, so that no gate on the way shuts."""
_AUDIBLE_RMS: Final = 100.0
"""About -50 dB of full scale."""
_ONSET_AFTER_S: Final = 0.2
"""Sound after so much silence is a new one."""
_BLOCK_S: Final = 0.01
_REORDER_S: Final = 0.08
"""Frames may come this much later than their place in time without opening a gap in the record."""


def read_audio(path: Path) -> Samples:
    """Return the mono int16 samples at 48 kHz of a WAV or FLAC file; raises ConfigError where it cannot be read."""
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{path}: not a WAV or FLAC file that can be read: {error}") from error
    if len(samples) == 0:
        raise ConfigError(f"{path}: has no sound in it")
    mono = soxr.resample(samples.mean(axis=1), rate, SEND_RATE_HZ)
    return np.asarray(np.clip(np.rint(mono * 32767), -32768, 32767)).astype(np.int16)


def write_audio(path: Path, samples: Samples, rate_hz: int) -> None:
    """Write mono 16-bit audio to a WAV file; raises ConfigError where it cannot."""
    try:
        soundfile.write(path, samples, rate_hz, subtype="PCM_16")
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error


def check_writable(path: Path) -> None:
    """Raise ConfigError where no file can be written at `path`; what stands there stays as it is."""
    is_new = not path.exists()
    try:
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error


def read_labels(path: Path) -> list[float] | None:
    """Return `speech_ends_ms` of the label file beside an audio file, None where there is none; raises ConfigError."""
    label = path.with_suffix(".json")
    if not label.is_file():
        return None
    try:
        ends = json.loads(label.read_text(encoding="utf-8"))["speech_ends_ms"]
        return [float(end) for end in ends]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f'{label}: not a label file; it should be {{"speech_ends_ms": [1234]}}') from error


def speech_end_ms(samples: Samples, rate_hz: int) -> float:
    """Return where the last sound of a recording ends.

    That is its last 10 ms above -45 dB of its loudest, or above its noise floor + 10 dB where that is higher.
    """
    block = round(rate_hz * _BLOCK_S)
    blocks = samples[: len(samples) // block * block].astype(np.float64).reshape(-1, block)
    if len(blocks) == 0:
        return len(samples) * 1000 / rate_hz
    levels_db = 10 * np.log10(np.square(blocks).mean(axis=1) + 1e-3)
    peak_db, floor_db = float(levels_db.max()), float(np.percentile(levels_db, 10))
    # A recording that is loud throughout shows no floor.
    threshold_db = max(peak_db - 45.0, floor_db + 10.0) if floor_db < peak_db - 15.0 else peak_db - 45.0
    loud = np.flatnonzero(levels_db > threshold_db)
    return float((loud[-1] + 1) * _BLOCK_S * 1000) if len(loud) else 0.0


class FaintNoise:
    """Noise of a quiet room, endless; seeded, so that two calls send the same."""

    def __init__(self, seed: int = 1) -> None:
        self._random: Final = np.random.default_rng(seed)

    def take(self, samples: int) -> Samples:
        """Return the next `samples` of it."""
        return self._random.normal(0.0, _NOISE_RMS, samples).astype(np.int16)


class LineRecorder:
    """Puts received audio (int16, 16 kHz) on a timeline by when it arrived, and notes when sound sets in."""

    def __init__(self) -> None:
        self.onsets: Final[list[float]] = []
        """Arrival times of the first audible frame after each silence, seconds."""
        self._zero_at: float | None = None
        self._pieces: Final[list[Samples]] = []
        self._end_samples = 0
        self._audible_until = -np.inf

    @property
    def last_sound_at(self) -> float:
        """Arrival of the last audible frame, minus infinity before the first."""
        return float(self._audible_until)

    def begin(self, now: float) -> None:
        """Make `now` the record's zero; what came before is left out."""
        self._zero_at = now

    def add(self, samples: Samples, *, arrival: float) -> None:
        """Take the next frame, which came out of the network at `arrival`."""
        if float(np.sqrt(np.mean(np.square(samples.astype(np.float32))))) > _AUDIBLE_RMS:
            if arrival - self._audible_until > _ONSET_AFTER_S:
                self.onsets.append(arrival)
            self._audible_until = arrival
        if self._zero_at is None or arrival < self._zero_at:
            return
        gap = round((arrival - self._zero_at) * RECORD_RATE_HZ) - self._end_samples
        if gap > _REORDER_S * RECORD_RATE_HZ:
            self._append(np.zeros(gap, np.int16))
        self._append(samples)

    def first_onset_after(self, at: float) -> float | None:
        """Return when sound first set in after `at`, None where it did not."""
        return next((onset for onset in self.onsets if onset > at), None)

    def recording(self) -> Samples:
        """Return all that was recorded."""
        return np.concatenate(self._pieces) if self._pieces else np.zeros(0, np.int16)

    def _append(self, samples: Samples) -> None:
        self._pieces.append(samples.copy())
        self._end_samples += len(samples)
