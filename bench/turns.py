"""Turn taking at the caller: partial transcripts, ends of turns, half answers, and interruptions.

    python -m bench.turns [--quick] [--json] [-- SERVER OPTIONS]

A server of its own is called by the softphone over WebRTC on 127.0.0.1. The caller says the sentences of the three sets
in bench/sets, with pauses of 0.3 to 0.8 s at their marks, and speaks, mumbles or coughs over the replies. Sentences are
synthetic, with word times from the voice model itself (bench.spoken); so are coughs and noises, which are shaped noise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import soxr

from bench.intervals import quantile, quantile_interval
from bench.server import measured_server
from bench.spoken import Speaker, Spoken
from bench.turn_measures import (
    Level,
    Shown,
    audible_ms,
    ducked_after,
    first_audible_after,
    last_audible_before_silence,
    level_db,
    word_lags_ms,
)
from bench.turn_sounds import BACKCHANNELS, INTERRUPTIONS, make_cough, read_set
from jitter.frame import AudioFrame
from peer.engines.base import LISTEN_RATE_HZ, Samples
from peer.softphone_audio import SEND_RATE_HZ
from peer.softphone_call import CallOptions, SoftphoneCall, SoftphoneError
from transport.messages import CallMessage, CallState, ReplyDone, SpeechStopped, UserTranscript, UserTranscriptDelta

Kind = Literal["plain", "open", "closed"]
Over = Literal["interruption", "backchannel", "cough"]
_MS: Final = SEND_RATE_HZ // 1000
_LEAD_MS: Final = 200
_REPLY_WITHIN_S: Final = 12.0
_OVER_AFTER_S: Final = 0.7
"""The reply has sounded for so long when the caller speaks over it."""


@dataclass(slots=True, kw_only=True)
class Item:
    """One thing to say, and what to put over its reply."""

    kind: Kind
    text: str
    spoken: Spoken
    cut_ms: float | None
    """Where the voice pauses."""
    next_ms: float | None
    """Where it goes on."""
    over: Over
    over_samples: Samples
    over_onset_ms: float


@dataclass(slots=True)
class Results:
    """What was measured, per kind where kinds differ."""

    endpoint_error_ms: list[float] = field(default_factory=list)
    stable_lag_ms: list[float] = field(default_factory=list)
    unstable_lag_ms: list[float] = field(default_factory=list)
    final_lag_ms: list[float] = field(default_factory=list)
    voice_to_voice_ms: dict[str, list[float]] = field(default_factory=dict)
    half: dict[str, list[bool]] = field(default_factory=dict)
    duck_ms: list[float] = field(default_factory=list)
    stop_ms: list[float] = field(default_factory=list)
    right: dict[str, list[bool]] = field(default_factory=dict)
    turns: int = 0
    failures: list[str] = field(default_factory=list)


class Observer:
    """Everything that reaches the caller, with its time."""

    def __init__(self, call: SoftphoneCall) -> None:
        self.levels: list[Level] = []
        self.shown: list[Shown] = []
        self.done: list[tuple[float, ReplyDone]] = []
        self.stops: list[SpeechStopped] = []
        self.zero_at: float | None = None
        """When the server's `_ms` began, by the fastest message about it."""
        self._loop: Final = asyncio.get_running_loop()
        self._before: Final = call.connection.on_audio
        call.on_message = self._handle_message
        call.connection.on_audio = self._handle_audio

    def forget(self) -> None:
        """Begin a new turn."""
        for items in (self.levels, self.shown, self.done, self.stops):
            items.clear()

    def _handle_audio(self, frames: list[AudioFrame], now: float) -> None:
        if self._before is not None:
            self._before(frames, now)
        for frame in frames:
            at = now if frame.arrival is None else frame.arrival
            self.levels.append(Level(at=at, db=level_db(frame.samples)))

    def _handle_message(self, message: CallMessage) -> None:
        now = self._loop.time()
        if isinstance(message, CallState):
            zero_at = now - message.at_ms / 1000
            self.zero_at = zero_at if self.zero_at is None else min(self.zero_at, zero_at)
        elif isinstance(message, UserTranscriptDelta):
            self.shown.append(Shown(at=now, text=message.text, stable_chars=message.stable_chars))
        elif isinstance(message, UserTranscript):
            self.shown.append(Shown(at=now, text=message.text, stable_chars=len(message.text)))
        elif isinstance(message, ReplyDone):
            self.done.append((now, message))
        elif isinstance(message, SpeechStopped):
            self.stops.append(message)


