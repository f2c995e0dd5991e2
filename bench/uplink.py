"""The way up: words the server understands, how soon a lost packet is back, and how outputs follow a changing path."""

from __future__ import annotations

import asyncio
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import jiwer
import numpy as np
import soundfile
import soxr

from bench.caller import PLAIN, synthetic
from bench.intervals import quantile_interval
from bench.lines import Callee, Exchange, lines
from impair.relay_process import RelayProcess
from peer.engines.asr_whisper import WhisperAsr, create
from peer.engines.base import Samples
from peer.softphone_audio import FaintNoise
from transport.peer_connection import TransportConfig

RECORDINGS = {
    "jfk.flac": "And so my fellow Americans ask not what your country can do for you "
    "ask what you can do for your country"
}
PAUSE_S = 0.8
RATE_HZ, HEARD_HZ = 48_000, 16_000
AT_ONCE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A sentence, its sound at 48 kHz, and what a perfect ear would write."""

    text: str
    samples: Samples


def sentences(folder: Any) -> list[Said]:
    """Return the recordings beside the repository, where there are any, and Piper's sentences."""
    said = []
    for name, text in RECORDINGS.items():
        if (folder / name).exists():
            samples, rate = soundfile.read(folder / name, dtype="float32", always_2d=True)
            mono = soxr.resample(samples.mean(axis=1), rate, RATE_HZ)
            said.append(Said(text=text, samples=np.asarray(np.clip(mono, -1, 1) * 32767, np.int16)))
    said += [Said(text=each.name, samples=each.samples) for each in synthetic(PLAIN)]
    return said


def words_of(text: str) -> str:
    """Return `text` as words alone, lower case."""
    return re.sub(r"[^a-z' ]+", " ", text.lower()).strip()


@dataclass(slots=True, kw_only=True)
class Heard:
    """One sentence of one call, as the server wrote it down."""

    pattern: int
    errors: int
    words: int


async def hear(profile: str, said: Sequence[Said], *, patterns: int, seed: int, ear: WhisperAsr) -> list[Heard]:
    """Say a third of `said` in each of `patterns` calls through `profile`; return every sentence's errors."""
    parts = [list(said[index % 3 :: 3]) for index in range(patterns)]
    heard: list[Heard] = []
    async with Exchange() as exchange, RelayProcess(profile, seed=seed) as relay:
        for first in range(0, patterns, AT_ONCE):
            chosen = parts[first : first + AT_ONCE]
            async with lines(exchange, relay, len(chosen)) as pairs:
                await asyncio.sleep(1.0)
                for (line, _), part in zip(pairs, chosen, strict=True):
                    line.say(_spoken(part))
                longest_s = max(len(_spoken(part)) for part in chosen) / RATE_HZ
                await asyncio.sleep(longest_s + 1.5)
                sounds = [callee.heard for _, callee in pairs]
            for index, (part, sound) in enumerate(zip(chosen, sounds, strict=True)):
                heard += await asyncio.to_thread(_judge, ear, part, sound, first + index)
    return heard


def _spoken(part: Sequence[Said]) -> Samples:
    noise = FaintNoise(seed=3)
    pause = round(PAUSE_S * RATE_HZ)
    pieces = [piece for each in part for piece in (noise.take(pause), each.samples)]
    return np.concatenate([*pieces, noise.take(pause)])


def _judge(ear: WhisperAsr, part: Sequence[Said], sound: Samples, pattern: int) -> list[Heard]:
    """Cut `sound` where the sentences must lie, since the reader keeps the count of samples, and transcribe each."""
    spoken = _spoken(part)
    offset = _offset(sound, np.asarray(soxr.resample(spoken, RATE_HZ, HEARD_HZ), np.int16))
    heard = []
    at = offset
    margin = round(0.6 * PAUSE_S * HEARD_HZ)
    for each in part:
        at += round(PAUSE_S * HEARD_HZ)
        size = round(len(each.samples) * HEARD_HZ / RATE_HZ)
        piece = sound[max(0, at - margin) : at + size + margin]
        at += size
        reference, hypothesis = words_of(each.text), words_of(ear.transcribe_now(piece).text)
        measured = jiwer.process_words(reference, hypothesis) if hypothesis else None
        words = len(reference.split())
        errors = words if measured is None else measured.substitutions + measured.deletions + measured.insertions
        heard.append(Heard(pattern=pattern, errors=errors, words=words))
    return heard


