"""When a Whisper hypothesis is doubted or thrown away, and where long audio is cut."""

from __future__ import annotations

import numpy as np
import pytest

from peer.engines.asr_guards import (
    SILENCE_DBFS,
    Hypothesis,
    find_speech_end_s,
    is_doubtful,
    is_invented,
    max_tokens,
    measure_peak_dbfs,
    repeats_itself,
    split_at_quiet,
)

NOISE = np.random.default_rng(0).normal(0, 3_000, 16_000 * 70).astype(np.int16)


def heard(text: str, **values: float | bool | None) -> Hypothesis:
    settled = {"average_log_probability": -0.2, "no_speech_probability": 0.05, "ended": True, "last_timestamp_s": 3.0}
    return Hypothesis(text=text, **(settled | values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "What is the weather in London? What is the weather",
        "No, thank you. No, thank you.",
        "Yes. Yes. Yes. Yes.",
        "The fox jumps. Thanks, that is everything I wanted. Thanks, that is everything I",
        "beep beep beep beep beep beep",
        "你好你好你好你好你好你好你好你好你好你好你好你好你好你好",
    ],
)
def test_loops_are_seen(text: str) -> None:
    assert repeats_itself(text)


@pytest.mark.parametrize(
    "text",
    [
        "And so my fellow Americans, ask not what your country can do for you, ask what you can do for your country.",
        "And so my fellow Americans ask not what your country can do for you ask what you can do for you.",
        "It was the best of times, it was the worst of times.",
        "My phone number is 555-1234.",
        "Yes yes.",
        "I really, really want that.",
        "",
    ],
)
def test_speech_that_only_repeats_words_is_not_taken_for_a_loop(text: str) -> None:
    assert not repeats_itself(text)


def test_a_sure_whole_hypothesis_is_believed() -> None:
    hypothesis = heard("How many ounces are there in a pound?")
    assert not is_doubtful(hypothesis, speech_end_s=3.2)
    assert not is_invented(hypothesis)


@pytest.mark.parametrize(
    "hypothesis",
    [
        heard("cut off by the token", ended=False),
        heard("and then", last_timestamp_s=1.0),
        heard("mumble", average_log_probability=-1.2),
        heard("No, thank you. No, thank you."),
    ],
)
def test_each_sign_of_trouble_is_doubted(hypothesis: Hypothesis) -> None:
    assert is_doubtful(hypothesis, speech_end_s=3.2)


@pytest.mark.parametrize(
    ("hypothesis", "invented"),
    [
        (heard("", no_speech_probability=0.1), True),
        (heard(" . ", no_speech_probability=0.1), True),
        (heard("Thank you.", no_speech_probability=0.8), True),
        (heard("beep beep beep beep beep", no_speech_probability=0.7), True),
        (heard("something", no_speech_probability=0.9, average_log_probability=-1.3), True),
        (heard("something", average_log_probability=-1.6), True),
        (heard("Thank you."), False),
        (heard("Tell me more.", no_speech_probability=0.7), False),
    ],
)
def test_what_is_made_up_on_noise_is_dropped_and_what_was_said_is_kept(
    hypothesis: Hypothesis, *, invented: bool
) -> None:
    assert is_invented(hypothesis) is invented


def test_a_partial_hypothesis_may_be_improbable_but_not_a_loop() -> None:
    assert not is_doubtful(heard("and so", average_log_probability=-1.2), speech_end_s=3.2, is_partial=True)
    assert is_doubtful(heard("Yes. Yes. Yes. Yes"), speech_end_s=3.2, is_partial=True)


def test_tokens_are_bounded_by_the_length_of_the_audio() -> None:
    assert max_tokens(0.5) < 20
    assert 60 < max_tokens(8.0) < 100


def test_levels() -> None:
    assert measure_peak_dbfs(np.zeros(8_000, np.int16)) < SILENCE_DBFS
    assert measure_peak_dbfs(np.full(8_000, 12_000, np.int16)) < SILENCE_DBFS, "a constant offset is no sound"
    tone = (16_384 * np.sin(np.arange(16_000) / 5)).astype(np.int16)
    assert measure_peak_dbfs(tone) == pytest.approx(-9.0, abs=0.3)
    assert measure_peak_dbfs(np.zeros(10, np.int16)) < SILENCE_DBFS


def test_the_end_of_speech_is_found_under_faint_noise() -> None:
    samples = np.concatenate([NOISE[:32_000], NOISE[:16_000] // 100])
    assert find_speech_end_s(samples) == pytest.approx(2.0, abs=0.04)


def test_long_audio_is_cut_in_its_pauses_and_nothing_is_lost() -> None:
    samples = NOISE.copy()
    for pause_s in (22, 45):
        samples[pause_s * 16_000 : pause_s * 16_000 + 8_000] = 0
    pieces = split_at_quiet(samples, at_most_s=26.0)
    assert np.array_equal(np.concatenate(pieces), samples)
    assert all(len(piece) <= 26 * 16_000 for piece in pieces)
    cuts_s = np.cumsum([len(piece) for piece in pieces])[:-1] / 16_000
    assert cuts_s == pytest.approx([22.25, 45.25], abs=0.25)


def test_short_audio_is_not_cut() -> None:
    assert [len(piece) for piece in split_at_quiet(NOISE[:16_000], at_most_s=26.0)] == [16_000]
