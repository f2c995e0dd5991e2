"""How bench.quality cuts, counts and compares; the judges themselves are not asked here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.quality_judge import (
    Material,
    Sentence,
    Verdict,
    compared,
    find_offset,
    load,
    pooled,
    save,
    spoken_errors,
    summary,
)
from jitter.replay_speech import load_clip


@pytest.mark.parametrize("shift", [0, 4321, -1600])
def test_the_beginning_of_the_speech_is_found_under_noise(shift: int) -> None:
    spoken = load_clip(16_000)[:80_000]
    noise = np.random.default_rng(1).normal(0, 500, 100_000).astype(np.int16)
    heard = noise
    begin, cut = max(shift, 0), max(-shift, 0)
    heard[begin : begin + len(spoken) - cut] += spoken[cut:] // 2
    assert find_offset(heard, spoken) == pytest.approx(shift, abs=160)


@pytest.mark.parametrize(
    ("reference", "hypothesis", "wrong"),
    [
        ("At that high level, the air is pure.", "at that high level the air is pure", 0),
        ("At that high level, the air is pure.", "at that level the air was pure", 2),
        ("I have 5 minutes", "I have five minutes.", 0),
        ("the air is pure", "", 4),
        ("the air is pure", "the air is pure pure pure", 2),
    ],
)
def test_words_are_counted_without_regard_to_writing(reference: str, hypothesis: str, wrong: int) -> None:
    assert spoken_errors(reference, hypothesis).errors == wrong


def verdict(scores: list[float], errors: list[int]) -> Verdict:
    return Verdict(scores=tuple(scores), errors=tuple(errors), words=(10,) * len(scores))


def test_recordings_are_pooled_by_words_and_compared_sentence_by_sentence() -> None:
    ours = pooled([verdict([4.0, 3.0], [0, 1]), verdict([4.5, 2.5], [0, 3])])
    theirs = pooled([verdict([3.9, 2.9], [1, 2]), verdict([4.4, 2.4], [1, 4])])
    assert summary(ours) | {"plcmos_ci95": 0, "wer_ci95": 0} == {
        "plcmos": 3.5, "plcmos_ci95": 0, "wer": 0.1, "wer_ci95": 0, "words": 40, "n": 4,
    }  # fmt: skip
    against = compared(ours, theirs)
    assert against["plcmos_above_neteq"] == pytest.approx(0.1)
    assert against["plcmos_above_neteq_ci95"] == pytest.approx([0.1, 0.1])
    assert against["wer_above_neteq"] == pytest.approx(-0.1)


def test_speech_is_kept_with_its_sentences(tmp_path: Path) -> None:
    said = Material(speech=load_clip(48_000)[:48_000], sentences=(Sentence(text="And so", start=100, end=40_000),))
    assert load(tmp_path) is None
    save(said, tmp_path)
    kept = load(tmp_path)
    assert kept is not None
    assert kept.sentences == said.sentences
    assert np.array_equal(kept.speech, said.speech)
