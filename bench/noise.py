"""What noise suppression is worth to the recogniser, and what it would cost the voice detector.

    python -m bench.noise [--quick] [--json]

The plain set's sentences in Piper's voice, in rooms with a fan (hum, low noise), pink and white noise, and the voices
of others, at 10, 5 and 0 dB. Each is heard as it is and through the suppressor: word errors of the default recogniser,
and F1 of the voice detector's frames at its default threshold. Intervals (95 %) by drawing sentences with replacement.
Not part of `python -m bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jiwer
import numpy as np

from bench.spoken import Speaker, Spoken
from bench.turn_sounds import read_set
from bench.uplink import make_ear, words_of
from peer.audio_history import AudioHistory
from peer.calibrate import judge, score
from peer.endpointing import EndpointOptions
from peer.engines.asr_whisper import WhisperAsr
from peer.engines.base import LISTEN_RATE_HZ, AsrOptions, Samples
from peer.engines.vad_silero import SileroVad
from peer.noise import NoiseReducer

_RATIOS_DB: Final = (10, 5, 0)
_SETTLE_S: Final = 2.0
"""The suppressor learns the room before anybody speaks, as in a call."""
_LEAD_MS: Final = 240
_TAIL_MS: Final = 120
_Noise = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One sentence in one room: errors and words of each way to hear it, and the detector's frames."""

    errors: dict[str, int]
    words: int
    frames: dict[str, tuple[list[float], list[bool]]]


def _coloured(count: int, power: float, rng: np.random.Generator) -> _Noise:
    spectrum = np.fft.rfft(rng.normal(size=count))
    frequency = np.maximum(np.fft.rfftfreq(count, 1 / LISTEN_RATE_HZ), 50)
    return _levelled(np.fft.irfft(spectrum / frequency**power, count))


def _levelled(sound: _Noise) -> _Noise:
    return np.asarray(sound / np.sqrt(np.mean(sound**2)))


def _fan(count: int, rng: np.random.Generator) -> _Noise:
    time_s = np.arange(count) / LISTEN_RATE_HZ
    hum = sum(np.sin(2 * np.pi * 100 * n * time_s + n) / n for n in range(1, 5))
    return _levelled(0.5 * _levelled(np.asarray(hum)) + 0.7 * _coloured(count, 1.0, rng))


