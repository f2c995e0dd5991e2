"""Which words of a text have been heard when so many samples of its sound have been sent. Pure.

A voice gives no word times, so they are estimated: the sounding part of a text's audio, its edges of silence left
out, is shared among its words by their length in characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_CJK_MARKS = "\u3001-\u303f\uff01-\uff0f\uff1a-\uff1f"
_WORD = re.compile(rf"[{_CJK}](?:[{_CJK_MARKS}]|(?<=[{_CJK_MARKS}])[”’』」])*\s*|[^\s{_CJK}]+\s*")
"""A word, or a character where there are no spaces between words."""
_NO_SPACE_AFTER = re.compile(rf"[{_CJK}{_CJK_MARKS}]$")
_NO_SPACE_BEFORE = re.compile(rf"[{_CJK}{_CJK_MARKS}]")
_CJK_CHARS = 3
"""A Chinese character takes about as long to say as so many letters."""
_SPEECH_RATE_CHARS_PER_S = 15.0
"""A usual reading voice; stands in for the length of a text whose sound is still being made."""
_SOUND_LEVEL = 330
"""About -40 dB of full scale: below it a synthetic voice is silent."""


def join_spoken(parts: Sequence[str]) -> str:
    """Return pieces of a reply as one text: with a space between, none between Chinese or Japanese ones."""
    text = ""
    for part in (stripped for part in parts if (stripped := part.strip())):
        joined = not text or (_NO_SPACE_AFTER.search(text) and _NO_SPACE_BEFORE.match(part))
        text += part if joined else f" {part}"
    return text


def _weight(word: str) -> int:
    """Return how long a word takes, in letters."""
    wide = sum(bool(_NO_SPACE_BEFORE.match(char)) for char in word)
    return wide * _CJK_CHARS if wide else len(word.strip()) + 1


class _Passage:
    """One text and the span of samples that voices it; `voiced_start` and `voiced_end` leave its silent edges out."""

    __slots__ = ("closed", "end", "start", "text", "voiced_end", "voiced_start", "words")

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.words = _WORD.findall(text)
        self.start = self.end = start
        self.voiced_start: int | None = None
        self.voiced_end: int | None = None
        self.closed = False

    def word_ends(self, sample_rate_hz: int) -> list[float]:
        """Return the estimated position at which each word ends."""
        first = self.start if self.voiced_start is None else self.voiced_start
        last = self.end if self.voiced_end is None else self.voiced_end
        if not self.closed:
            letters = sum(map(_weight, self.words))
            last = max(last, first + round(letters / _SPEECH_RATE_CHARS_PER_S * sample_rate_hz))
        lengths = np.cumsum([_weight(word) for word in self.words])
        return [float(first + (last - first) * length / lengths[-1]) for length in lengths]


class SpokenText:
    """The texts of one reply against the sample positions that voice them."""

    def __init__(self, *, sample_rate_hz: int) -> None:
        self._sample_rate_hz = sample_rate_hz
        self._passages: list[_Passage] = []

    def begin(self, text: str, position: int) -> None:
        """`text` is voiced from `position` on; the text before it ends there."""
        self.end(position)
        self._passages.append(_Passage(text, position))

    def extend(self, samples: NDArray[np.int16], end: int) -> None:
        """Sound was added to the open text, up to position `end`."""
        if not self._passages or self._passages[-1].closed:
            return
        passage = self._passages[-1]
        loud = np.flatnonzero((samples > _SOUND_LEVEL) | (samples < -_SOUND_LEVEL))
        if len(loud):
            base = end - len(samples)
            if passage.voiced_start is None:
                passage.voiced_start = base + int(loud[0])
            passage.voiced_end = base + int(loud[-1]) + 1
        passage.end = end

    def end(self, position: int) -> None:
        """The open text's sound is complete at `position`."""
        if self._passages and not self._passages[-1].closed:
            self._passages[-1].closed = True
            self._passages[-1].end = position

    def heard(self, position: int) -> str:
        """Return the text whose sound lies before `position`, cut at the last word that had begun to be clear."""
        parts = []
        for passage in self._passages:
            if position <= passage.start:
                break
            if passage.closed and position >= passage.end:
                parts.append(passage.text)
                continue
            ends = passage.word_ends(self._sample_rate_hz)
            parts.append("".join(word for word, end in zip(passage.words, ends, strict=True) if end <= position))
        return join_spoken(parts)

    def word_start(self, position: int) -> int:
        """Return the estimated start of the word that is being said at `position`, or `position` between texts."""
        for passage in reversed(self._passages):
            if passage.start < position:
                before = passage.start if passage.voiced_start is None else passage.voiced_start
                for end in passage.word_ends(self._sample_rate_hz):
                    if end >= position:
                        return round(before)
                    before = round(end)
                return position
        return position
