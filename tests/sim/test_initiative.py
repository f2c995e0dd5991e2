"""What the peer does unasked, in virtual time: it greets, asks after a silent caller, and hangs up on nobody."""

from __future__ import annotations

import dataclasses

import pytest

from peer.conversation_parts import ConversationOptions
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts, Step
from peer.errors import EngineError
from peer.idle import IdleAction, IdleOptions, IdleWatch
from peer.turn import State
from tests.sim.line import Heard, call, talk_options
from transport.messages import CallEnded, CallError, ReplyDone, UserTranscript

_ASK = "Are you still there?"


def _options(*, greeting: str = "", **idle: object) -> ConversationOptions:
    return dataclasses.replace(talk_options(), greeting=greeting, idle=IdleOptions(**idle))  # type: ignore[arg-type]


def _said_at(heard: Heard, text: str) -> list[float]:
    return [at for at, message in heard.messages if isinstance(message, ReplyDone) and message.reply_text == text]


def test_silence_is_asked_about_once_and_ends_the_call_with_a_reason() -> None:
    options = _options(check_in_after_s=10.0, hang_up_after_s=20.0, farewell="Goodbye then.")
    heard = call(voice=[], seconds=60.0, options=options)
    asked, left = _said_at(heard, _ASK), _said_at(heard, "Goodbye then.")
    assert len(asked) == len(left) == 1
    assert asked[0] == pytest.approx(10 + 4 * 0.25, abs=0.3)
    assert left[0] == pytest.approx(20 + 2 * 0.25, abs=0.3)
    assert [message.reason for message in heard.of(CallEnded)] == ["nothing was said for 20 seconds"]
    assert heard.closed == ["nothing was said for 20 seconds"], "the far end's BYE says it too"
    assert heard.at(CallEnded)[0] == pytest.approx(left[0] + 0.3, abs=0.1)


def test_who_answers_the_question_is_answered_and_silence_counts_anew() -> None:
    options = _options(check_in_after_s=10.0, hang_up_after_s=20.0)
    heard = call(
        voice=[(12.0, 13.0)], seconds=50.0, options=options, asr=ScriptedAsr(["Yes."]), llm=ScriptedLlm(["Good."])
    )
    assert heard.said() == [
        ("assistant", _ASK),
        ("user", "Yes."),
        ("assistant", "Good."),
        ("assistant", _ASK),
    ]
    assert _said_at(heard, _ASK)[1] == pytest.approx(13.5 + 0.25 + 10 + 1, abs=0.5)
    assert heard.at(CallEnded)[0] == pytest.approx(13.5 + 0.25 + 20 + 0.3, abs=0.5)


def test_who_speaks_over_the_farewell_keeps_the_call() -> None:
    farewell = "Nobody is there, so I will hang up now, goodbye."
    options = _options(hang_up_after_s=5.0, farewell=farewell)
    heard = call(
        voice=[(6.2, 7.4)],
        seconds=11.0,
        options=options,
        asr=ScriptedAsr(["Wait, I am here."]),
        llm=ScriptedLlm(["Good."]),
    )
    assert [message.text for message in heard.of(UserTranscript)] == ["Wait, I am here."]
    assert [(done.turn, done.status) for done in heard.of(ReplyDone)] == [(0, "interrupted"), (1, "completed")]
    assert [message.reason for message in heard.of(CallEnded)] == ["over"]


def test_a_question_overtaken_before_it_sounds_takes_nothing_from_the_history() -> None:
    slow = ScriptedTts([Step(), Step(delay_s=2.0), Step()])
    heard = call(
        voice=[(1.0, 2.0), (13.4, 14.4)],
        seconds=20.0,
        asr=ScriptedAsr(["One.", "Two."]),
        llm=ScriptedLlm(["First.", "Second."]),
        tts=slow,
        options=_options(check_in_after_s=10.0),
    )
    assert heard.said() == [("user", "One."), ("assistant", "First."), ("user", "Two."), ("assistant", "Second.")]
    assert [done.status for done in heard.of(ReplyDone)] == ["completed", "interrupted", "completed"]


def test_noise_without_words_is_still_silence() -> None:
    noise = [(float(start), start + 0.6) for start in range(2, 9, 2)]
    heard = call(voice=noise, seconds=20.0, asr=ScriptedAsr([""]), options=_options(hang_up_after_s=10.0))
    assert heard.at(CallEnded)[0] == pytest.approx(10.3, abs=1.0)


def test_a_voice_that_fails_on_the_question_does_not_keep_the_call() -> None:
    tts = ScriptedTts([Step(error=EngineError("it broke"))])
    heard = call(voice=[], seconds=30.0, tts=tts, options=_options(check_in_after_s=5.0, hang_up_after_s=10.0))
    assert [message.code for message in heard.of(CallError)] == ["tts_failed"]
    assert heard.at(CallEnded)[0] == pytest.approx(10.3, abs=0.5)


def test_by_default_silence_is_left_alone() -> None:
    heard = call(voice=[], seconds=120.0)
    assert heard.of(ReplyDone) == []
    assert heard.state is State.LISTENING


def test_the_greeting_counts_as_something_said() -> None:
    heard = call(voice=[], seconds=30.0, options=_options(greeting="Hello there.", hang_up_after_s=10.0))
    assert heard.at(CallEnded)[0] == pytest.approx(0.5 + 10.3, abs=0.3)


def test_the_watch_asks_and_then_hangs_up() -> None:
    watch = IdleWatch(IdleOptions(check_in_after_s=5.0, hang_up_after_s=8.0))
    assert watch.get_timer() is None
    watch.handle_activity(now=1.0)
    assert watch.handle_timer(now=5.9) is None
    assert watch.handle_timer(now=6.0) is IdleAction.CHECK_IN
    assert watch.get_timer() == 9.0
    assert watch.handle_timer(now=9.0) is IdleAction.HANG_UP
    assert watch.get_timer() is None