def _rooms(said: Sequence[Spoken]) -> dict[str, Callable[[int, np.random.Generator], _Noise]]:
    def voices(count: int, rng: np.random.Generator) -> _Noise:
        mixed = np.zeros(count)
        for _ in range(5):
            others = np.concatenate([said[index].samples for index in rng.permutation(len(said))[:12]]).astype(float)
            mixed += np.roll(np.tile(others, 1 + count // len(others)), int(rng.integers(len(others))))[:count]
        return _levelled(mixed)

    return {
        "fan": _fan,
        "pink": lambda count, rng: _coloured(count, 0.5, rng),
        "white": lambda count, rng: _coloured(count, 0.0, rng),
        "voices": voices,
    }


def suppressed(sound: Samples) -> Samples:
    """Return `sound` as the recogniser gets it with --noise-suppression on."""
    history, reducer = AudioHistory(capacity_s=len(sound) / LISTEN_RATE_HZ + 1), NoiseReducer(automatic=False)
    for start in range(0, len(sound), 320):
        frame = sound[start : start + 320]
        history.append(frame, position_samples=start)
        reducer.handle_frame(frame, position_samples=start, history=history, floor_db=0.0, spread_db=0.0)
    return history.span(0, len(sound))


async def hear(ear: WhisperAsr, text: str, spoken: Spoken, noise: _Noise, ratio_db: float) -> Heard:
    """Return what is understood of a sentence in this noise."""
    voice = spoken.samples.astype(float) * 0.3
    lead = round(_SETTLE_S * LISTEN_RATE_HZ)
    level = np.sqrt(np.mean(voice[np.abs(voice) > 50] ** 2))
    sound = noise * level / 10 ** (ratio_db / 20)
    sound[lead : lead + len(voice)] += voice
    noisy = np.asarray(np.clip(sound, -32768, 32767), np.int16)
    begins_ms, ends_ms = (1000 * _SETTLE_S + at for at in (spoken.words[0].start_ms, spoken.words[-1].end_ms))
    errors, frames = {}, {}
    for way, samples in (("as it is", noisy), ("suppressed", suppressed(noisy))):
        span = samples[round((begins_ms - _LEAD_MS) * 16) : round((ends_ms + _TAIL_MS) * 16)]
        heard = words_of((await ear.transcribe(span, options=AsrOptions(language="en"))).text)
        found = jiwer.process_words(words_of(text), heard or "-")
        errors[way] = found.substitutions + found.deletions + found.insertions
        frames[way] = judge(
            SileroVad(), samples[lead // 2 :], [[begins_ms - 500 * _SETTLE_S, ends_ms - 500 * _SETTLE_S]]
        )
    return Heard(errors=errors, words=len(words_of(text).split()), frames=frames)


def summarise(room: str, ratio_db: int, heard: Sequence[Heard]) -> dict[str, Any]:
    """Return the figures of one room: WER and F1 of both ways, and the interval of the WER that suppression saves."""
    random = np.random.default_rng(1)
    words = np.array([each.words for each in heard])
    row: dict[str, Any] = {"room": room, "ratio_db": ratio_db, "words": int(words.sum())}
    wrong = {}
    for way, key in (("as it is", "plain"), ("suppressed", "suppressed")):
        wrong[key] = np.array([each.errors[way] for each in heard])
        row[f"{key}_wer_pct"] = round(100 * float(wrong[key].sum() / words.sum()), 1)
        probabilities = [value for each in heard for value in each.frames[way][0]]
        truths = [value for each in heard for value in each.frames[way][1]]
        row[f"{key}_f1"] = round(score(probabilities, truths, EndpointOptions().on_probability).f1, 3)
    picked = random.integers(0, len(heard), (2_000, len(heard)))
    saved = 100 * (wrong["plain"] - wrong["suppressed"])[picked].sum(axis=1) / words[picked].sum(axis=1)
    return row | {"saved_pct_interval": [round(float(each), 1) for each in np.percentile(saved, (2.5, 97.5))]}


async def measure(*, quick: bool) -> list[dict[str, Any]]:
    """Return a row for each room and ratio, and one for all steady rooms together."""
    speaker, ear = Speaker(), make_ear()
    texts = read_set("plain")[: 8 if quick else None]
    said = [(text, spoken) for text in texts if (spoken := speaker.say(text)) is not None]
    rows, steady = [], []
    for room, make in _rooms([spoken for _, spoken in said]).items():
        for ratio_db in _RATIOS_DB:
            heard = []
            for index, (text, spoken) in enumerate(said):
                count = len(spoken.samples) + round((_SETTLE_S + 0.8) * LISTEN_RATE_HZ)
                noise = make(count, np.random.default_rng((index, ratio_db, len(room))))
                heard.append(await hear(ear, text, spoken, noise, ratio_db))
            rows.append(summarise(room, ratio_db, heard))
            steady += heard if room != "voices" else []
    return [*rows, summarise("steady", 5, steady) | {"ratio_db": None}]


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows for people."""
    print(
        f"{'room':<8}{'dB':>4}{'words':>7}{'WER %':>8}{'suppressed':>12}{'saved, 95 %':>16}{'F1':>8}{'suppressed':>12}"
    )
    for row in rows:
        low, high = row["saved_pct_interval"]
        shown = f"{low:+.1f} … {high:+.1f}"
        ratio = "" if row["ratio_db"] is None else row["ratio_db"]
        print(
            f"{row['room']:<8}{ratio:>4}{row['words']:>7}{row['plain_wer_pct']:>8}{row['suppressed_wer_pct']:>12}"
            f"{shown:>16}{row['plain_f1']:>8}{row['suppressed_f1']:>12}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and with --json one object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m bench.noise", description="What noise suppression is worth.")
    parser.add_argument("--quick", action="store_true", help="8 sentences")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(arguments)
    rows = asyncio.run(measure(quick=options.quick))
    print_table(rows)
    if options.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
