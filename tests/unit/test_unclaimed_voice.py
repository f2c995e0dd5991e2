"""What a turn begins with that was taken for nothing before."""

from __future__ import annotations

from peer.engines.base import LISTEN_RATE_HZ
from peer.unclaimed_voice import UnclaimedVoice


def _s(seconds: float) -> int:
    return round(seconds * LISTEN_RATE_HZ)


def test_a_turn_begins_where_its_voice_does_if_nothing_was_left_out_before() -> None:
    assert UnclaimedVoice().claim(0) == 0
    assert UnclaimedVoice().claim(_s(2.0)) == _s(2.0)


def test_what_was_left_out_within_a_breath_before_is_its_beginning() -> None:
    voice = UnclaimedVoice()
    voice.keep(_s(3.0), _s(3.5))
    assert voice.claim(_s(4.9)) == _s(3.0)


def test_what_was_left_out_long_before_is_not() -> None:
    voice = UnclaimedVoice()
    voice.keep(_s(3.0), _s(3.5))
    assert voice.claim(_s(5.1)) == _s(5.1)


def test_no_two_turns_begin_with_the_same_voice() -> None:
    voice = UnclaimedVoice()
    voice.keep(_s(3.0), _s(3.5))
    assert voice.claim(_s(4.0)) == _s(3.0)
    assert voice.claim(_s(4.5)) == _s(4.5)


def test_words_left_out_one_after_the_other_are_one_beginning() -> None:
    voice = UnclaimedVoice()
    voice.keep(_s(3.0), _s(3.5))
    voice.keep(_s(4.5), _s(4.8))
    assert voice.claim(_s(6.0)) == _s(3.0)


def test_a_turn_dropped_hands_on_what_it_began_with_before_its_own_voice() -> None:
    voice = UnclaimedVoice()
    voice.keep(_s(3.0), _s(3.5))
    voice.keep(voice.claim(_s(4.0)), _s(4.6))
    assert voice.claim(_s(5.0)) == _s(3.0)


def test_noises_without_end_are_handed_on_no_further_back_than_six_seconds() -> None:
    voice = UnclaimedVoice()
    for second in range(60):
        voice.keep(_s(second), _s(second + 0.2))
    assert voice.claim(_s(60.0)) == _s(54.0)