async def take_turn(call: SoftphoneCall, observer: Observer, item: Item, results: Results) -> None:
    """Say one item, speak over its reply, and note what came of both."""
    loop = asyncio.get_running_loop()
    observer.forget()
    began_at = await call.send(_to_line(item.spoken.samples))
    length_s = len(item.spoken.samples) / LISTEN_RATE_HZ + _LEAD_MS / 1000
    await asyncio.sleep(length_s)
    end_ms = item.spoken.words[-1].end_ms + _LEAD_MS
    end_at = call.left_at(end_ms)
    cut_at = None if item.cut_ms is None else call.left_at(item.cut_ms + _LEAD_MS)
    next_at = None if item.next_ms is None else call.left_at(item.next_ms + _LEAD_MS)
    deadline = loop.time() + _REPLY_WITHIN_S
    while (reply_at := first_audible_after(observer.levels, end_at)) is None or loop.time() < reply_at + _OVER_AFTER_S:
        if loop.time() > deadline:
            results.failures.append(f"no reply: {item.text}")
            return
        await asyncio.sleep(0.02)
    results.turns += 1
    note_turn(item, observer, results, began_at + _LEAD_MS / 1000, (end_at, cut_at, next_at, reply_at))
    await speak_over(call, observer, item, results)


def note_turn(
    item: Item,
    observer: Observer,
    results: Results,
    began_at: float,
    times: tuple[float, float | None, float | None, float],
) -> None:
    """Note what is known of a turn once its reply sounds."""
    end_at, cut_at, next_at, reply_at = times
    results.voice_to_voice_ms.setdefault(item.kind, []).append((reply_at - end_at) * 1000)
    if cut_at is not None and next_at is not None:
        half = audible_ms(observer.levels, cut_at, next_at) > 200.0
        results.half.setdefault(item.kind, []).append(half)
    if observer.stops and observer.zero_at is not None:
        results.endpoint_error_ms.append((observer.zero_at - end_at) * 1000 + observer.stops[-1].audio_end_ms)
    for lags, stable in ((results.stable_lag_ms, True), (results.unstable_lag_ms, False)):
        lags.extend(word_lags_ms(item.spoken.words, observer.shown, began_at=began_at, stable=stable))


async def speak_over(call: SoftphoneCall, observer: Observer, item: Item, results: Results) -> None:
    """Put a sound over the reply that is being heard, and note whether it was taken right."""
    loop = asyncio.get_running_loop()
    if observer.done:
        await _settle(call, observer)
        return  # the reply was too short to be spoken over
    onset_at = await call.send(_to_line(item.over_samples)) + (item.over_onset_ms + _LEAD_MS) / 1000
    await asyncio.sleep(max(0.0, onset_at + 1.2 - loop.time()))
    ducked_at = ducked_after(observer.levels, onset_at)
    if ducked_at is not None:
        results.duck_ms.append((ducked_at - onset_at) * 1000)
    if item.over == "interruption":
        results.stop_ms.append((last_audible_before_silence(observer.levels, onset_at) - onset_at) * 1000)
    await _settle(call, observer)
    if observer.done:
        interrupted = observer.done[0][1].status == "interrupted"
        results.right.setdefault(item.over, []).append(interrupted == (item.over == "interruption"))
        final = observer.done[0][1].latency_ms.get("final")
        if final is not None:
            results.final_lag_ms.append(final)


