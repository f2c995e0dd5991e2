"""Judges what was heard, sentence by sentence: PLCMOS v2 and the word errors of one recogniser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

from bench.caller import synthetic
from bench.quality_page import RATE_HZ
from bench.uplink import RECORDINGS, make_ear
from impair.measures import WordErrors, word_errors
from impair.scorer import Scorer
from jitter.decoder import Samples
from peer.speakable import make_speakable

HEARD_HZ = 16_000
SLOT_SAMPLES = HEARD_HZ // 100
FIRST_SLOTS, LAST_SLOTS = 100, 3000
"""The speech begins from 1 s before the recording to 30 s into it."""
PAUSE_S = 0.5
"""Between sentences; a piece is cut with as much of it on either side as the buffers may shift speech by."""
MARGIN_S = 0.3
SETS = Path(__file__).parent / "sets"
PEOPLE = Path(__file__).parents[2] / "shared" / "speech"
SPOKEN = {
    **RECORDINGS,
    "spk1_snt1.wav": "the child almost hurt the small dog",
    "spk1_snt2.wav": "drop the two when you add the figures",
    "spk1_snt3.wav": "at that high level the air is pure",
}
UNDISTURBED, SENTENCES = "undisturbed.wav", "sentences.json"
NO_SOUND = "the recogniser and PLCMOS hear 16 kHz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """What is said, and where in the speech, in samples at 48 kHz."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Sentences one after the other, with pauses, int16 at 48 kHz."""

    speech: Samples
    sentences: tuple[Sentence, ...]


