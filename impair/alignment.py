"""Which transcript belongs to what was said: they come in order, but late, split or merged. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from impair.measures import word_errors


def align(said: Sequence[tuple[float, str]], told: Sequence[tuple[float, str]]) -> list[int]:
    """For each transcript (moment, text) the index of what was said (moment of its beginning, text).

    In order, none before it was begun, and with the fewest word errors in all: a transcript is not held against the
    words before it because it came late; of two ways alike, the later words. Unknown text (empty) costs nothing either
    way. Raises ValueError where a transcript came before anything was said.
    """

    @cache
    def best(which: int, first: int) -> tuple[int, tuple[int, ...]]:
        """Fewest errors of what was said from `which` on, with the transcripts from `first` on, and how."""
        if which == len(said):
            return (0, ()) if first == len(told) else (10**9, ())
        options = []
        for end in range(first, len(told) + 1):
            if end > first and told[end - 1][0] < said[which][0]:
                break
            errors = word_errors(said[which][1], " ".join(text for _, text in told[first:end])).errors
            rest, how = best(which + 1, end)
            options.append((errors + rest, (which,) * (end - first) + how))
        return min(options, key=lambda option: (option[0], [-place for place in option[1]]))

    if told and (not said or told[0][0] < said[0][0]):
        raise ValueError("a transcript came before anything was said")
    _, assigned = best(0, 0)
    return list(assigned)