async def _settle(call: SoftphoneCall, observer: Observer) -> None:
    """Wait until the server has been listening in silence for a while."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 60.0
    quiet_since = loop.time()
    while loop.time() - quiet_since < 1.0:
        sounding = bool(observer.levels) and max(level.db for level in observer.levels[-10:]) > -55.0
        if not call.log.settled or sounding:
            quiet_since = loop.time()
        if loop.time() > deadline:
            raise SoftphoneError(5, f"the server does not settle; it is {call.log.state}")
        await asyncio.sleep(0.05)


def _to_line(samples: Samples) -> Samples:
    lead = np.zeros(_LEAD_MS * _MS, np.int16)
    line = np.clip(soxr.resample(samples.astype(np.float32), LISTEN_RATE_HZ, SEND_RATE_HZ), -32768, 32767)
    noise = np.random.default_rng(5).normal(0, 6, len(lead) + len(line))
    return np.asarray(np.clip(np.concatenate([lead, line]) + noise, -32768, 32767), np.int16)


def make_items(speaker: Speaker, *, counts: dict[Kind, int]) -> list[Item]:
    """Return what to say, the kinds mixed, with pauses and voices from a seed."""
    rng = np.random.default_rng(11)
    overs: tuple[Over, ...] = ("interruption", "backchannel", "cough")
    items: list[Item] = []
    for kind, count in counts.items():
        lines = read_set(kind)
        number = 0
        while number < count and lines:
            line = lines[number % len(lines)]
            over = overs[len(items) % 3]
            item = _make_item(speaker, kind, line, over, rng)
            if item is None:
                lines.remove(line)
                continue
            items.append(item)
            number += 1
    order = rng.permutation(len(items))
    return [items[index] for index in order]


def _make_item(speaker: Speaker, kind: Kind, line: str, over: Over, rng: np.random.Generator) -> Item | None:
    speed = float(rng.uniform(0.92, 1.12))
    cut_ms = next_ms = None
    if kind == "plain":
        spoken = speaker.say(line, speed=speed)
    else:
        paused = speaker.say_with_pause(line, pause_ms=float(rng.uniform(300, 800)), speed=speed)
        spoken, cut_ms = paused if paused is not None else (None, None)
        if spoken is not None and cut_ms is not None:
            next_ms = next(word.start_ms for word in spoken.words if word.start_ms > cut_ms)
    if spoken is None:
        return None
    if over == "cough":
        over_samples, onset_ms = make_cough(rng), 0.0
    else:
        texts = INTERRUPTIONS if over == "interruption" else BACKCHANNELS
        voiced = speaker.say(texts[int(rng.integers(len(texts)))])
        if voiced is None:
            return None
        over_samples, onset_ms = voiced.samples, voiced.words[0].start_ms
    return Item(
        kind=kind,
        text=line,
        spoken=spoken,
        cut_ms=cut_ms,
        next_ms=next_ms,
        over=over,
        over_samples=over_samples,
        over_onset_ms=onset_ms,
    )


async def measure(*, quick: bool, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the benchmark's result."""
    counts: dict[Kind, int] = (
        {"plain": 3, "open": 4, "closed": 2} if quick else {"plain": 42, "open": 150, "closed": 150}
    )
    items = make_items(Speaker(), counts=counts)
    results = Results()
    async with measured_server("--reply-tokens", "40", *arguments) as server:
        for at in range(0, len(items), 10):
            try:
                async with SoftphoneCall(CallOptions(url=server.url)) as call:
                    observer = Observer(call)
                    for item in items[at : at + 10]:
                        await take_turn(call, observer, item, results)
            except SoftphoneError as error:
                results.failures.append(str(error))
    return summarise(results)


def summarise(results: Results) -> dict[str, Any]:
    """Return the figures."""
    errors = [abs(error) for error in results.endpoint_error_ms]
    right = {over: _share(verdicts) for over, verdicts in results.right.items()}
    half = {kind: _share(halves) for kind, halves in results.half.items()}
    return {
        "partial_lag_ms": _median(results.stable_lag_ms),
        "partial_lag_interval_ms": _interval(results.stable_lag_ms),
        "partial_words": len(results.stable_lag_ms),
        "unstable_lag_ms": _median(results.unstable_lag_ms),
        "final_lag_ms": _median(results.final_lag_ms),
        "endpoint_error_ms": _median(errors),
        "endpoint_error_interval_ms": _interval(errors),
        "duck_p95_ms": quantile(results.duck_ms, 0.95) if results.duck_ms else None,
        "ducks": len(results.duck_ms),
        "stop_p95_ms": quantile(results.stop_ms, 0.95) if results.stop_ms else None,
        "stops": len(results.stop_ms),
        "barge_in_right_pct": min(right.values()) if right else None,
        "barge_in": {over: {"right_pct": share, "n": len(results.right[over])} for over, share in right.items()},
        "half_answers_pct": half.get("open"),
        "half_answers": {kind: {"pct": share, "n": len(results.half[kind])} for kind, share in half.items()},
        "voice_to_voice": {
            kind: {
                "median_ms": quantile(times, 0.5),
                "median_interval_ms": quantile_interval(times, 0.5),
                "p95_ms": quantile(times, 0.95),
                "n": len(times),
            }
            for kind, times in results.voice_to_voice_ms.items()
        },
        "turns": results.turns,
        "failures": results.failures,
        "sounds": "synthetic: voice, coughs and noises alike",
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
    for kind, times in result["voice_to_voice"].items():
        show(f"voice to voice, {kind}, median", times["median_ms"], "ms", times["n"])
        show(f"voice to voice, {kind}, p95", times["p95_ms"], "ms", times["n"])
    for kind, share in result["half_answers"].items():
        show(f"half answers, {kind}", share["pct"], "%", share["n"])
    show("word to stable text, median", result["partial_lag_ms"], "ms", result["partial_words"])
    show("word to any text, median", result["unstable_lag_ms"], "ms", result["partial_words"])
    show("endpoint to final text, median", result["final_lag_ms"], "ms", result["turns"])
    show("endpoint error, median absolute", result["endpoint_error_ms"], "ms", result["turns"])
    show("onset to duck, p95", result["duck_p95_ms"], "ms", result["ducks"])
    show("onset to last packet, p95", result["stop_p95_ms"], "ms", result["stops"])
    for over, share in result["barge_in"].items():
        show(f"{over} taken right", share["right_pct"], "%", share["n"])
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
