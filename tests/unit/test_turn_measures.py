"""What the turn benchmark reads off a call."""

from __future__ import annotations

import numpy as np
import pytest

from bench.spoken import SpokenWord
from bench.turn_measures import (
    Level,
    Shown,
    audible_ms,
    ducked_after,
    first_audible_after,
    heard_from_ms,
    last_audible_before_silence,
    level_db,
    resumed_after,
    word_lags_ms,
    words_heard,
    words_of,
)
from bench.turn_sounds import make_cough, read_set


def levels(*parts: tuple[float, float]) -> list[Level]:
    """Return frames from 0 s on: (seconds, dB) each."""
    values = [db for seconds, db in parts for _ in range(round(seconds / 0.02))]
    return [Level(at=index * 0.02, db=db) for index, db in enumerate(values)]


def test_levels() -> None:
    assert level_db(np.full(320, 3277, np.int16)) == pytest.approx(-20, abs=0.01)
    assert level_db(np.zeros(320, np.int16)) == pytest.approx(-100)


def test_sound_between_two_times() -> None:
    call = levels((1.0, -90), (0.3, -20), (1.0, -90))
    assert audible_ms(call, 0.5, 2.0) == pytest.approx(300)
    assert audible_ms(call, 0.5, 1.1) == pytest.approx(100)
    assert first_audible_after(call, 0.0) == pytest.approx(1.0)
    assert first_audible_after(call, 1.4) is None


def test_the_end_of_a_voice_that_is_cut() -> None:
    call = levels((1.0, -20), (0.2, -90), (0.4, -40), (1.0, -90), (1.0, -20))
    assert last_audible_before_silence(call, 0.5) == pytest.approx(1.58)
    assert last_audible_before_silence(levels((2.0, -90)), 1.0) == 1.0


def test_a_duck_is_longer_than_a_gap_between_words() -> None:
    call = levels((0.9, -20), (0.08, -90), (0.32, -20), (0.6, -40), (0.5, -20))
    assert ducked_after(call, 1.0) == pytest.approx(1.3)
    assert ducked_after(levels((0.9, -20), (0.1, -90), (2.0, -20)), 0.9) is None
    assert ducked_after(levels((3.0, -90)), 1.0) is None


def test_lags_are_from_a_words_end_to_its_place_in_the_text() -> None:
    words = [
        SpokenWord(text="What", start_ms=0, end_ms=200),
        SpokenWord(text="of the", start_ms=200, end_ms=400),
        SpokenWord(text="3", start_ms=400, end_ms=600),
    ]
    shown = [
        Shown(at=10.3, text="What", stable_chars=0),
        Shown(at=10.6, text="What of the", stable_chars=4),
        Shown(at=11.0, text="What of the three", stable_chars=17),
    ]
    assert word_lags_ms(words, shown, began_at=10.0, stable=True) == pytest.approx([400, 600, 600, 400])
    assert word_lags_ms(words, shown, began_at=10.0, stable=False) == pytest.approx([100, 200, 200, 400])


def test_a_word_begins_where_it_is_heard() -> None:
    samples = np.concatenate([np.full(1600, 500), np.zeros(3200), np.full(1600, 500)]).astype(np.int16)
    assert heard_from_ms(samples, 150.0) == pytest.approx(300.0)
    assert heard_from_ms(samples, 50.0) == 50.0
    assert heard_from_ms(np.zeros(1600, np.int16), 20.0) == 20.0


def test_a_pause_ends_where_sound_comes_again() -> None:
    assert resumed_after(levels((1.0, -20), (0.5, -90), (1.0, -20)), 0.9) == pytest.approx(1.5)
    assert resumed_after(levels((1.0, -20), (2.0, -90)), 0.9) is None


def test_the_words_heard_are_the_beginning_that_a_transcript_fits_best() -> None:
    text = "The sun is hot and far away from us all."
    assert words_heard(text, "The sun is hot") == (4, 4)
    assert words_heard(text, "The son is hot and fa") == (5, 6)
    assert words_heard(text, "") == (0, 0)


def test_words_are_compared_as_said() -> None:
    assert words_of("It's 3 o'clock!") == ["it's", "three", "o'clock"]


def test_the_sets_are_as_large_as_they_are_said_to_be() -> None:
    for name in ("plain", "open", "closed"):
        lines = read_set(name)
        assert len(lines) >= 40
        assert len(set(lines)) == len(lines)
        assert all(("|" in line) == (name != "plain") for line in lines)


def test_coughs_are_short_and_differ() -> None:
    rng = np.random.default_rng(1)
    coughs = [make_cough(rng) for _ in range(5)]
    assert all(0.05 < len(cough) / 16_000 < 1.0 for cough in coughs)
    assert len({len(cough) for cough in coughs}) > 1
