"""What the turn benchmark reads off a call: levels of received frames, partial transcripts, and their times. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.spoken import SpokenWord
from impair.measures import word_errors
from peer.engines.base import LISTEN_RATE_HZ, Samples
from peer.speakable import make_speakable

_MS = LISTEN_RATE_HZ // 1000
_SLOT = 10 * _MS
AUDIBLE_DB = -55.0
_DUCKED_DB = 14.0
"""A frame so far below the voice's usual level is ducked, or a gap between words."""
_DUCKED_FRAMES = 8
"""Gaps between words are shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A received frame of 20 ms: when it arrived, seconds, and how loud it is."""

    at: float
    db: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A transcript as it arrived: its text, how much of it will stay, and when, seconds."""

    at: float
    text: str
    stable_chars: int


def level_db(samples: np.ndarray) -> float:
    """Return the level of int16 samples in dBFS."""
    power = float(np.mean(np.square(samples.astype(np.float32)))) / 32768.0**2
    return 10 * float(np.log10(power + 1e-10))


def heard_from_ms(samples: Samples, start_ms: float) -> float:
    """Return where sound begins at or behind `start_ms`, in samples int16 at 16 kHz; `start_ms` where none does.

    The voice model's words begin with up to 0.1 s of its silence.
    """
    for at in range(round(start_ms) * _MS, len(samples) - _SLOT + 1, _SLOT):
        if level_db(samples[at : at + _SLOT]) > AUDIBLE_DB:
            return start_ms + at / _MS - round(start_ms)
    return start_ms


def audible_ms(levels: Sequence[Level], start: float, end: float) -> float:
    """Return how much sound arrived between two times."""
    return 20.0 * sum(1 for level in levels if start <= level.at < end and level.db > AUDIBLE_DB)


def first_audible_after(levels: Sequence[Level], at: float) -> float | None:
    """Return when sound first arrived after a time."""
    return next((level.at for level in levels if level.at >= at and level.db > AUDIBLE_DB), None)


def last_audible_before_silence(levels: Sequence[Level], at: float, *, silence_s: float = 0.4) -> float:
    """Return when the sound that goes on at a time last arrived before it fell silent; `at` where it was silent."""
    last = at
    for level in levels:
        if level.at >= at and level.db > AUDIBLE_DB:
            if level.at - last > silence_s:
                break
            last = level.at
    return last


def last_audible_between(levels: Sequence[Level], start: float, end: float) -> float:
    """Return when sound last arrived between two times; `start` where none did."""
    return max((level.at for level in levels if start <= level.at < end and level.db > AUDIBLE_DB), default=start)


def ducked_after(levels: Sequence[Level], at: float, *, within_s: float = 1.5) -> float | None:
    """Return when, after a time, the voice sank by 14 dB or more and stayed there for longer than between words."""
    before = [level.db for level in levels if at - 1.0 <= level.at < at and level.db > AUDIBLE_DB]
    if not before:
        return None
    threshold = float(np.median(before)) - _DUCKED_DB
    run: list[float] = []
    for level in levels:
        if not at - 0.1 <= level.at <= at + within_s:
            continue
        run = [*run, level.at] if level.db < threshold else []
        if len(run) == _DUCKED_FRAMES:
            return max(run[0], at)
    return None


def resumed_after(levels: Sequence[Level], at: float) -> float | None:
    """Return when sound came again after it fell silent at a time; None where it never did."""
    silent_for = 0
    for level in levels:
        if level.at < at:
            continue
        if level.db <= AUDIBLE_DB:
            silent_for += 1
        elif silent_for >= _DUCKED_FRAMES // 2:
            return level.at
    return None


def words_of(text: str) -> list[str]:
    """Return the words of a transcript for comparison: lower case, numbers as words."""
    return re.sub(r"[^a-z' ]+", " ", make_speakable(text).lower()).split()


def words_heard(text: str, transcript: str) -> tuple[int, int]:
    """Return how many of the first words of `text` a transcript of a part of it fits best: the fewest and the most."""
    words, got = words_of(text), words_of(transcript)
    beginnings = [" ".join(words[:count]) for count in range(1, len(words) + 1)]
    errors = [len(got), *(word_errors(beginning, " ".join(got)).errors for beginning in beginnings)]
    fits = [count for count, wrong in enumerate(errors) if wrong == min(errors)]
    return fits[0], fits[-1]


def word_lags_ms(words: Sequence[SpokenWord], shown: Sequence[Shown], *, began_at: float, stable: bool) -> list[float]:
    """Return, for each word that is ever shown right and in its place, the time from its end to its showing.

    `began_at` is when the recording's first sample left; `stable` asks for the part that will not change.
    """
    expected: list[tuple[str, float]] = []
    for word in words:
        expected += [(part, word.end_ms) for part in words_of(word.text)]
    lags = []
    for index, (text, end_ms) in enumerate(expected):
        for partial in shown:
            visible = words_of(partial.text[: partial.stable_chars] if stable else partial.text)
            if len(visible) > index and visible[index] == text:
                lags.append((partial.at - began_at) * 1000 - end_ms)
                break
    return lags
