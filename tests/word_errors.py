"""Word error rate as the tests count it: lower case, numbers as words, no punctuation."""

from __future__ import annotations

import re

import jiwer

from peer.speakable import make_speakable


def normalized(text: str) -> str:
    """Return the words of `text`, lower case, numbers as words, apart by one space."""
    spoken = make_speakable(text, "en").lower().replace("-", " ")
    return " ".join(re.sub(r"[^\w\s']", " ", spoken).split())


def word_error_rate(reference: str, hypothesis: str) -> float:
    """Return substitutions, deletions and insertions per word of `reference`."""
    return float(jiwer.wer(normalized(reference), normalized(hypothesis)))
