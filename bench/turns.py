"""Turn taking at the caller: partial transcripts, ends of turns, and what is said, mumbled or coughed over replies.

    python -m bench.turns [--quick] [--json] [-- SERVER OPTIONS]

A server of its own is called by the softphone over WebRTC on 127.0.0.1. The caller says sentences of the three sets in
bench/sets in synthetic voices, whose word times are the voice model's own (bench.spoken), and speaks over the replies.
Coughs and noises are shaped noise. Half answers and the time to an answer are measured by bench.voice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from bench.intervals import quantile, quantile_interval
from bench.items import KINDS, Item, make_items
from bench.observer import LEAD_MS, Observer, settle, to_line
from bench.server import measured_server
from bench.spoken import Speaker
from bench.turn_measures import (
    ducked_after,
    first_audible_after,
    heard_from_ms,
    last_audible_before_silence,
    resumed_after,
    word_lags_ms,
    words_heard,
    words_of,
)
from bench.turn_sounds import BACKCHANNELS, INTERRUPTIONS, make_cough
from peer.engines.base import LISTEN_RATE_HZ, Samples
from peer.softphone_call import CallOptions, SoftphoneCall, SoftphoneError

Over = Literal["interruption", "backchannel", "cough"]
OVERS: Final[tuple[Over, ...]] = ("interruption", "backchannel", "cough")
_TALKATIVE: Final = "You are a talkative guide on a phone call. Answer every question in several long sentences."
"""Replies of a few words end before anybody can speak over them."""
_REPLY_WITHIN_S: Final = 12.0
_DUCKED_LATE_S: Final = 0.3
"""A voice that falls silent so long after the sound over it has ended does so by itself."""
_OVER_AFTER_S: Final = 0.7
"""The reply has sounded for so long when the caller speaks over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """What is put over a reply (int16, 16 kHz)."""

    over: Over
    text: str
    samples: Samples
    onset_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CutReply:
    """A reply that was interrupted: what it was to say, what the history has of it, and what reached the caller."""

    reply_text: str
    heard_text: str
    received: Samples


