"""A stable prefix out of hypotheses that still change: what two in a row agree on (LocalAgreement-2).

After Liu et al., "Low-Latency Sequence-to-Sequence Speech Recognition and Translation by Partial Hypothesis Selection"
(Interspeech 2020), as whisper_streaming (Macháček et al., 2023) uses it. Pure; for Chinese the units are characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peer.words import normalize, split_units


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """A transcript of a turn that is not over."""

    text: str = ""
    stable_chars: int = 0
    """The first so many characters of `text` will not change while the turn lasts."""
    end_samples: int = 0
    """Position up to which the audio was heard."""

    @property
    def stable_text(self) -> str:
        """The part that will not change."""
        return self.text[: self.stable_chars]


class LocalAgreement:
    """Takes successive hypotheses of growing audio and returns each with its stable prefix."""

    def __init__(self) -> None:
        self._stable: list[str] = []
        self._before: list[str] = []

    @property
    def stable_text(self) -> str:
        """What was agreed on so far, without marks at its end."""
        return _without_last_mark("".join(self._stable))

    def settle(self, text: str) -> None:
        """Forget the beginning that `text` covers, because later hypotheses are of the audio after it."""
        count = len(split_units(text))
        self._stable, self._before = self._stable[count:], self._before[count:]

    def push(self, text: str, *, end_samples: int) -> Partial:
        """Take the hypothesis of the audio up to `end_samples` and return the partial transcript that it leads to."""
        units = split_units(text)
        at = _continuation(self._stable, units)
        if self._stable and at > 0:
            self._stable[-1] = _with_marks_of(units[at - 1], self._stable[-1])
        current = self._stable + units[at:]
        self._stable = current[: max(len(self._stable), _common_prefix(self._before[:-1], current))]
        self._before = current
        shown = "".join(current).rstrip()
        return Partial(text=shown, stable_chars=len(self.stable_text), end_samples=end_samples)


def _common_prefix(first: Sequence[str], second: Sequence[str]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if normalize(a) != normalize(b)), min(len(first), len(second)))


def _continuation(stable: list[str], units: list[str]) -> int:
    """Return where in `units` the text after `stable` begins, though the two may differ before it."""
    agreed = _common_prefix(stable, units)
    if agreed == len(stable):
        return agreed
    for size in (2, 1):
        tail = [normalize(unit) for unit in stable[-size:]]
        for shift in (0, 1, -1, 2, -2):
            end = len(stable) + shift
            if end >= len(tail) and [normalize(unit) for unit in units[end - len(tail) : end]] == tail:
                return end
    return min(len(stable), len(units))


def _without_last_mark(text: str) -> str:
    text = text.rstrip()
    while text and not text[-1].isalnum():
        text = text[:-1]
    return text


def _with_marks_of(newer: str, unit: str) -> str:
    """Return `unit` with the marks behind it that `newer` has, where both are the same word."""
    if normalize(newer) != normalize(unit):
        return unit
    return _without_last_mark(unit) + newer[len(_without_last_mark(newer)) :]
