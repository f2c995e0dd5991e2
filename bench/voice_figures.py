"""What bench.voice makes of its turns: half answers, the figures of a set, and their tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bench.intervals import quantile, quantile_interval, share_interval
from bench.items import Item, Kind
from bench.quality_judge import spoken_errors
from bench.turn_measures import Level, audible_ms, ducked_after, last_audible_between, words_of
from impair.measures import WordErrors

_STAGES: Final = ("begun", "endpointing", "asr", "llm_first_token", "first_sentence", "tts", "send", "total")
HALF_MS: Final = 200.0
"""So much of a reply heard before the next word is a half answer."""
_LEAST_WORDS: Final = 6


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of one turn; times in milliseconds."""

    item: Item
    voice_to_voice_ms: float = math.nan
    """Not a number where the call was hung up before the answer."""
    half: bool = False
    duck_ms: float | None = None
    """From the next word to the silence of a half answer."""
    stop_ms: float | None = None
    heard: str = ""
    """What the language model was given."""
    reply: str = ""
    stages: dict[str, float] = field(default_factory=dict)


def note_half_answer(
    outcome: Outcome, levels: Sequence[Level], *, cut_at: float, next_at: float, end_at: float
) -> None:
    """Note how much of an answer was heard in the pause, and how fast it fell silent when the voice went on."""
    outcome.half = audible_ms(levels, cut_at, next_at) > HALF_MS
    if outcome.half and audible_ms(levels, next_at - 0.1, next_at) > 0:
        ducked_at = ducked_after(levels, next_at)
        outcome.duck_ms = None if ducked_at is None else (ducked_at - next_at) * 1000
        outcome.stop_ms = (last_audible_between(levels, next_at, end_at) - next_at) * 1000


def compare_words(understood: Sequence[tuple[Item, str]]) -> dict[str, Any]:
    """Return the word errors of the finals, and of the same recordings transcribed in one shot."""
    from peer.engines.asr_whisper import create

    engine = create({}, lambda *_: None)
    final = one_shot = WordErrors(0, 0)
    for item, heard in understood:
        final += spoken_errors(item.text, heard)
        one_shot += spoken_errors(item.text, engine.transcribe_now(item.samples).text)
    return {
        "spoken": final.words,
        "wrong_pct": round(100 * final.errors / final.words, 2),
        "one_shot_wrong_pct": round(100 * one_shot.errors / one_shot.words, 2),
    }


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the figures of one set."""
    times = [outcome.voice_to_voice_ms for outcome in outcomes]
    people = [outcome.voice_to_voice_ms for outcome in outcomes if outcome.item.person]
    long = [outcome.voice_to_voice_ms for outcome in outcomes if len(outcome.reply.split()) >= _LEAST_WORDS]
    parts = {}
    for stage in _STAGES:
        values = [outcome.stages[stage] for outcome in outcomes if stage in outcome.stages]
        if values:
            parts[stage] = {"median_ms": quantile(values, 0.5), "p95_ms": quantile(values, 0.95), "n": len(values)}
    result = {
        "median_ms": round(quantile(times, 0.5), 1),
        "median_interval_ms": quantile_interval(times, 0.5),
        "p95_ms": round(quantile(times, 0.95), 1),
        "p95_interval_ms": quantile_interval(times, 0.95),
        "n": len(times),
        "people_median_ms": round(quantile(people, 0.5), 1) if people else None,
        "people_n": len(people),
        "people_recordings": len({outcome.item.person for outcome in outcomes if outcome.item.person}),
        "parts": parts,
        "long_replies": {
            "n": len(long),
            "median_ms": round(quantile(long, 0.5), 1) if long else None,
            "p95_ms": round(quantile(long, 0.95), 1) if long else None,
        },
        "halves": [],
        "turns": [
            [
                outcome.item.text,
                outcome.heard,
                outcome.reply,
                round(outcome.voice_to_voice_ms),
                outcome.half,
                outcome.stages,
            ]
            for outcome in outcomes
        ],
    }
    add_halves(result, outcomes)
    return result


def add_halves(result: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Add what these turns say of half answers to the figures of their set."""
    result["halves"] += [[outcome.half, outcome.duck_ms, outcome.stop_ms, _is_whole(outcome)] for outcome in outcomes]
    halves = result["halves"]
    half = [entry for entry in halves if entry[0]]
    ducks = [entry[1] for entry in half if entry[1] is not None]
    stops = [entry[2] for entry in half if entry[2] is not None]
    result["half_answers"] = {
        "pct": round(100 * len(half) / len(halves), 1),
        "interval_pct": share_interval(len(half), len(halves)),
        "n": len(halves),
        "duck_p95_ms": quantile(ducks, 0.95) if ducks else None,
        "stop_p95_ms": quantile(stops, 0.95) if stops else None,
        "sounding_when_the_voice_went_on": len(stops),
        "answered_whole": sum(entry[3] for entry in half),
        "half_answered": len(half),
    }


