"""Searches for the worst call: every profile with many seeds, and the smallest trace that still goes wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

from impair.chance import Chance
from impair.errors import ImpairError
from impair.link import Copy, Step
from impair.simulator import Outcome, Script, simulate, simulate_profile
from impair.stages import Delay
from impair.traces import load_profile

Fault = Callable[[Script, Outcome], bool]
_SLOW_ANSWER_MS = 2000.0
_NOTABLE_MS = 1.0
"""A packet later than the fastest by less is no event."""


def _lost_words(_script: Script, outcome: Outcome) -> bool:
    return outcome.words_lost > 0


def _split_turns(script: Script, outcome: Outcome) -> bool:
    return outcome.turns != len(script.utterances)


def _slow_answer(_script: Script, outcome: Outcome) -> bool:
    return outcome.answer_ms is None or outcome.answer_ms > _SLOW_ANSWER_MS


FAULTS: dict[str, Fault] = {"words": _lost_words, "turns": _split_turns, "answer": _slow_answer}
"""What may go wrong: words not understood; a turn split, merged or missed; no answer within 2 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call of a sweep."""

    profile: str
    seed: int
    outcome: Outcome

    @property
    def badness(self) -> tuple[float, float, float]:
        """Sorts calls, the worst last: words lost, then turns too many or too few, then the wait."""
        answer = float("inf") if self.outcome.answer_ms is None else self.outcome.answer_ms
        return self.outcome.words_lost, abs(self.outcome.turns - 1), answer


def _one(job: tuple[Script, str, int]) -> Case:
    script, profile, seed = job
    return Case(profile=profile, seed=seed, outcome=simulate_profile(script, load_profile(profile), seed=seed))


def sweep(
    script: Script, profiles: Sequence[str], seeds: Iterable[int], *, workers: int | None = None
) -> Iterator[Case]:
    """Hold a call on every profile with every seed, on all cores, in order; ProfileError for a wrong name."""
    for name in profiles:
        load_profile(name)
    jobs = [(script, profile, seed) for profile in profiles for seed in seeds]
    count = workers or os.cpu_count() or 1
    if count == 1:
        yield from map(_one, jobs)
        return
    with ProcessPoolExecutor(count) as pool:
        yield from pool.map(_one, jobs, chunksize=max(1, len(jobs) // (8 * count)))


@dataclass(frozen=True, slots=True)
class MediaTrace:
    """Media packet n takes `delays_ms[n]` (None = lost), or `base_ms` beyond them; other kinds take `base_ms`."""

    delays_ms: tuple[float | None, ...]
    base_ms: float
    may_reorder: ClassVar[bool] = True
    needs_order: ClassVar[bool] = False

    def start(self, chance: Chance) -> Step:
        """See Stage; nothing is left to chance."""
        del chance
        base_us = round(self.base_ms * 1000)
        sent = 0

        def step(copy: Copy, out: list[Copy]) -> None:
            nonlocal sent
            delay_us: int | None = base_us
            if copy.kind == 0:
                if sent < len(self.delays_ms):
                    delay_ms = self.delays_ms[sent]
                    delay_us = None if delay_ms is None else round(delay_ms * 1000)
                sent += 1
            if delay_us is not None:
                copy.at_us += delay_us
                out.append(copy)

        return step


@dataclass(frozen=True, slots=True, kw_only=True)
class Smallest:
    """The fewest events that still bring the fault about."""

    events: tuple[tuple[int, float | None], ...]
    """(media packet, its delay in ms; None = lost); every other packet takes `base_ms`."""
    base_ms: float
    tried: int
    """Calls held to find it."""
    of_events: int
    """How many there were to begin with."""


def shrink(script: Script, outcome: Outcome, fault: Fault) -> Smallest:
    """Find a smallest set of lost and late packets of a failing call that still fails, by delta debugging (ddmin).

    ImpairError where its media packets alone do not bring the fault about: it lies in the way back then.
    """
    delays = outcome.up_delays_ms
    base_ms = min((delay for delay in delays if delay is not None), default=0.0)
    events = [(i, d) for i, d in enumerate(delays) if d is None or d > base_ms + _NOTABLE_MS]
    tried = 0

    def fails(kept: Sequence[tuple[int, float | None]]) -> bool:
        nonlocal tried
        tried += 1
        row: list[float | None] = [base_ms] * len(delays)
        for index, delay in kept:
            row[index] = delay
        stages = (MediaTrace(tuple(row), base_ms),)
        return fault(script, simulate(script, stages, (Delay(base_ms),)))

    if not fails(events):
        raise ImpairError("the fault does not come from the media packets alone: requests or answers are part of it")
    smallest = ddmin(events, fails)
    return Smallest(events=tuple(smallest), base_ms=base_ms, tried=tried, of_events=len(events))


def ddmin(
    events: Sequence[tuple[int, float | None]], fails: Callable[[Sequence[tuple[int, float | None]]], bool]
) -> list[tuple[int, float | None]]:
    """Zeller's ddmin (2002): a subset that fails, of which no single event can be left out."""
    kept = list(events)
    if not kept or fails([]):
        return []
    parts = 2
    while len(kept) >= 2:
        size = -(-len(kept) // parts)
        chunks = [kept[i : i + size] for i in range(0, len(kept), size)]
        smaller = next((chunk for chunk in chunks if fails(chunk)), None)
        if smaller is not None:
            kept, parts = smaller, 2
            continue
        rests = (kept[:i] + kept[i + size :] for i in range(0, len(kept), size))
        rest = next((rest for rest in rests if fails(rest)), None)
        if rest is not None:
            kept, parts = rest, max(2, parts - 1)
        elif parts >= len(kept):
            break
        else:
            parts = min(len(kept), 2 * parts)
    return kept
