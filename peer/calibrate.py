"""`python -m peer.calibrate AUDIO…`: the judge's threshold with the best F1 on labelled audio, and the curve as a plot.

Beside each recording (WAV or FLAC, any rate) lies its label, the same name with .json:
{"speech_ms": [[start, end], …]}. Every 32 ms frame counts once; frames that a label's edge runs through are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import soundfile
import soxr

from peer.endpointing import EndpointOptions
from peer.engines.base import LISTEN_RATE_HZ, Samples, Vad
from peer.engines.vad_silero import SileroVad
from peer.errors import ConfigError
from transport.errors import AntiphonError

_THRESHOLDS: Final = tuple(round(0.02 * step, 2) for step in range(1, 50))
_WIDTH, _HEIGHT, _MARGIN = 640, 400, 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How well one threshold separates voice from the rest, 0..1 each."""

    threshold: float
    precision: float
    recall: float
    f1: float


def score(probabilities: Sequence[float], voiced: Sequence[bool], threshold: float) -> Score:
    """Return precision, recall and F1 of "probability at least `threshold`" against the truth."""
    said = np.asarray(probabilities) >= threshold
    truth = np.asarray(voiced, bool)
    right = int((said & truth).sum())
    precision = right / max(1, int(said.sum()))
    recall = right / max(1, int(truth.sum()))
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return Score(threshold=threshold, precision=precision, recall=recall, f1=f1)


def best(scores: Sequence[Score]) -> Score:
    """Return the score with the highest F1; of equals the middle one, which is furthest from either fault."""
    top = max(score.f1 for score in scores)
    equals = [score for score in scores if score.f1 >= top - 1e-9]
    return equals[len(equals) // 2]


def judge(vad: Vad, samples: Samples, speech_ms: Sequence[Sequence[float]]) -> tuple[list[float], list[bool]]:
    """Return the detector's answer and the truth for each frame of `samples` (int16, 16 kHz) that has one truth."""
    vad.reset()
    size = vad.frame_samples
    probabilities: list[float] = []
    truths: list[bool] = []
    for start in range(0, len(samples) - size + 1, size):
        probability = vad.probability(samples[start : start + size])
        begin_ms, end_ms = (position * 1000 / LISTEN_RATE_HZ for position in (start, start + size))
        inside = any(a <= begin_ms and end_ms <= b for a, b in speech_ms)
        outside = all(end_ms <= a or begin_ms >= b for a, b in speech_ms)
        if inside or outside:
            probabilities.append(probability)
            truths.append(inside)
    return probabilities, truths


def read_labelled(path: Path) -> tuple[Samples, list[list[float]]]:
    """Return a recording (int16, 16 kHz) and its label; raises ConfigError saying what is missing or wrong."""
    label = path.with_suffix(".json")
    try:
        audio, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
        spans = json.loads(label.read_text(encoding="utf-8"))["speech_ms"]
        speech_ms = [[float(start), float(end)] for start, end in spans]
    except (OSError, soundfile.LibsndfileError) as error:
        raise ConfigError(f"cannot read {path} or its label {label}: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f'{label}: write it as {{"speech_ms": [[start, end], …]}}') from error
    mono = soxr.resample(audio.mean(axis=1), rate_hz, LISTEN_RATE_HZ)
    return np.asarray(np.clip(np.round(mono * 32767), -32768, 32767), np.int16), speech_ms


def plot_svg(scores: Sequence[Score], chosen: Score) -> str:
    """Return precision, recall and F1 over the threshold as an SVG picture."""

    def place(x: float, y: float) -> str:
        return f"{_MARGIN + x * (_WIDTH - 2 * _MARGIN):.1f},{_HEIGHT - _MARGIN - y * (_HEIGHT - 2 * _MARGIN):.1f}"

    lines = []
    for name, colour in (("precision", "#2b6cb0"), ("recall", "#b7791f"), ("f1", "#2f855a")):
        points = " ".join(place(score.threshold, getattr(score, name)) for score in scores)
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>')
        label_y = 220 + 16 * len(lines)
        lines.append(f'<text x="{_WIDTH - _MARGIN - 70}" y="{label_y}" fill="{colour}">{name}</text>')
    centre_x, centre_y = place(chosen.threshold, chosen.f1).split(",")
    lines.append(f'<circle cx="{centre_x}" cy="{centre_y}" r="5" fill="#2f855a"/>')
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, bottom = place(tick, 0).split(",")
        left, y = place(0, tick).split(",")
        lines.append(f'<text x="{x}" y="{float(bottom) + 18}" text-anchor="middle">{tick:g}</text>')
        lines.append(f'<text x="{float(left) - 8}" y="{float(y) + 4}" text-anchor="end">{tick:g}</text>')
    frame = f'<rect x="{_MARGIN}" y="{_MARGIN}" width="{_WIDTH - 2 * _MARGIN}" height="{_HEIGHT - 2 * _MARGIN}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        f'{frame} fill="none" stroke="#999"/>\n' + "\n".join(lines) + "\n</svg>\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Calibrate on the recordings named; returns 0, or 2 with a sentence on stderr."""
    parser = argparse.ArgumentParser(prog="python -m peer.calibrate", description=__doc__)
    parser.add_argument("audio", nargs="+", type=Path, help="recordings, each with its label beside it")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="write the curve there")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(arguments)
    vad = SileroVad()
    probabilities: list[float] = []
    truths: list[bool] = []
    try:
        for path in options.audio:
            found = judge(vad, *read_labelled(path))
            probabilities += found[0]
            truths += found[1]
        if len(set(truths)) < 2:
            raise ConfigError("the labels must hold both speech and silence")
    except AntiphonError as error:
        print(error, file=sys.stderr)
        return 2
    scores = [score(probabilities, truths, threshold) for threshold in _THRESHOLDS]
    chosen = best(scores)
    today = score(probabilities, truths, EndpointOptions().on_probability)
    if options.plot:
        options.plot.write_text(plot_svg(scores, chosen), encoding="utf-8")
    for name, each in (("best", chosen), ("default", today)):
        print(f"{name:<8} threshold {each.threshold:.2f}  F1 {each.f1:.3f}  precision {each.precision:.3f}  "
              f"recall {each.recall:.3f}")  # fmt: skip
    if options.json:
        report = {"threshold": chosen.threshold, "f1": chosen.f1, "frames": len(truths)}
        print(json.dumps(report | {"default_f1": today.f1, "curve": [[s.threshold, s.f1] for s in scores]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