def material(count: int | None = None) -> Material:
    """Return people's recordings, where they lie beside the repository, and the sets' sentences in Piper's voice."""
    said: list[tuple[str, Samples]] = []
    for name, text in SPOKEN.items():
        if (PEOPLE / name).exists():
            given, rate_hz = soundfile.read(PEOPLE / name, dtype="float32", always_2d=True)
            mono = np.clip(soxr.resample(given.mean(axis=1), rate_hz, RATE_HZ), -1, 1)
            said.append((text, np.asarray(mono * 32767, np.int16)))
    texts = []
    for name in ("plain", "open", "closed"):
        lines = (SETS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        texts += [" ".join(line.replace("|", " ").split()) for line in lines if line and not line.startswith("#")]
    said += [(each.name, each.samples) for each in synthetic(texts[:count])]
    pause = np.zeros(round(PAUSE_S * RATE_HZ), np.int16)
    pieces, sentences, at = [pause], [], len(pause)
    for text, samples in said[:count]:
        sentences.append(Sentence(text=text, start=at, end=at + len(samples)))
        pieces += [samples, pause]
        at += len(samples) + len(pause)
    return Material(speech=np.concatenate(pieces), sentences=tuple(sentences))


def save(said: Material, folder: Path) -> Material:
    """Keep the speech beside the recordings of it: the voice never says a sentence twice in the same way."""
    soundfile.write(folder / UNDISTURBED, said.speech, RATE_HZ)
    sentences = [asdict(sentence) for sentence in said.sentences]
    (folder / SENTENCES).write_text(json.dumps(sentences), encoding="utf-8")
    return said


def load(folder: Path) -> Material | None:
    """Return the speech that was kept in `folder`, or None."""
    if not (folder / SENTENCES).exists():
        return None
    speech, _ = soundfile.read(folder / UNDISTURBED, dtype="int16")
    sentences = json.loads((folder / SENTENCES).read_text(encoding="utf-8"))
    return Material(speech=speech, sentences=tuple(Sentence(**sentence) for sentence in sentences))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One recording to judge."""

    sound: str
    said: Material


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Of each sentence: PLCMOS, word errors, and how many words it has."""

    scores: tuple[float, ...]
    errors: tuple[int, ...]
    words: tuple[int, ...]


def pooled(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdicts of several recordings as one."""
    return Verdict(
        scores=tuple(score for each in verdicts for score in each.scores),
        errors=tuple(count for each in verdicts for count in each.errors),
        words=tuple(count for each in verdicts for count in each.words),
    )


def judge(job: Job) -> Verdict:
    """Cut a recording where its sentences must lie and judge each."""
    heard, _ = soundfile.read(job.sound, dtype="int16")
    heard = np.asarray(soxr.resample(heard, RATE_HZ, HEARD_HZ), np.int16)
    offset = find_offset(heard, np.asarray(soxr.resample(job.said.speech, RATE_HZ, HEARD_HZ), np.int16))
    ear, scorer = make_ear(), Scorer()
    scores, errors, words = [], [], []
    for sentence in job.said.sentences:
        start, end = (offset + at * HEARD_HZ // RATE_HZ for at in (sentence.start, sentence.end))
        margin = round(MARGIN_S * HEARD_HZ)
        piece = heard[max(0, start - margin) : end + margin]
        score, reason = scorer.plcmos(piece, HEARD_HZ)
        if score is None:
            raise RuntimeError(f"{job.sound}: {reason}")  # SystemExit would leave the pool waiting for this worker
        found = spoken_errors(sentence.text, ear.transcribe_now(piece).text)
        scores.append(score)
        errors.append(found.errors)
        words.append(found.words)
    return Verdict(scores=tuple(scores), errors=tuple(errors), words=tuple(words))


def find_offset(heard: Samples, spoken: Samples) -> int:
    """Return at which sample of `heard` the speech begins, to 10 ms; negative where its beginning is missing.

    Loudness is compared and not the waveform, which concealment and stretching shift about.
    """
    ours, theirs = _loudness(heard), _loudness(spoken)
    size = 1 << (len(ours) + len(theirs)).bit_length()
    likeness = np.fft.irfft(np.fft.rfft(ours, size) * np.conj(np.fft.rfft(theirs, size)), size)
    slots = np.arange(-FIRST_SLOTS, LAST_SLOTS)
    return int(slots[np.argmax(likeness[slots % size])]) * SLOT_SAMPLES


def _loudness(sound: Samples) -> np.ndarray[Any, np.dtype[np.float32]]:
    whole = len(sound) // SLOT_SAMPLES * SLOT_SAMPLES
    level = np.log(np.abs(sound[:whole].astype(np.float32)).reshape(-1, SLOT_SAMPLES).mean(axis=1) + 30)
    return np.asarray(level - level.mean(), np.float32)


def spoken_errors(reference: str, hypothesis: str) -> WordErrors:
    """Count word errors whatever way numbers are written: `impair.measures.word_errors` of both as they are said."""
    asked, got = (make_speakable(text, "en").replace("-", " ") for text in (reference, hypothesis))
    return word_errors(asked, got)


def _drawn(count: int, draws: int = 2000) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return which sentences each bootstrap draw takes; the same for every recording, so differences are paired."""
    return np.random.default_rng(1).integers(0, count, (draws, count))


def _interval(values: Any) -> list[float]:
    return [round(float(edge), 4) for edge in np.quantile(values, (0.025, 0.975))]


def summary(verdict: Verdict) -> dict[str, Any]:
    """Return mean PLCMOS and pooled word error rate, with 95 % intervals over sentences."""
    scores, errors, words = (np.array(part, float) for part in (verdict.scores, verdict.errors, verdict.words))
    drawn = _drawn(len(scores))
    return {
        "plcmos": round(float(scores.mean()), 3),
        "plcmos_ci95": _interval(scores[drawn].mean(axis=1)),
        "wer": round(float(errors.sum() / words.sum()), 4),
        "wer_ci95": _interval(errors[drawn].sum(axis=1) / words[drawn].sum(axis=1)),
        "words": int(words.sum()),
        "n": len(scores),
    }


def compared(ours: Verdict, theirs: Verdict) -> dict[str, Any]:
    """Return how far ours is above theirs in both figures, sentence by sentence."""
    scores = np.array(ours.scores) - np.array(theirs.scores)
    errors, words = np.array(ours.errors, float) - np.array(theirs.errors), np.array(ours.words, float)
    drawn = _drawn(len(scores))
    return {
        "plcmos_above_neteq": round(float(scores.mean()), 3),
        "plcmos_above_neteq_ci95": _interval(scores[drawn].mean(axis=1)),
        "wer_above_neteq": round(float(errors.sum() / words.sum()), 4),
        "wer_above_neteq_ci95": _interval(errors[drawn].sum(axis=1) / words[drawn].sum(axis=1)),
    }
