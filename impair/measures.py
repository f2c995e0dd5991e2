"""What is measured of a call's sound: words, quality, and when sound begins and ends. Pure.

Word error rate is the word-level Levenshtein distance over reference words, after the usual normalisation; PLCMOS is
Microsoft's non-intrusive score of packet-loss artefacts (INTERSPEECH 2023), 1 to 5.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]

_AUDIBLE_RMS = 100.0
"""About -50 dB of full scale."""
_BLOCK_S = 0.01
_WORD = re.compile(r"[a-z0-9']+")
_SPELLED = {"0": "zero", "1": "one", "2": "two", "3": "three", "4": "four", "5": "five", "6": "six", "7": "seven",
            "8": "eight", "9": "nine", "10": "ten", "okay": "ok", "mr": "mister", "mrs": "missus"}  # fmt: skip


def words_of(text: str) -> list[str]:
    """Lower-case words without punctuation, small numbers spelled out."""
    found = _WORD.findall(text.lower().replace("’", "'"))
    return [_SPELLED.get(word, word) for word in (word.strip("'") for word in found) if word]


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Errors and reference words; they add up over utterances."""

    errors: int
    words: int

    @property
    def rate(self) -> float | None:
        """Errors over words, None without words."""
        return self.errors / self.words if self.words else None

    def __add__(self, other: WordErrors) -> WordErrors:
        return WordErrors(self.errors + other.errors, self.words + other.words)


def word_errors(reference: str, heard: str) -> WordErrors:
    """Substitutions, deletions and insertions that lead from what was said to what was heard."""
    said, got = words_of(reference), words_of(heard)
    row = list(range(len(got) + 1))
    for i, word in enumerate(said, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return WordErrors(row[-1], len(said))


def levels(samples: Samples, rate_hz: int) -> NDArray[np.float64]:
    """RMS of each 10 ms, shape (blocks,)."""
    block = round(rate_hz * _BLOCK_S)
    count = len(samples) // block
    blocks = samples[: count * block].astype(np.float64).reshape(count, block)
    return np.asarray(np.sqrt(np.square(blocks).mean(axis=1))) if count else np.zeros(0)


def audible_spans(samples: Samples, rate_hz: int, *, bridge_s: float = 0.4) -> list[tuple[float, float]]:
    """(begin, end) in seconds of each stretch of sound; pauses shorter than `bridge_s` belong to it."""
    loud = np.flatnonzero(levels(samples, rate_hz) > _AUDIBLE_RMS)
    spans: list[tuple[float, float]] = []
    for block in loud:
        begin, end = float(block) * _BLOCK_S, float(block + 1) * _BLOCK_S
        if spans and begin - spans[-1][1] <= bridge_s:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((begin, end))
    return spans


def median(values: Sequence[float]) -> float | None:
    """The median, None of nothing."""
    return statistics.median(values) if values else None
