"""Voice to voice, at the caller: from the end of what is said to the first sound of the answer, in three sets of turns.

    python -m bench.voice [--quick] [--set plain] [--json] [-- SERVER OPTIONS]

A server of its own is called by the softphone over WebRTC on 127.0.0.1. *Plain* turns have no pause; *open* ones
pause for 0.3 to 0.8 s where the words so far cannot end a sentence, *closed* ones where they could. A half answer is
more than 200 ms of reply heard between the pause and the next word. Each turn waits for the answer to end; the
further turns that only count half answers have a call each, which is hung up once the answer sounds. Parts are the
server's own stages; a stage of an answer that was begun in the pause overlaps the endpointing, so parts do not add
up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from bench.intervals import quantile, quantile_interval, share_interval
from bench.items import KINDS, Item, Kind, make_items
from bench.observer import LEAD_MS, Observer, settle, to_line
from bench.quality_judge import spoken_errors
from bench.server import MeasuredServer, measured_server
from bench.spoken import Speaker
from bench.turn_measures import (
    audible_ms,
    ducked_after,
    first_audible_after,
    last_audible_between,
    words_of,
)
from impair.measures import WordErrors
from peer.engines.base import LISTEN_RATE_HZ
from peer.softphone_call import CallOptions, SoftphoneCall, SoftphoneError

_STAGES: Final = ("begun", "endpointing", "asr", "llm_first_token", "first_sentence", "tts", "send", "total")
_TURNS_A_CALL: Final = 14
_REPLY_WITHIN_S: Final = 12.0
_HALF_MS: Final = 200.0
_REPLY_TOKENS: Final = "24"
_LEAST_WORDS: Final = 6


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of one turn; times in milliseconds."""

    item: Item
    voice_to_voice_ms: float
    half: bool = False
    duck_ms: float | None = None
    """From the next word to the silence of a half answer."""
    stop_ms: float | None = None
    heard: str = ""
    """What the language model was given."""
    reply: str = ""
    stages: dict[str, float] = field(default_factory=dict)


async def take_turn(call: SoftphoneCall, observer: Observer, item: Item, *, to_its_end: bool) -> Outcome:
    """Say one item and return what came of it; raises SoftphoneError where no answer comes."""
    loop = asyncio.get_running_loop()
    observer.forget()
    await call.send(to_line(item.samples))
    await asyncio.sleep((len(item.samples) * 1000 / LISTEN_RATE_HZ + LEAD_MS) / 1000)
    end_at = call.left_at(item.end_ms + LEAD_MS)
    deadline = loop.time() + _REPLY_WITHIN_S
    while (reply_at := first_audible_after(observer.levels, end_at)) is None:
        if loop.time() > deadline:
            raise SoftphoneError(5, f"no answer to {item.text!r}")
        await asyncio.sleep(0.02)
    outcome = Outcome(item=item, voice_to_voice_ms=(reply_at - end_at) * 1000)
    if item.cut_ms is not None and item.next_ms is not None:
        cut_at, next_at = call.left_at(item.cut_ms + LEAD_MS), call.left_at(item.next_ms + LEAD_MS)
        note_half_answer(outcome, observer, cut_at=cut_at, next_at=next_at, end_at=end_at)
    if to_its_end:
        await settle(call, observer)
    said = [transcript for transcript in observer.transcripts if transcript.text]
    outcome.heard = said[-1].text if said else ""
    if observer.done:
        outcome.reply, outcome.stages = observer.done[-1][1].reply_text, dict(observer.done[-1][1].latency_ms)
    return outcome


def note_half_answer(outcome: Outcome, observer: Observer, *, cut_at: float, next_at: float, end_at: float) -> None:
    """Note how much of an answer was heard in the pause, and how fast it fell silent when the voice went on."""
    outcome.half = audible_ms(observer.levels, cut_at, next_at) > _HALF_MS
    if outcome.half and audible_ms(observer.levels, next_at - 0.1, next_at) > 0:
        ducked_at = ducked_after(observer.levels, next_at)
        outcome.duck_ms = None if ducked_at is None else (ducked_at - next_at) * 1000
        outcome.stop_ms = (last_audible_between(observer.levels, next_at, end_at) - next_at) * 1000


async def hold_calls(url: str, items: Sequence[Item], failures: list[str]) -> list[Outcome]:
    """Say the items in calls of some turns each, every answer to its end."""
    outcomes: list[Outcome] = []
    for at in range(0, len(items), _TURNS_A_CALL):
        try:
            async with SoftphoneCall(CallOptions(url=url)) as call:
                observer = Observer(call)
                for item in items[at : at + _TURNS_A_CALL]:
                    outcome = await take_turn(call, observer, item, to_its_end=True)
                    outcomes.append(outcome)
        except SoftphoneError as error:
            failures.append(str(error))
    return outcomes


async def hold_short_calls(url: str, items: Sequence[Item], failures: list[str]) -> list[Outcome]:
    """Say each item in a call of its own, hung up once the answer sounds."""
    outcomes: list[Outcome] = []
    for item in items:
        try:
            async with SoftphoneCall(CallOptions(url=url)) as call:
                outcomes.append(await take_turn(call, Observer(call), item, to_its_end=False))
        except SoftphoneError as error:
            failures.append(str(error))
    return outcomes


