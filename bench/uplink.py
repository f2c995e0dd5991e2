"""The way up: words the server understands, how soon a lost packet is back, how soon a call is there."""

from __future__ import annotations

import asyncio
import re
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import soundfile
import soxr
from playwright.async_api import Browser

from bench.caller import PLAIN, synthetic
from bench.intervals import quantile_interval
from bench.lines import Callee, Exchange, lines
from bench.plain_ears import PlainExchange, plain_lines, turns
from impair.ice_proxy import IceProxy
from impair.relay_process import RelayProcess
from peer.engines.asr_whisper import WhisperAsr, create
from peer.engines.base import Samples
from peer.softphone_audio import FaintNoise
from tests.browser.chromium import launch, microphone_flags
from tests.browser.page_ears import microphone_from_file
from transport.peer_connection import TransportConfig

RECORDINGS = {
    "jfk.flac": "And so my fellow Americans ask not what your country can do for you "
    "ask what you can do for your country"
}
PAUSE_S = 0.8
RATE_HZ, HEARD_HZ = 48_000, 16_000
AT_ONCE = 4
LEAD_IN_SAMPLES = 3 * RATE_HZ
"""What a browser sends until it is connected is not heard."""


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


@dataclass(slots=True, kw_only=True)
class BothHeard:
    """The same calls, heard by us and by a plain aiortc receiver."""

    ours: list[Heard]
    plain: list[Heard]


async def hear(profile: str, said: Sequence[Said], *, patterns: int, seed: int, ear: WhisperAsr) -> BothHeard:
    """Say a third of `said` in each of `patterns` calls through `profile`, to us and to plain aiortc at once."""
    parts = [list(said[index % 3 :: 3]) for index in range(patterns)]
    heard = BothHeard(ours=[], plain=[])
    async with Exchange() as exchange, PlainExchange() as others, RelayProcess(profile, seed=seed) as relay:
        for first in range(0, patterns, AT_ONCE):
            chosen = parts[first : first + AT_ONCE]
            async with (
                lines(exchange, relay, len(chosen)) as pairs,
                plain_lines(others, relay, len(chosen)) as plain_pairs,
            ):
                await asyncio.sleep(1.0)
                for (line, _), (connection, _), part in zip(pairs, plain_pairs, chosen, strict=True):
                    line.say(_spoken(part))
                    connection.playout.capture_frame(_spoken(part))
                    connection.playout.flush()
                longest_s = max(len(_spoken(part)) for part in chosen) / RATE_HZ
                await asyncio.sleep(longest_s + 1.5)
                sounds = [callee.heard for _, callee in pairs]
                plain_sounds = [plain.heard for _, plain in plain_pairs]
            for number, part, sound, plain_sound in zip(count(first), chosen, sounds, plain_sounds, strict=False):
                heard.ours += await asyncio.to_thread(_judge, ear, part, sound, number)
                heard.plain.append(await asyncio.to_thread(_judge_turns, ear, part, plain_sound, number))
    return heard


async def hear_browser(profile: str, said: Sequence[Said], *, patterns: int, seed: int, ear: WhisperAsr) -> list[Heard]:
    """The same with Chromium as the caller: its microphone is a file, all else is as in the product's page."""
    parts = [list(said[index % 3 :: 3]) for index in range(patterns)]
    spoken = [np.concatenate((FaintNoise(seed=4).take(LEAD_IN_SAMPLES), _spoken(part))) for part in parts]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.wav" for number in range(patterns)]
        for file, samples in zip(files, spoken, strict=True):
            soundfile.write(file, samples, RATE_HZ)
        async with (
            Exchange() as exchange,
            RelayProcess(profile, seed=seed) as relay,
            IceProxy(exchange.url, relay.add_route) as proxy,
            launch(*microphone_flags()) as chromium,
        ):
            sounds = await asyncio.gather(*(_call_from_browser(chromium, proxy.url, exchange, file) for file in files))
    heard: list[Heard] = []
    for number, (part, sound) in enumerate(zip(parts, sounds, strict=True)):
        heard += await asyncio.to_thread(_judge, ear, part, sound, number)
    return heard


async def _call_from_browser(chromium: Browser, url: str, exchange: Exchange, file: Path) -> Samples:
    """Call with `file` as the microphone until it has been played; return what was heard."""
    page = await chromium.new_page()
    await page.goto(url)
    await page.wait_for_function("window.ready")
    await page.evaluate(f"({microphone_from_file(file)})()")
    call_id = await page.evaluate("window.startCall(false)")
    await page.wait_for_function("window.connection.connectionState === 'connected'")
    await asyncio.sleep(soundfile.info(file).duration + 1.5)
    sound = exchange.callees[call_id].heard
    await page.evaluate("window.connection.close()")
    await page.close()
    return sound


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
        heard.append(Heard(pattern=pattern, errors=_errors(reference, hypothesis), words=len(reference.split())))
    return heard


def _judge_turns(ear: WhisperAsr, part: Sequence[Said], sound: Samples, pattern: int) -> Heard:
    """Transcribe `sound` turn by turn, as cut at silence: a plain receiver keeps no count of samples to cut by."""
    reference = words_of(" ".join(each.text for each in part))
    hypothesis = words_of(" ".join(ear.transcribe_now(turn).text for turn in turns(sound)))
    return Heard(pattern=pattern, errors=_errors(reference, hypothesis), words=len(reference.split()))


def _errors(reference: str, hypothesis: str) -> int:
    if not hypothesis:
        return len(reference.split())
    measured = jiwer.process_words(reference, hypothesis)
    return measured.substitutions + measured.deletions + measured.insertions


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
    """Return, in ms, how long after the first later packet a repaired one came, and the channel's median round trip.

    Without copies, which at long round trips are there first and leave nothing to ask for.
    """
    async with (
        Exchange((TransportConfig(hosts=("127.0.0.1",), red="off"),)) as exchange,
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