@dataclass(slots=True)
class Results:
    """What was measured."""

    endpoint_error_ms: list[float] = field(default_factory=list)
    stable_lag_ms: list[float] = field(default_factory=list)
    unstable_lag_ms: list[float] = field(default_factory=list)
    final_lag_ms: list[float] = field(default_factory=list)
    duck_ms: dict[str, list[float]] = field(default_factory=dict)
    """By what was put over the reply."""
    stop_ms: list[float] = field(default_factory=list)
    resume_ms: list[float] = field(default_factory=list)
    right: dict[str, list[bool]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """What was taken for something else."""
    cut: list[CutReply] = field(default_factory=list)
    turns: int = 0
    failures: list[str] = field(default_factory=list)


async def take_turn(call: SoftphoneCall, observer: Observer, item: Item, sound: Sound, results: Results) -> bool:
    """Say one item, speak over its reply, and note what came of both; False where the reply was not spoken over."""
    loop = asyncio.get_running_loop()
    observer.forget()
    began_at = await call.send(to_line(item.samples))
    await asyncio.sleep((len(item.samples) * 1000 / LISTEN_RATE_HZ + LEAD_MS) / 1000)
    end_at = call.left_at(item.end_ms + LEAD_MS)
    deadline = loop.time() + _REPLY_WITHIN_S
    while (reply_at := first_audible_after(observer.levels, end_at)) is None or loop.time() < reply_at + _OVER_AFTER_S:
        if loop.time() > deadline:
            results.failures.append(f"no reply: {item.text}")
            return False
        await asyncio.sleep(0.02)
    results.turns += 1
    if observer.stops and observer.zero_at is not None:
        results.endpoint_error_ms.append((observer.zero_at - end_at) * 1000 + observer.stops[-1].audio_end_ms)
    for lags, stable in ((results.stable_lag_ms, True), (results.unstable_lag_ms, False)):
        lags.extend(word_lags_ms(item.words, observer.shown, began_at=began_at + LEAD_MS / 1000, stable=stable))
    return await speak_over(call, observer, sound, results)


async def speak_over(call: SoftphoneCall, observer: Observer, sound: Sound, results: Results) -> bool:
    """Put a sound over the reply that is being heard, and note whether it was taken right; False: it ended too soon."""
    loop = asyncio.get_running_loop()
    if observer.done:
        await settle(call, observer)
        return False
    onset_at = await call.send(to_line(sound.samples)) + (sound.onset_ms + LEAD_MS) / 1000
    await asyncio.sleep(max(0.0, onset_at + 1.2 - loop.time()))
    if observer.done and observer.done[0][0] < onset_at and observer.done[0][1].status == "completed":
        await settle(call, observer)
        return False
    # Later the voice is silent between its own sentences.
    within_s = len(sound.samples) / LISTEN_RATE_HZ - sound.onset_ms / 1000 + _DUCKED_LATE_S
    ducked_at = ducked_after(observer.levels, onset_at, within_s=within_s)
    if ducked_at is not None:
        results.duck_ms.setdefault(sound.over, []).append((ducked_at - onset_at) * 1000)
    if sound.over == "interruption":
        results.stop_ms.append((last_audible_before_silence(observer.levels, onset_at) - onset_at) * 1000)
    await settle(call, observer)
    if observer.done:
        ended_at, done = observer.done[0]
        interrupted = done.status == "interrupted"
        if interrupted:
            results.cut.append(
                CutReply(
                    reply_text=done.reply_text,
                    heard_text=done.heard_text,
                    received=observer.received_until(ended_at),
                )
            )
        elif ducked_at is not None and (resumed_at := resumed_after(observer.levels, ducked_at)) is not None:
            results.resume_ms.append((resumed_at - onset_at) * 1000)
        right = interrupted == (sound.over == "interruption")
        results.right.setdefault(sound.over, []).append(right)
        if not right:
            heard = [transcript.text for transcript in observer.transcripts[1:]]
            results.wrong.append(f"{sound.text} {heard}: {done.status}")
        if (final := done.latency_ms.get("final")) is not None:
            results.final_lag_ms.append(final)
    return True


def make_sounds(speaker: Speaker, count: int) -> list[Sound]:
    """Return what is put over replies, the three kinds by turns."""
    rng = np.random.default_rng(17)
    sounds: list[Sound] = []
    for number in range(count):
        over = OVERS[number % len(OVERS)]
        if over == "cough":
            sounds.append(Sound(over=over, text="cough", samples=make_cough(rng), onset_ms=0.0))
            continue
        texts = INTERRUPTIONS if over == "interruption" else BACKCHANNELS
        text = texts[number // len(OVERS) % len(texts)]
        voiced = speaker.say(text, speed=float(rng.uniform(0.95, 1.1)))
        assert voiced is not None
        onset_ms = heard_from_ms(voiced.samples, voiced.words[0].start_ms)
        sounds.append(Sound(over=over, text=text, samples=voiced.samples, onset_ms=onset_ms))
    return sounds


async def measure(*, quick: bool, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the benchmark's result."""
    each, sound_count = (3, 9) if quick else (32, 63)
    speaker = Speaker()
    sets = [make_items(speaker, kind, each, people=False) for kind in KINDS]
    items = [items[number] for number in range(each) for items in sets]
    sounds = make_sounds(speaker, sound_count)
    results = Results()
    used = 0
    async with measured_server("--reply-tokens", "30", "--system-prompt", _TALKATIVE, *arguments) as server:
        for at in range(0, len(items), 11):
            try:
                async with SoftphoneCall(CallOptions(url=server.url)) as call:
                    observer = Observer(call)
                    for item in items[at : at + 11]:
                        if used == len(sounds):
                            break
                        used += await take_turn(call, observer, item, sounds[used], results)
            except SoftphoneError as error:
                results.failures.append(str(error))
    return summarise(results)


def summarise(results: Results) -> dict[str, Any]:
    """Return the figures."""
    errors = [abs(error) for error in results.endpoint_error_ms]
    right = {over: _share(verdicts) for over, verdicts in results.right.items()}
    voiced = [lag for over, lags in results.duck_ms.items() if over != "cough" for lag in lags]
    return {
        "partial_lag_ms": _median(results.stable_lag_ms),
        "partial_lag_interval_ms": _interval(results.stable_lag_ms),
        "partial_words": len(results.stable_lag_ms),
        "unstable_lag_ms": _median(results.unstable_lag_ms),
        "final_lag_ms": _median(results.final_lag_ms),
        "endpoint_error_ms": _median(errors),
        "endpoint_error_interval_ms": _interval(errors),
        "duck_p95_ms": quantile(voiced, 0.95) if voiced else None,
        "ducks": len(voiced),
        "duck_ms": {over: [round(lag) for lag in lags] for over, lags in results.duck_ms.items()},
        "stop_p95_ms": quantile(results.stop_ms, 0.95) if results.stop_ms else None,
        "stops": len(results.stop_ms),
        "resume_p95_ms": quantile(results.resume_ms, 0.95) if results.resume_ms else None,
        "resumes": len(results.resume_ms),
        "barge_in_right_pct": min(right.values()) if right else None,
        "barge_in": {over: {"right_pct": share, "n": len(results.right[over])} for over, share in right.items()},
        "taken_wrong": results.wrong,
        "history": compare_history(results.cut),
        "turns": results.turns,
        "failures": results.failures,
        "sounds": "synthetic: voice, coughs and noises alike",
    }


def compare_history(cut: Sequence[CutReply]) -> dict[str, Any]:
    """Return how many words the history has too many (below 0: too few) beside a transcript of what was received."""
    from peer.engines.asr_whisper import create

    engine = create({}, lambda *_: None)
    differences = []
    for reply in cut:
        fewest, most = words_heard(reply.reply_text, engine.transcribe_now(reply.received).text)
        count = len(words_of(reply.heard_text))
        differences.append(count - min(max(count, fewest), most))
    return {
        "n": len(differences),
        "within_a_word_pct": _share([abs(difference) <= 1 for difference in differences]) if differences else None,
        "differences": differences,
    }


def _share(verdicts: Sequence[bool]) -> float:
    return round(100 * sum(verdicts) / len(verdicts), 1)


def _median(values: Sequence[float]) -> float | None:
    return round(quantile(values, 0.5), 1) if values else None


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    return quantile_interval(values, 0.5) if values else None


def print_table(result: dict[str, Any]) -> None:
    """Print the result for people."""

    def show(name: str, value: float | None, unit: str, count: int) -> None:
        print(f"{name:<34}{'-' if value is None else f'{value:.0f}':>7} {unit:<3}{count:>6}")

    print(f"{'':<34}{'':>7} {'':<3}{'n':>6}")
    show("word to stable text, median", result["partial_lag_ms"], "ms", result["partial_words"])
    show("word to any text, median", result["unstable_lag_ms"], "ms", result["partial_words"])
    show("endpoint to final text, median", result["final_lag_ms"], "ms", result["turns"])
    show("endpoint error, median absolute", result["endpoint_error_ms"], "ms", result["turns"])
    show("onset of a voice to duck, p95", result["duck_p95_ms"], "ms", result["ducks"])
    show("onset to last packet, p95", result["stop_p95_ms"], "ms", result["stops"])
    show("onset to voice again, p95", result["resume_p95_ms"], "ms", result["resumes"])
    for over, share in result["barge_in"].items():
        show(f"{over} taken right", share["right_pct"], "%", share["n"])
    show("history = heard +- a word", result["history"]["within_a_word_pct"], "%", result["history"]["n"])
    for wrong in result["taken_wrong"]:
        print(f"taken wrong: {wrong}")
    for failure in result["failures"]:
        print(f"failed: {failure}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and with --json one object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m bench.turns", description="Turn taking, at the caller.")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("server", nargs="*", help="options of the server, after --")
    options = parser.parse_args(arguments)
    result = asyncio.run(measure(quick=options.quick, arguments=options.server))
    print_table(result)
    if options.json:
        print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
