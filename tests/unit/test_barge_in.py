"""What a voice over the reply is taken for."""

from __future__ import annotations

import pytest

from peer.barge_in import BargeInOptions, Verdict, judge_time, judge_words

_OPTIONS = BargeInOptions()


@pytest.mark.parametrize(
    "text",
    ["", " ", "...", "Mhm.", "Uh-huh", "Yeah, okay.", "I see.", "Got it.", "Oh, all right.", "And.", "嗯", "好的。"],
)
def test_listening_sounds_and_noises_are_false_alarms(text: str) -> None:
    assert judge_words(text) is Verdict.FALSE_ALARM


@pytest.mark.parametrize(
    "text",
    ["Stop!", "No.", "Got", "And what then?", "Wait", "Yeah, but what about Paris?", "okay okay okay okay", "停一下"],
)
def test_words_that_want_the_floor_interrupt(text: str) -> None:
    assert judge_words(text) is Verdict.INTERRUPTION


@pytest.mark.parametrize(
    ("since_onset_ms", "speaking", "voiced_ms", "verdict"),
    [
        (300, True, 300, None),
        (430, True, 430, None),
        (570, True, 570, Verdict.INTERRUPTION),
        (430, False, 200, None),
        (590, False, 200, None),
        (690, False, 200, Verdict.FALSE_ALARM),
        (690, False, 400, Verdict.INTERRUPTION),
    ],
)
def test_time_decides_where_no_words_are_known(
    since_onset_ms: float, speaking: bool, voiced_ms: float, verdict: Verdict | None
) -> None:
    assert judge_time(_OPTIONS, since_onset_ms=since_onset_ms, speaking=speaking, voiced_ms=voiced_ms) is verdict


@pytest.mark.parametrize(
    ("beginning", "verdict"),
    [("I see", Verdict.FALSE_ALARM), ("I see that", Verdict.INTERRUPTION), ("", None)],
)
def test_a_long_listening_sound_that_has_ended_is_told_by_its_beginning(
    beginning: str, verdict: Verdict | None
) -> None:
    judged = judge_time(_OPTIONS, since_onset_ms=590, speaking=False, voiced_ms=490, beginning=beginning)
    assert judged is verdict
    assert (
        judge_time(_OPTIONS, since_onset_ms=590, speaking=True, voiced_ms=590, beginning=beginning)
        is Verdict.INTERRUPTION
    )


def test_it_is_decided_within_600_ms_while_the_voice_speaks_or_where_its_words_are_known() -> None:
    for voiced_ms in (0.0, 250.0, 590.0):
        assert judge_time(_OPTIONS, since_onset_ms=590.0, speaking=True, voiced_ms=voiced_ms) is not None
        assert (
            judge_time(_OPTIONS, since_onset_ms=590.0, speaking=False, voiced_ms=voiced_ms, beginning="I") is not None
        )
        assert judge_time(_OPTIONS, since_onset_ms=690.0, speaking=False, voiced_ms=voiced_ms) is not None