def _offset(sound: Samples, spoken: Samples) -> int:
    size = 1 << (len(sound) + len(spoken)).bit_length()
    spectrum = np.fft.rfft(sound.astype(np.float64), size) * np.conj(np.fft.rfft(spoken.astype(np.float64), size))
    correlation = np.fft.irfft(spectrum, size)
    best = int(np.argmax(correlation))
    return best if best < size // 2 else best - size


def word_error_rate(heard: Sequence[Heard]) -> float:
    """Return errors per word, pooled."""
    return sum(each.errors for each in heard) / max(1, sum(each.words for each in heard))


def interval(heard: Sequence[Heard], *, draws: int = 1000) -> tuple[float, float]:
    """Return the 95 % interval of the pooled error rate, by drawing whole calls with replacement."""
    random = np.random.default_rng(1)
    patterns = sorted({each.pattern for each in heard})
    errors = np.array([sum(each.errors for each in heard if each.pattern == number) for number in patterns])
    words = np.array([sum(each.words for each in heard if each.pattern == number) for number in patterns])
    picked = random.integers(0, len(patterns), (draws, len(patterns)))
    rates = errors[picked].sum(axis=1) / words[picked].sum(axis=1)
    low, high = np.percentile(rates, (2.5, 97.5))
    return float(low), float(high)


def make_ear() -> WhisperAsr:
    """Return the default recogniser."""
    return create({"model": "tiny.en", "threads": 2}, lambda *_: None)


async def repair_times(profile: str, voice: Samples, *, calls: int, seed: int) -> dict[str, Any]:
    """Return, in ms, how long after the first later packet a repaired one came, and the channel's median round trip."""
    async with (
        Exchange() as exchange,
        RelayProcess(profile, seed=seed) as relay,
        lines(exchange, relay, calls) as pairs,
    ):
        for line, _ in pairs:
            line.say(voice)
        await asyncio.sleep(len(voice) / RATE_HZ)
        rtts = [callee.network.control.statistics().p50_ms or 0.0 for _, callee in pairs]
        times = [time_ms for _, callee in pairs for time_ms in _repairs(callee)]
    median = statistics.median(times) if times else None
    interval_ms = [round(edge, 1) for edge in quantile_interval(times, 0.5)] if times else None
    return {"rtt_ms": statistics.median(rtts), "repair_ms": median, "interval_ms": interval_ms, "n": len(times)}


def _repairs(callee: Callee) -> list[float]:
    """Return the time from each gap's first later packet to the missing one; within 5 ms it was only reordered."""
    times: list[float] = []
    highest: int | None = None
    shown: dict[int, float] = {}
    for arrival, number in callee.packets:
        if highest is None:
            highest = number
            continue
        step = (number - highest + 0x8000 & 0xFFFF) - 0x8000
        if step > 0:
            for missing in range(1, min(step, 100)):
                shown[highest + missing & 0xFFFF] = arrival
            highest = number
        elif (since := shown.pop(number, None)) is not None and arrival - since > 0.005:
            times.append(1000 * (arrival - since))
    return times


async def first_audio(profile: str, *, calls: int) -> dict[str, Any]:
    """Return medians, in ms from the request: the first media packet, and the open control channel."""
    media, channel = [], []
    async with Exchange() as exchange, RelayProcess(profile, seed=1) as relay:
        for _ in range(calls):
            async with lines(exchange, relay, 1) as pairs:
                media.append(1000 * pairs[0][0].media_after_s)
                channel.append(1000 * pairs[0][0].channel_after_s)
    return {
        "first_media_ms": statistics.median(media),
        "first_media_interval_ms": quantile_interval(media, 0.5),
        "channel_ms": statistics.median(channel),
        "channel_interval_ms": quantile_interval(channel, 0.5),
        "n": calls,
    }


