"""What keeps Whisper honest: when a hypothesis is not to be believed, and where long audio may be cut. Pure."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

import numpy as np

from peer.engines.base import LISTEN_RATE_HZ, Samples

SILENCE_DBFS = -60.0
"""No 30 ms of the audio louder than this: nothing was said, and Whisper would only invent."""
_LEVEL_FRAME_SAMPLES = LISTEN_RATE_HZ * 30 // 1000
_TOKENS_PER_S = 8.0
"""Fast English is about 4 words a second, 1.4 tokens a word, and a timestamp pair a segment."""
_TOKENS_AT_LEAST = 12
_COMPRESSION_LIMIT = 2.4
"""Text that compresses better than this is a loop (openai/whisper, transcribe.py)."""
_DOUBT_LOG_PROBABILITY = -1.0
_NO_SPEECH = 0.6
_REPEATED_WORDS = 4
_REPEATED_SHARE = 0.6
"""People come back to half a clause ("ask not what your country can do for you, ask what you can do for…")."""
_DROPPED_S = 1.0
_CUT_FRAME_SAMPLES = LISTEN_RATE_HZ // 5
_WORD = re.compile(r"[\w']+")
_STOCK_PHRASES = frozenset({
    "you", "thank you", "thanks for watching", "thank you for watching", "bye", "please subscribe",
    "subtitles by the amara org community", "music", "silence",
})  # fmt: skip
"""What Whisper says about noise, from its training on subtitles (openai/whisper discussion 679)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One decoding of one window."""

    text: str
    average_log_probability: float
    no_speech_probability: float
    ended: bool
    """False when the tokens ran out before the model was done."""
    last_timestamp_s: float | None = None
    """Where the model says that the last words end; None when it gave no timestamp."""


def max_tokens(duration_s: float) -> int:
    """Return how many tokens speech of this length can come to, so that a loop cannot run on."""
    return _TOKENS_AT_LEAST + round(_TOKENS_PER_S * duration_s)


def measure_peak_dbfs(samples: Samples) -> float:
    """Return the level of the loudest 30 ms in dB of full scale."""
    frames = len(samples) // _LEVEL_FRAME_SAMPLES
    if not frames:
        return -120.0
    blocks = samples[: frames * _LEVEL_FRAME_SAMPLES].reshape(frames, -1).astype(np.float32)
    power = float(np.square(blocks - blocks.mean(axis=1, keepdims=True)).mean(axis=1).max())
    return 10.0 * float(np.log10(power / 32768.0**2 + 1e-12))


def repeats_itself(text: str) -> bool:
    """Return whether `text` loops: it compresses too well, or its end says again what stands right before it."""
    encoded = text.encode()
    if len(encoded) > _COMPRESSION_LIMIT * len(zlib.compress(encoded)):
        return True
    words = _WORD.findall(text.lower())
    for period in range(1, len(words)):
        again = 0
        while again + period < len(words) and words[-1 - again] == words[-1 - again - period]:
            again += 1
        if again >= max(_REPEATED_WORDS, _REPEATED_SHARE * period) or (
            again >= min(2, period) and again + period == len(words) > 2
        ):
            return True
    return False


def is_doubtful(hypothesis: Hypothesis, *, speech_end_s: float, is_partial: bool = False) -> bool:
    """Return whether a hypothesis should be decoded again in a longer window.

    Of a partial one, cut off within a word, little probability is to be expected, and a longer window does not help it.
    """
    dropped = hypothesis.last_timestamp_s is not None and hypothesis.last_timestamp_s < speech_end_s - _DROPPED_S
    improbable = not is_partial and hypothesis.average_log_probability < _DOUBT_LOG_PROBABILITY
    return not hypothesis.ended or dropped or improbable or repeats_itself(hypothesis.text)


def is_invented(hypothesis: Hypothesis) -> bool:
    """Return whether the text was made up on noise or silence, so that nothing was said at all."""
    words = " ".join(_WORD.findall(hypothesis.text.lower()))
    if not words:
        return True
    if hypothesis.no_speech_probability > _NO_SPEECH:
        doubtful = hypothesis.average_log_probability < _DOUBT_LOG_PROBABILITY
        return doubtful or words in _STOCK_PHRASES or repeats_itself(hypothesis.text)
    return hypothesis.average_log_probability < 1.5 * _DOUBT_LOG_PROBABILITY


def find_speech_end_s(samples: Samples) -> float:
    """Return where the last sound above a tenth of the peak's amplitude ends, in seconds: an estimate."""
    frames = len(samples) // _LEVEL_FRAME_SAMPLES
    if not frames:
        return 0.0
    blocks = samples[: frames * _LEVEL_FRAME_SAMPLES].reshape(frames, -1).astype(np.float32)
    level = np.sqrt(np.square(blocks).mean(axis=1))
    loud = np.flatnonzero(level > 0.1 * level.max())
    return (int(loud[-1]) + 1) * _LEVEL_FRAME_SAMPLES / LISTEN_RATE_HZ if len(loud) else 0.0


def split_at_quiet(samples: Samples, *, at_most_s: float) -> list[Samples]:
    """Return `samples` in pieces of at most `at_most_s`, cut at the quietest fifth of a second of each last third."""
    limit = round(at_most_s * LISTEN_RATE_HZ)
    pieces = []
    while len(samples) > limit:
        earliest = limit * 2 // 3
        tail = samples[earliest:limit]
        frames = len(tail) // _CUT_FRAME_SAMPLES
        power = np.square(tail[: frames * _CUT_FRAME_SAMPLES].reshape(frames, -1).astype(np.float32)).mean(axis=1)
        cut = earliest + int(power.argmin()) * _CUT_FRAME_SAMPLES + _CUT_FRAME_SAMPLES // 2
        pieces.append(samples[:cut])
        samples = samples[cut:]
    return [*pieces, samples]