def _is_whole(outcome: Outcome) -> bool:
    """Return whether the model was given both halves as one turn: most of it, and half the words before the pause."""
    errors = spoken_errors(outcome.item.text, outcome.heard)
    head = words_of(outcome.item.head)
    beginning = words_of(outcome.heard)[: len(head) + 2]
    return 3 * errors.errors <= errors.words and 2 * sum(word in beginning for word in head) >= len(head)


def print_set(kind: Kind, figures: dict[str, Any]) -> None:
    """Print the figures of one set for people."""
    print(f"{'':<26}{'n':>5}{'median ms':>11}{'95 % interval':>17}{'p95 ms':>9}")
    _print_line(f"voice to voice, {kind}", figures)
    for stage, part in figures["parts"].items():
        print(f"  {stage:<24}{part['n']:>5}{part['median_ms']:>11.0f}{'':>17}{part['p95_ms']:>9.0f}")
    if figures["people_n"]:
        line = f"  {'in a person’s voice':<24}{figures['people_n']:>5}{figures['people_median_ms']:>11.0f}"
        print(f"{line}  from {figures['people_recordings']} recordings")
    if (long := figures["long_replies"])["n"]:
        line = f"  {'replies of 6 words or more':<24}{long['n']:>3}{long['median_ms']:>11.0f}"
        print(f"{line}{'':>17}{long['p95_ms']:>9.0f}")
    _print_halves(kind, figures["half_answers"])
    print(f"  CPU of server and engines over the calls: {figures['cpu_cores']:.2f} cores", flush=True)


def print_rest(result: dict[str, Any]) -> None:
    """Print what belongs to no set."""
    if "two_calls" in result:
        _print_line("two calls at once", result["two_calls"])
    if words := result.get("words"):
        print(
            f"words given to the model: {words['spoken']}, {words['wrong_pct']} % wrong ({words['one_shot_wrong_pct']} "
            f"% in one shot); resident {result['resident_mib']} MiB; ready after {result['ready_s']:.1f} s"
        )
    if result.get("loop_lag_p99_ms") is not None:
        print(f"lag of the media loop, p99 of the last minute: {result['loop_lag_p99_ms']:.1f} ms")
    for failure in result["failures"]:
        print(f"failed: {failure}")


def _print_line(name: str, figures: dict[str, Any]) -> None:
    low, high = figures["median_interval_ms"]
    interval = f"{low:.0f} … {high:.0f}"
    print(f"{name:<26}{figures['n']:>5}{figures['median_ms']:>11.0f}{interval:>17}{figures['p95_ms']:>9.0f}")


def _print_halves(kind: Kind, half: dict[str, Any]) -> None:
    if kind == "plain":
        return
    low, high = half["interval_pct"]
    print(f"  half answers: {half['pct']} % of {half['n']} ({low} … {high})")
    if half["half_answered"]:
        print(f"  of these answered whole in the end: {half['answered_whole']} of {half['half_answered']}")
    if half["sounding_when_the_voice_went_on"]:
        ends = f"silent after {half['duck_p95_ms']:.0f} ms, ended after {half['stop_p95_ms']:.0f} ms"
        print(f"  when the voice went on: {ends} (p95 of {half['sounding_when_the_voice_went_on']})")