async def policies(
    profile: str, names: Sequence[str], voice: Samples, *, calls: int, seconds: float
) -> dict[str, tuple[float, float]]:
    """Return, for each policy, mean delay in the buffer (ms) and concealed samples (%), of `calls` calls each."""
    configs = [TransportConfig(hosts=("127.0.0.1",), reader="playout", policy=name) for name in names]
    async with (
        Exchange(configs) as exchange,
        RelayProcess(profile, seed=7) as relay,
        lines(exchange, relay, calls * len(names)) as pairs,
    ):
        for line, _ in pairs:
            line.say(np.tile(voice, 1 + int((seconds + 10) * RATE_HZ / len(voice))))
        await exchange.play(5.0)
        before = {line.call_id: replace(callee.connection.reader.stats) for line, callee in pairs}
        await exchange.play(seconds)
        totals = {name: [0.0, 0, 0, 0] for name in names}
        for line, callee in pairs:
            began, stats = before[line.call_id], callee.connection.reader.stats
            entry = totals[callee.connection.config.policy]
            entry[0] += stats.jitter_buffer_delay - began.jitter_buffer_delay
            entry[1] += stats.jitter_buffer_emitted_count - began.jitter_buffer_emitted_count
            entry[2] += stats.concealed_samples - began.concealed_samples
            entry[3] += stats.total_samples_received - began.total_samples_received
    return {
        name: (1000 * delay / max(1, emitted), 100 * concealed / max(1, total))
        for name, (delay, emitted, concealed, total) in totals.items()
    }


@dataclass(slots=True, kw_only=True)
class Follow:
    """How outputs of several calls followed one step of the path, seconds after it; None: never."""

    name: str
    up_s: list[float | None]
    down_s: list[float | None]
    turns: int
    """The most that any output changed direction within one step."""
    stalls_s: float
    """The longest that media stopped."""


async def follow_steps(name: str, profiles: tuple[str, str], voice: Samples, *, calls: int, hold_s: float) -> Follow:
    """Step from the first profile to the second and back in `calls` calls at once, and watch what follows."""
    async with (
        Exchange() as exchange,
        RelayProcess(profiles[0], seed=2) as relay,
        lines(exchange, relay, calls) as pairs,
    ):
        repeats = 1 + int((3 * hold_s + 10) * RATE_HZ / len(voice))
        for line, callee in pairs:
            for connection in (line.connection, callee.connection):
                connection.playout.capture_frame(np.tile(voice, repeats))
        await asyncio.sleep(max(8.0, hold_s))
        watch = _rtt_watch if name == "rtt" else _loss_watch
        await relay.set_profile(profiles[1], seed=3)
        up = await asyncio.gather(*(watch(callee, up=True, limit_s=hold_s) for _, callee in pairs))
        await relay.set_profile(profiles[0], seed=4)
        down = await asyncio.gather(*(watch(callee, up=False, limit_s=hold_s) for _, callee in pairs))
        stalls = [_longest_stall(callee) for _, callee in pairs]
    return Follow(
        name=name,
        up_s=[each[0] for each in up],
        down_s=[each[0] for each in down],
        turns=max(each[1] for each in (*up, *down)),
        stalls_s=max(stalls),
    )


async def _rtt_watch(callee: Callee, *, up: bool, limit_s: float) -> tuple[float | None, int]:
    return await _watch(
        lambda: callee.network.rtt_ms or 0.0,
        (lambda value: value >= 180) if up else (lambda value: value <= 60),
        limit_s,
    )


async def _loss_watch(callee: Callee, *, up: bool, limit_s: float) -> tuple[float | None, int]:
    return await _watch(
        lambda: float(len(callee.network.sender.outputs.plan.red_offsets)),
        (lambda value: value >= 1) if up else (lambda value: value == 0),
        limit_s,
    )


async def _watch(read: Any, reached: Any, limit_s: float) -> tuple[float | None, int]:
    """Return when `reached(read())` first held, and how often the value turned back by a quarter of its range."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    at: float | None = None
    values: list[float] = []
    while loop.time() - began < limit_s:
        values.append(read())
        if at is None and reached(values[-1]):
            at = loop.time() - began
        await asyncio.sleep(0.05)
    return at, _turns(values)


def _turns(values: Sequence[float]) -> int:
    span = max(values) - min(values)
    extreme, direction, turns = values[0], 0, 0
    for value in values:
        if direction >= 0 and value < extreme - 0.25 * span:
            turns += direction > 0
            direction, extreme = -1, value
        elif direction <= 0 and value > extreme + 0.25 * span:
            turns += direction < 0
            direction, extreme = 1, value
        else:
            extreme = max(extreme, value) if direction > 0 else min(extreme, value) if direction < 0 else extreme
    return turns


def _longest_stall(callee: Callee) -> float:
    """Return the longest time between two packets, seconds."""
    arrivals = [arrival for arrival, _ in callee.packets]
    return max((after - before for before, after in pairwise(arrivals)), default=float("inf"))
