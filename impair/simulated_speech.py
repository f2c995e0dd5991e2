"""Speech whose words can be told from its samples, a codec for it that costs nothing, and ears for both.

A word is 15 frames of 20 ms at a level of its own. A concealed frame has no word in it. So a scripted recogniser knows
exactly which words came through, and a whole conversation can be judged without a model.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache

import numpy as np

from jitter.decoder import Samples

LISTEN_RATE_HZ = 16_000
FRAME_SAMPLES = 320
WORD_FRAMES = 15
_BASE_LEVEL = 2000
_LEVEL_STEP = 40
_MAX_WORD = 500
_FAINT = 3
_PAYLOAD = struct.Struct("!HHB")
"""Word of this frame + 1 (0: silence), that of the frame before + 1, 1 where the latter is carried (FEC)."""
UNDERSTOOD_SHARE = 0.6
"""Of a word's frames that must have come through for it to be understood."""
PAYLOAD_BYTES = 60
"""What such a frame counts for on the network: Opus at 24 kb/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """Words said from a moment on (seconds), numbered so that no two utterances share one."""

    at_s: float
    first_word: int
    words: int

    @property
    def ends_s(self) -> float:
        """When the last word has been said."""
        return self.at_s + self.words * WORD_FRAMES * 0.02


def encode(word: int | None, before: int | None, *, fec: bool) -> bytes:
    """A frame's payload, with the frame before in it where `fec` is on."""
    return _PAYLOAD.pack(0 if word is None else word + 1, 0 if before is None else before + 1, fec)


@cache
def _samples(number: int, count: int) -> Samples:
    """A frame of this word (0: silence), the same object each time, so nobody may write to it."""
    level = _FAINT if number == 0 else _BASE_LEVEL + _LEVEL_STEP * min(number - 1, _MAX_WORD)
    out = np.full(count, level, np.int16)
    out[1::2] = -level
    out.setflags(write=False)
    return out


class WordDecoder:
    """An AudioDecoder (jitter/decoder.py) for these payloads, 16 kHz."""

    sample_rate_hz = LISTEN_RATE_HZ

    def duration_samples(self, payload: bytes) -> int:
        """Samples in a payload; 0 where it is none."""
        return FRAME_SAMPLES if len(payload) == _PAYLOAD.size else 0

    def has_fec(self, payload: bytes) -> bool:
        """Whether the frame before is in it."""
        return len(payload) == _PAYLOAD.size and bool(payload[4])

    def decode(self, payload: bytes) -> Samples:
        """The frame's samples."""
        if len(payload) != _PAYLOAD.size:
            return np.zeros(0, np.int16)
        return _samples(_PAYLOAD.unpack(payload)[0], FRAME_SAMPLES)

    def recover_fec(self, next_payload: bytes, samples: int) -> Samples:
        """The frame before, from this one."""
        return _samples(_PAYLOAD.unpack(next_payload)[1], samples)

    def conceal(self, samples: int) -> Samples:
        """A guess: no word."""
        return _samples(0, samples)

    def reset(self) -> None:
        """Nothing is kept."""


def words_in(samples: Samples) -> list[int]:
    """The words of which enough came through, in the order they begin."""
    whole = samples[: len(samples) // 160 * 160].reshape(-1, 160)
    if not len(whole):
        return []
    levels = np.abs(whole[:, ::2]).astype(np.int32)
    steady = levels.max(axis=1) == levels.min(axis=1)
    numbers = (levels[:, 0] - _BASE_LEVEL) // _LEVEL_STEP
    exact = steady & (levels[:, 0] == _BASE_LEVEL + numbers * _LEVEL_STEP) & (numbers >= 0)
    found, first, counts = np.unique(numbers[exact], return_index=True, return_counts=True)
    enough = counts >= UNDERSTOOD_SHARE * 2 * WORD_FRAMES
    return [int(word) for _, word in sorted(zip(first[enough], found[enough], strict=True))]


class LevelVad:
    """Voice is what is loud; stands for both detectors of the endpointer."""

    frame_samples = FRAME_SAMPLES

    def probability(self, frame: Samples) -> float:
        """1 where anything is said."""
        return float(int(frame[0]) > _BASE_LEVEL // 2)

    def reset(self) -> None:
        """Nothing is kept."""
