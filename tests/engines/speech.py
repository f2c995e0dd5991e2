"""Speech for the tests of listening engines, spoken by the default voice: no recording has to be at hand."""

from __future__ import annotations

import functools
import re

import numpy as np
import soxr
from piper.config import SynthesisConfig

from peer.engines.base import LISTEN_RATE_HZ, Samples
from peer.engines.tts_piper import PiperTts, create

_ALWAYS_THE_SAME = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0)
"""Piper's own noise would give every run other audio, and a listening test other errors."""
_NUMBERS = {"7": "seven", "12": "twelve", "30": "thirty", "9": "nine"}


@functools.cache
def voice() -> PiperTts:
    """Return the default voice, loaded once a test run."""
    return create({"threads": 1}, lambda *_: None)


def speak(text: str, *, silence_after_s: float = 0.2, level: float = 0.5) -> Samples:
    """Return `text` spoken at 16 kHz over faint noise, as a line has it."""
    pieces = [piece.audio_float_array for piece in voice()._voice.synthesize(text, _ALWAYS_THE_SAME)]
    speech = np.concatenate(pieces) * 23_000.0
    resampled = soxr.resample(speech, voice().sample_rate_hz, LISTEN_RATE_HZ) * level
    padded = np.pad(resampled, (0, round(silence_after_s * LISTEN_RATE_HZ)))
    noise = np.random.default_rng(len(padded)).normal(0.0, 8.0, len(padded))
    return np.clip(padded + noise, -32_768, 32_767).astype(np.int16)


def plain(text: str) -> str:
    """Return `text` as word error rates compare it: lower case, no punctuation, small numbers as words."""
    words = re.sub(r"[^a-z0-9' ]", " ", text.lower().replace("o'clock", "oclock")).split()
    return " ".join(_NUMBERS.get(word, word) for word in words)
