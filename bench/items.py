"""What the callers of the turn benchmarks say: three sets, a third in a person's voice where recordings are near.

Synthetic sentences are given other speeds and, by resampling, other voices. The people's sentences are few (three, one
speaker), so they come back at other levels, speeds and pitches; what is said of people's turns says how many recordings
stand behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np
import soxr

from bench.spoken import Speaker, Spoken, SpokenWord, with_silence
from bench.turn_measures import heard_from_ms
from bench.turn_sounds import read_set
from peer.engines.base import LISTEN_RATE_HZ, Samples
from peer.softphone_audio import SEND_RATE_HZ, read_audio, read_labels

Kind = Literal["plain", "open", "closed"]
KINDS: Final[tuple[Kind, ...]] = ("plain", "open", "closed")
PEOPLE: Final = Path(__file__).parents[2] / "shared" / "speech"
_PEOPLE_SHARE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing to say (int16, 16 kHz), its words where they are known, and where the voice stops and goes on."""

    kind: Kind
    text: str
    """Without the mark of the pause."""
    head: str = ""
    """What of it comes before the pause."""
    samples: Samples
    words: tuple[SpokenWord, ...]
    end_ms: float
    cut_ms: float | None = None
    """Where the voice pauses."""
    next_ms: float | None = None
    """Where it goes on."""
    person: str = ""
    """Name of the recording where a person speaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pause:
    """A place in a recording for a pause: where the voice stops, where silence goes in, where the next sound begins."""

    head: str
    stop_ms: float
    split_ms: float
    next_ms: float


_TEXTS: Final = {
    "spk1_snt1": "The child almost hurt the small dog.",
    "spk1_snt2": "Drop the two when you add the figures.",
    "spk1_snt3": "At that high level the air is pure.",
}
_PAUSES: Final[dict[Kind, dict[str, _Pause]]] = {
    "open": {
        "spk1_snt1": _Pause(head="The child almost hurt the", stop_ms=1895, split_ms=1900, next_ms=1905),
        "spk1_snt2": _Pause(head="Drop the two when you", stop_ms=1735, split_ms=1740, next_ms=1745),
        "spk1_snt3": _Pause(head="At that high level the", stop_ms=1590, split_ms=1595, next_ms=1605),
    },
    "closed": {
        "spk1_snt1": _Pause(head="The child almost hurt", stop_ms=1590, split_ms=1700, next_ms=1815),
        "spk1_snt2": _Pause(head="Drop the two", stop_ms=1215, split_ms=1330, next_ms=1435),
        "spk1_snt3": _Pause(head="At that high level", stop_ms=1415, split_ms=1435, next_ms=1465),
    },
}
"""Read off the level in slots of 20 ms, and checked by recognising what lies before and behind."""


def make_items(speaker: Speaker, kind: Kind, count: int, *, people: bool = True, seed: int = 11) -> list[Item]:
    """Return `count` things to say, mixed, with speeds, voices and pauses of 0.3 to 0.8 s from a seed."""
    rng = np.random.default_rng(seed)
    recordings = sorted(PEOPLE.glob("spk*.wav")) if people else []
    lines = read_set(kind)
    items: list[Item] = []
    for number in range(count):
        pause_ms = float(rng.uniform(300, 800))
        factor = float(rng.uniform(0.88, 1.12))
        if recordings and number % _PEOPLE_SHARE == 0:
            items.append(_from_person(recordings[number // _PEOPLE_SHARE % len(recordings)], kind, pause_ms, rng))
            continue
        item = None
        while item is None:
            item = _from_voice(speaker, kind, lines[len(items) % len(lines)], pause_ms, factor, rng)
            if item is None:
                lines.pop(len(items) % len(lines))  # the voice runs words together where the pause should be
        items.append(item)
    return [items[index] for index in rng.permutation(len(items))]


def _from_voice(
    speaker: Speaker, kind: Kind, line: str, pause_ms: float, factor: float, rng: np.random.Generator
) -> Item | None:
    speed = float(rng.uniform(0.95, 1.1)) / factor
    if kind == "plain":
        spoken = speaker.say(line, speed=speed)
        return None if spoken is None else _item(kind, line, _resampled(spoken, factor), None)
    paused = speaker.say_with_pause(line, pause_ms=pause_ms * factor, speed=speed)
    return None if paused is None else _item(kind, line, _resampled(paused[0], factor), paused[1] / factor)


def _item(kind: Kind, line: str, spoken: Spoken, cut_ms: float | None) -> Item:
    next_ms = None
    if cut_ms is not None:
        start_ms = next(word.start_ms for word in spoken.words if word.start_ms > cut_ms)
        next_ms = heard_from_ms(spoken.samples, start_ms)
    return Item(
        kind=kind,
        text=" ".join(line.replace("|", " ").split()),
        head=line.partition("|")[0].strip() if "|" in line else "",
        samples=spoken.samples,
        words=spoken.words,
        end_ms=spoken.words[-1].end_ms,
        cut_ms=cut_ms,
        next_ms=next_ms,
    )


def _resampled(spoken: Spoken, factor: float) -> Spoken:
    """Return the same played `factor` times as fast, which makes it another voice."""
    samples = soxr.resample(spoken.samples.astype(np.float32), LISTEN_RATE_HZ * factor, LISTEN_RATE_HZ)
    words = tuple(replace(word, start_ms=word.start_ms / factor, end_ms=word.end_ms / factor) for word in spoken.words)
    return Spoken(samples=np.asarray(np.clip(samples, -32768, 32767), np.int16), words=words)


def _from_person(path: Path, kind: Kind, pause_ms: float, rng: np.random.Generator) -> Item:
    speech = soxr.resample(read_audio(path).astype(np.float32), SEND_RATE_HZ, LISTEN_RATE_HZ)
    speech *= 10 ** (float(rng.uniform(-10, 4)) / 20)
    factor = float(rng.uniform(0.93, 1.07))
    labels = read_labels(path)
    assert labels, f"{path.name} has no labels"
    end_ms, cut_ms, next_ms, head = labels[-1], None, None, ""
    if kind != "plain":
        pause = _PAUSES[kind][path.stem]
        head = pause.head
        added_ms = max(0.0, pause_ms * factor - (pause.next_ms - pause.stop_ms))
        speech = with_silence(speech, pause.split_ms, added_ms)
        cut_ms, next_ms, end_ms = pause.stop_ms / factor, (pause.next_ms + added_ms) / factor, end_ms + added_ms
    samples = soxr.resample(speech, LISTEN_RATE_HZ * factor, LISTEN_RATE_HZ)
    return Item(
        kind=kind,
        text=_TEXTS[path.stem],
        head=head,
        samples=np.asarray(np.clip(samples, -32768, 32767), np.int16),
        words=(),
        end_ms=end_ms / factor,
        cut_ms=cut_ms,
        next_ms=next_ms,
        person=path.stem,
    )