async def measure(*, quick: bool, kinds: Sequence[Kind], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the benchmark's result."""
    count, further = (6, 0) if quick else (42, 108)
    speaker = Speaker()
    items = {kind: make_items(speaker, kind, count) for kind in kinds}
    result: dict[str, Any] = {"sets": {}, "failures": []}
    failures: list[str] = result["failures"]
    understood: list[tuple[Item, str]] = []
    loop = asyncio.get_running_loop()
    async with measured_server("--reply-tokens", _REPLY_TOKENS, *arguments) as server:
        await hold_short_calls(server.url, make_items(speaker, "plain", 1, people=False), failures)
        cpu_before, began_at = server.cpu_seconds(), loop.time()
        for kind in kinds:
            outcomes = await hold_calls(server.url, items[kind], failures)
            understood += [(outcome.item, outcome.heard) for outcome in outcomes]
            result["sets"][kind] = summarise(outcomes)
            result["sets"][kind]["failed"] = len(items[kind]) - len(outcomes)
        result["cpu_cores"] = round((server.cpu_seconds() - cpu_before) / (loop.time() - began_at), 3)
        for kind in kinds:
            if further and kind != "plain":
                more = await hold_short_calls(server.url, make_items(speaker, kind, further, seed=12), failures)
                add_halves(result["sets"][kind], more)
        await measure_two(server, speaker, 4 if quick else 14, result)
        result["resident_mib"] = round(server.resident_bytes() / 2**20)
        result["ready_s"] = round(server.ready_s, 1)
        result["loop_lag_p99_ms"] = await loop_lag_p99_ms(server.url)
    result["words"] = compare_words(understood)
    first = result["sets"][kinds[0]]
    return {"median_ms": first["median_ms"], "p95_ms": first["p95_ms"], "turns": first["n"], **result}


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


async def measure_two(server: MeasuredServer, speaker: Speaker, count: int, result: dict[str, Any]) -> None:
    """Measure two calls at once."""
    failures: list[str] = result["failures"]
    both = await asyncio.gather(
        *(hold_calls(server.url, make_items(speaker, "plain", count, seed=seed), failures) for seed in (21, 22))
    )
    times = [outcome.voice_to_voice_ms for outcomes in both for outcome in outcomes]
    result["two_calls"] = {
        "median_ms": quantile(times, 0.5),
        "median_interval_ms": quantile_interval(times, 0.5),
        "p95_ms": quantile(times, 0.95),
        "n": len(times),
    }


async def loop_lag_p99_ms(url: str) -> float | None:
    """Return what the server says of its media loop's lag over the last minute."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/healthz") as response:
        lag: float | None = (await response.json())["loop_lag_p99_ms"]
        return lag


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the figures of one set."""
    times = [outcome.voice_to_voice_ms for outcome in outcomes]
    people = [outcome.voice_to_voice_ms for outcome in outcomes if outcome.item.person]
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
        "replies_of_six_words": sum(len(outcome.reply.split()) >= _LEAST_WORDS for outcome in outcomes),
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
    """Return whether the model was given both halves as one turn, a fifth of the words misheard or not."""
    errors = spoken_errors(outcome.item.text, outcome.heard)
    return 3 * errors.errors <= errors.words and len(words_of(outcome.heard)) > errors.words // 2


def print_table(result: dict[str, Any]) -> None:
    """Print the result for people."""
    print(f"{'':<26}{'n':>5}{'median ms':>11}{'95 % interval':>17}{'p95 ms':>9}")
    for kind, figures in result["sets"].items():
        _print_line(f"voice to voice, {kind}", figures)
        for stage, part in figures["parts"].items():
            print(f"  {stage:<24}{part['n']:>5}{part['median_ms']:>11.0f}{'':>17}{part['p95_ms']:>9.0f}")
        if figures["people_n"]:
            line = f"  {'in a person’s voice':<24}{figures['people_n']:>5}{figures['people_median_ms']:>11.0f}"
            print(f"{line}  from {figures['people_recordings']} recordings")
        print(f"  replies of six words and more: {figures['replies_of_six_words']} of {figures['n']}")
        _print_halves(kind, figures["half_answers"])
    _print_line("two calls at once", result["two_calls"])
    words = result["words"]
    print(
        f"words given to the model: {words['spoken']}, {words['wrong_pct']} % wrong "
        f"({words['one_shot_wrong_pct']} % in one shot); CPU of server and engines over the calls: "
        f"{result['cpu_cores']:.2f} cores; "
        f"resident {result['resident_mib']} MiB; ready after {result['ready_s']:.1f} s"
    )
    if result["loop_lag_p99_ms"] is not None:
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and with --json one object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m bench.voice", description="Voice to voice, at the caller.")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--set", action="append", choices=KINDS, help="only this set; may be given more than once")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("server", nargs="*", help="options of the server, after --")
    options = parser.parse_args(arguments)
    result = asyncio.run(measure(quick=options.quick, kinds=options.set or KINDS, arguments=options.server))
    print_table(result)
    if options.json:
        print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
