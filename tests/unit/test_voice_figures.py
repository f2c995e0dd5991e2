"""What the voice benchmark makes of its turns."""

from __future__ import annotations

import numpy as np
import pytest

from bench.items import Item
from bench.turn_measures import Level
from bench.voice_figures import Outcome, add_halves, note_half_answer, summarise


def item(*, text: str = "Hello, what is it?", person: str = "") -> Item:
    return Item(
        kind="closed", text=text, head="Hello,", samples=np.zeros(0, np.int16), words=(), end_ms=2000.0, person=person
    )


def heard_levels(*spans: tuple[float, float]) -> list[Level]:
    """Return three seconds of 20 ms frames that sound in `spans`."""
    times = [number * 0.02 for number in range(150)]
    return [Level(at=at, db=-20.0 if any(begin <= at < end for begin, end in spans) else -90.0) for at in times]


@pytest.mark.parametrize(("sounds_from", "half"), [(1.41, True), (1.59, False)])
def test_more_than_200_ms_of_reply_before_the_next_word_are_half_an_answer(sounds_from: float, half: bool) -> None:
    outcome = Outcome(item=item())
    note_half_answer(outcome, heard_levels((sounds_from, 1.9)), cut_at=1.2, next_at=1.7, end_at=2.5)
    assert outcome.half is half
    if half:
        assert outcome.stop_ms == pytest.approx(180, abs=20), "the reply went on so long over the next word"
        assert outcome.duck_ms == pytest.approx(200, abs=20)
    else:
        assert outcome.stop_ms is outcome.duck_ms is None


def test_a_half_answer_that_had_ended_by_itself_was_not_cut_off() -> None:
    outcome = Outcome(item=item())
    note_half_answer(outcome, heard_levels((1.0, 1.4)), cut_at=0.8, next_at=1.7, end_at=2.5)
    assert outcome.half
    assert outcome.stop_ms is None


def test_a_set_is_summed_up_with_people_and_short_replies_apart() -> None:
    outcomes = [
        Outcome(item=item(), voice_to_voice_ms=300, reply="This is a reply of seven words.", stages={"tts": 90.0}),
        Outcome(item=item(), voice_to_voice_ms=400, reply="No.", stages={"tts": 110.0}),
        Outcome(item=item(person="spk1"), voice_to_voice_ms=600, reply="One two three four five six."),
    ]
    figures = summarise(outcomes)
    assert (figures["median_ms"], figures["p95_ms"], figures["n"]) == (400, 600, 3)
    assert (figures["people_median_ms"], figures["people_n"], figures["people_recordings"]) == (600, 1, 1)
    assert figures["long_replies"] == {"n": 2, "median_ms": 300, "p95_ms": 600}
    assert figures["parts"]["tts"] == {"median_ms": 90.0, "p95_ms": 110.0, "n": 2}


def test_half_answers_of_later_turns_are_added_and_judged_by_the_words_that_were_understood() -> None:
    figures = summarise([Outcome(item=item(), voice_to_voice_ms=300)])
    add_halves(
        figures,
        [
            Outcome(item=item(), half=True, duck_ms=80.0, stop_ms=70.0, heard="Hello. What is it?"),
            Outcome(item=item(), half=True, heard="what is it"),
            Outcome(item=item()),
        ],
    )
    half = figures["half_answers"]
    assert (half["n"], half["half_answered"], half["pct"]) == (4, 2, 50.0)
    assert half["answered_whole"] == 1
    assert (half["sounding_when_the_voice_went_on"], half["duck_p95_ms"], half["stop_p95_ms"]) == (1, 80.0, 70.0)
