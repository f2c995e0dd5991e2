"""Test sentences in the default voice, with the time of every word from the voice model itself.

Piper's model knows how long each phoneme lasts; the tensor only is no output of the graph. Protocol Buffers merge
messages that are written one after the other, so a few bytes behind the file add it as one. The labels are therefore
the synthesizer's own, exact to its 12 ms frames, and owe nothing to the recogniser that is measured with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import soxr

from peer.engines.base import LISTEN_RATE_HZ, Samples
from peer.models import ModelStore
from peer.speakable import make_speakable

_DURATIONS: Final = "/Ceil_output_0"
_VOICE: Final = "piper-en_US-joe-medium"
_MS: Final = LISTEN_RATE_HZ // 1000
_MARKS: Final = frozenset(".,;:!?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenWord:
    """A word and where it stands in its recording."""

    text: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A sentence as sound (int16, 16 kHz) with its words."""

    samples: Samples
    words: tuple[SpokenWord, ...]


class Speaker:
    """The default voice as a source of labelled speech."""

    def __init__(self) -> None:
        from piper import PiperVoice

        folder = ModelStore().ensure(_VOICE)
        model = next(iter(sorted(folder.glob("*.onnx"))))
        self._voice: Any = PiperVoice.load(str(model))
        self._voice.session = _with_durations(model)

    def say(self, text: str, *, speed: float = 1.0) -> Spoken | None:
        """Return `text` spoken, or None where the voice runs words together so that they cannot be told apart."""
        from piper.config import SynthesisConfig

        config = SynthesisConfig(length_scale=1 / speed)
        audio: list[np.ndarray] = []
        words: list[tuple[float, float]] = []
        rate_hz: int = self._voice.config.sample_rate
        at = 0
        for chunk in self._voice.synthesize(make_speakable(text), config, include_alignments=True):
            if not chunk.phoneme_alignments:
                return None
            words += [((start + at) / rate_hz, (end + at) / rate_hz) for start, end in _words(chunk.phoneme_alignments)]
            audio.append(chunk.audio_float_array)
            at += len(chunk.audio_float_array)
        texts = self._units(make_speakable(text))
        if len(texts) != len(words):
            return None
        samples = soxr.resample(np.concatenate(audio), rate_hz, LISTEN_RATE_HZ) * 32767
        return Spoken(
            samples=np.asarray(np.clip(np.round(samples), -32768, 32767), np.int16),
            words=tuple(
                SpokenWord(text=word, start_ms=start * 1000, end_ms=end * 1000)
                for word, (start, end) in zip(texts, words, strict=True)
            ),
        )

    def say_with_pause(self, text: str, *, pause_ms: float, speed: float = 1.0) -> tuple[Spoken, float] | None:
        """Return `text` spoken in one breath with a pause at its mark |, and where the voice stops there, in ms.

        The voice's own pause there counts as a part of it.
        """
        head, _, tail = (part.strip() for part in text.partition("|"))
        spoken = self.say(f"{head} {tail}", speed=speed)
        if spoken is None or not tail:
            return None
        count = len(self._units(make_speakable(head)))
        before, after = spoken.words[count - 1], spoken.words[count]
        if " ".join(word.text for word in spoken.words[:count]).split() != make_speakable(head).split():
            return None
        cut_ms = (before.end_ms + after.start_ms) / 2
        added_ms = max(0.0, pause_ms - (after.start_ms - before.end_ms))
        paused = with_silence(spoken.samples, cut_ms, added_ms)
        later = tuple(
            SpokenWord(text=word.text, start_ms=word.start_ms + added_ms, end_ms=word.end_ms + added_ms)
            for word in spoken.words[count:]
        )
        return Spoken(samples=np.asarray(paused, np.int16), words=spoken.words[:count] + later), before.end_ms

    def _units(self, text: str) -> list[str]:
        """Return the words of `text`, those that the voice runs together ("of the") as one."""
        units: list[str] = []
        for word in text.split():
            if not any(char.isalnum() for char in word):
                continue
            if units and units[-1][-1] not in _MARKS and self._run_together(units[-1].split()[-1], word):
                units[-1] += f" {word}"
            else:
                units.append(word)
        return units

    def _run_together(self, first: str, second: str) -> bool:
        phonemes = [phoneme for sentence in self._voice.phonemize(f"{first} {second}") for phoneme in sentence]
        return " " not in phonemes


def with_silence(samples: np.ndarray, at_ms: float, length_ms: float) -> np.ndarray:
    """Return `samples` (16 kHz) with silence put in at a position, the sound faded out before and in behind it."""
    first, second = (part.astype(np.float32) for part in np.split(samples, [round(at_ms * _MS)]))
    fade = np.linspace(1, 0, 8 * _MS, dtype=np.float32)
    first[-len(fade) :] *= fade
    second[: len(fade)] *= fade[::-1]
    return np.concatenate([first, np.zeros(round(length_ms * _MS), np.float32), second])


def _words(alignments: list[Any]) -> list[tuple[int, int]]:
    """Return (start, end) in samples of each word of a sentence, its pauses and marks left out."""
    out: list[tuple[int, int]] = []
    position, start, end = 0, -1, -1
    for alignment in alignments:
        phoneme, count = alignment.phoneme, int(alignment.num_samples)
        if phoneme in {" ", "^", "$"} or phoneme in _MARKS:
            if start >= 0 and phoneme != "^":
                out.append((start, end))
                start = -1
        else:
            start = position if start < 0 else start
            end = position + count
        position += count
    return out + ([(start, end)] if start >= 0 else [])


def _with_durations(model: Path) -> Any:
    import onnxruntime

    value = _field(1, _DURATIONS.encode())  # ValueInfoProto.name
    extra = _field(7, _field(12, value))  # ModelProto.graph, GraphProto.output
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.read_bytes() + extra, options, providers=["CPUExecutionProvider"])


def _field(number: int, payload: bytes) -> bytes:
    """Return a length-delimited Protocol Buffers field; numbers below 16 and payloads below 128 bytes."""
    assert number < 16
    assert len(payload) < 128
    return bytes([number << 3 | 2, len(payload)]) + payload
