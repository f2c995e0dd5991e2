"""Whole conversations in virtual time: turns, races, interruptions, and engines that fail."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from peer.engines.base import Samples
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts, Step
from peer.errors import EngineError
from peer.turn import State
from tests.sim.line import call, talk_options
from transport.messages import (
    CallEnded,
    CallError,
    CallState,
    ReplyDelta,
    ReplyDone,
    SpeechStarted,
    UserTranscript,
    UserTranscriptDelta,
)

_LONG = "One two three four five six seven eight nine ten. Eleven twelve thirteen fourteen fifteen sixteen."
_ASR = Step(text="What is it?", delay_s=0.2)
_BROKEN = EngineError("it broke", retryable=True)


def test_a_turn_is_heard_answered_and_remembered() -> None:
    heard = call(
        voice=[(1.0, 2.5)],
        asr=ScriptedAsr([_ASR]),
        llm=ScriptedLlm([Step(text="It is a test. Nothing more.", delay_s=0.1, piece_delay_s=0.02)]),
    )
    assert [message.text for message in heard.of(UserTranscript)] == ["What is it?"]
    done = heard.of(ReplyDone)
    assert [(d.status, d.reply_text, d.heard_text) for d in done] == [
        ("completed", "It is a test. Nothing more.", "It is a test. Nothing more.")
    ]
    assert heard.said() == [("user", "What is it?"), ("assistant", "It is a test. Nothing more.")]
    assert [message.text for message in heard.of(ReplyDelta)] == ["It is a test.", "Nothing more."]
    assert [message.state for message in heard.of(CallState)] == [
        "listening",
        "thinking",
        "speaking",
        "listening",
        "ended",
    ]
    assert heard.of(CallEnded)[0].reason == "over"
    assert heard.closed == ["over"]
    # Six words of a quarter second each.
    assert len(heard.sound_at) * 0.02 == pytest.approx(1.5, abs=0.1)


def test_the_answer_is_prepared_during_the_silence_so_that_it_costs_no_time_after_it() -> None:
    slow_engines = (
        ScriptedAsr([Step(text="It was cold here", delay_s=0.15)]),
        ScriptedLlm([Step(text="Yes it is.", delay_s=0.1)]),
    )
    heard = call(voice=[(1.0, 2.5)], asr=slow_engines[0], llm=slow_engines[1])
    stages = heard.of(ReplyDone)[0].latency_ms
    assert stages["asr"] == pytest.approx(150, abs=1)
    assert stages["llm_first_token"] == pytest.approx(100, abs=1)
    # 500 ms of silence end the turn; the first packet leaves with the next frame.
    assert stages["endpointing"] == pytest.approx(500, abs=45)
    assert stages["total"] - stages["endpointing"] <= 25


def test_a_pause_inside_a_turn_is_never_answered() -> None:
    asr = ScriptedAsr(["Tell me,", "Tell me, what is it?"])
    heard = call(voice=[(1.0, 2.0), (2.4, 3.4)], asr=asr)
    assert [message.text for message in heard.of(UserTranscript)] == ["Tell me, what is it?"]
    assert len(heard.of(ReplyDone)) == 1
    assert [text for role, text in heard.said() if role == "user"] == ["Tell me, what is it?"]
    assert min(heard.sound_at) > 3.4


def test_half_a_sentence_is_waited_for_and_not_answered() -> None:
    asr = ScriptedAsr(["I would like to", "I would like to know what it is."])
    llm = ScriptedLlm(["A test it is."])
    heard = call(voice=[(1.0, 2.0), (3.1, 4.1)], asr=asr, llm=llm)
    assert [message.text for message in heard.of(UserTranscript)] == ["I would like to know what it is."]
    assert len(llm.requests) == 1, "nothing was even prepared for the half"
    assert len(heard.of(ReplyDone)) == 1


def test_half_a_sentence_is_answered_in_the_end_if_nothing_follows() -> None:
    heard = call(voice=[(1.0, 2.0)], asr=ScriptedAsr(["I would like to"]), llm=ScriptedLlm(["What would you like?"]))
    done = heard.of(ReplyDone)
    assert [d.heard_text for d in done] == ["What would you like?"]
    assert done[0].latency_ms["endpointing"] > 1000


def test_the_transcript_grows_while_the_caller_speaks() -> None:
    def hear(samples: Samples) -> Step:
        return Step(text=" ".join(f"word{number}" for number in range(len(samples) // 4800)), delay_s=0.08)

    options = dataclasses.replace(talk_options(), follow_speech=True)
    heard = call(voice=[(1.0, 3.2)], asr=ScriptedAsr(hear), options=options)
    deltas = heard.of(UserTranscriptDelta)
    assert len(deltas) >= 6
    assert [delta.text for delta in deltas] == sorted((delta.text for delta in deltas), key=len)
    stable = [delta.text[: delta.stable_chars] for delta in deltas]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(stable))
    assert len(stable[-1].split()) >= 4
    assert len(heard.of(ReplyDone)) == 1


def test_partial_transcripts_that_fail_cost_nothing_but_themselves() -> None:
    asr = ScriptedAsr([Step(error=_BROKEN), Step(error=_BROKEN), "Hello there."])
    options = dataclasses.replace(talk_options(), follow_speech=True)
    heard = call(voice=[(1.0, 3.0)], asr=asr, options=options)
    assert heard.of(CallError) == []
    assert [message.text for message in heard.of(UserTranscript)] == ["Hello there."]


def test_who_goes_on_while_the_peer_thinks_takes_the_turn_back() -> None:
    asr = ScriptedAsr(["Hello.", "Tell me, what is it?"])
    heard = call(voice=[(1.0, 2.0), (2.8, 3.8)], asr=asr, llm=ScriptedLlm([Step(text="A test it is.", delay_s=1.0)]))
    assert heard.said() == [("user", "Tell me, what is it?"), ("assistant", "A test it is.")]
    assert [(d.turn, d.status, d.heard_text) for d in heard.of(ReplyDone)] == [
        (1, "interrupted", ""),
        (1, "completed", "A test it is."),
    ]
    assert len(asr.requests[-1]) > 2.5 * 16_000, "the whole turn is transcribed again"


def test_a_reply_overtaken_before_its_first_word_was_heard_is_withdrawn() -> None:
    asr = ScriptedAsr(["Hello.", "Tell me, what is it?"])
    # The turn ends at 2.5, so the reply begins to sound just before the caller does again.
    heard = call(voice=[(1.0, 2.0), (2.56, 4.0)], asr=asr)
    assert heard.of(ReplyDone)[0].status == "interrupted"
    assert heard.of(ReplyDone)[0].heard_text == ""
    assert [entry.role for entry in heard.entries] == ["user", "assistant"]
    assert heard.entries[0].text == "Tell me, what is it?"


def test_a_caller_who_goes_on_over_the_first_word_is_not_interrupting_but_still_in_his_turn() -> None:
    asr = ScriptedAsr(["Hello.", "Hello. Tell me, what is it?"])
    heard = call(voice=[(1.0, 2.0), (2.9, 4.4)], asr=asr)
    first, second = heard.of(ReplyDone)
    assert first.status == "interrupted"
    assert first.heard_text, "a word of it was heard"
    assert not [at for at in heard.sound_at if 3.05 < at < 4.4]
    assert [entry.role for entry in heard.entries] == ["user", "assistant"]
    assert heard.entries[0].text == "Hello. Tell me, what is it?"
    assert second.status == "completed"


def test_an_interruption_ducks_at_once_then_ends_the_reply_and_the_history_keeps_what_was_heard() -> None:
    asr = ScriptedAsr(["Count.", "Stop please now."])
    heard = call(voice=[(1.0, 2.0), (4.5, 6.0)], asr=asr, llm=ScriptedLlm([_LONG, "All right then."]))
    first, second = heard.of(ReplyDone)
    assert first.status == "interrupted"
    assert first.reply_text.startswith(first.heard_text)
    assert 5 <= len(first.heard_text.split()) <= 9
    assert not [at for at in heard.sound_at if 4.65 < at < 6.0], "ducked within 150 ms, and not a sound until they end"
    assert heard.at(ReplyDone)[0] <= 4.5 + 0.6
    assert heard.said() == [
        ("user", "Count."),
        ("assistant", first.heard_text),
        ("user", "Stop please now."),
        ("assistant", "All right then."),
    ]
    assert second.status == "completed"


@pytest.mark.parametrize("words", ["", "Mhm.", "Yeah, okay."])
def test_a_cough_or_a_listening_sound_only_ducks_and_the_reply_goes_on_from_the_ducked_word(words: str) -> None:
    asr = ScriptedAsr(["Count.", Step(text=words, delay_s=0.15)])
    heard = call(voice=[(1.0, 2.0), (4.5, 4.75)], asr=asr, llm=ScriptedLlm([_LONG]))
    done = heard.of(ReplyDone)
    assert [(d.status, d.heard_text) for d in done] == [("completed", _LONG)]
    assert heard.silences(4.5, 5.5, longest=0.1), "it was ducked"
    assert all(b - a <= 0.8 for a, b in heard.silences(4.5, 6.0, longest=0.1)), "and resumed"
    assert len(heard.of(SpeechStarted)) == 1


def test_a_longer_listening_sound_is_told_by_its_beginning_and_the_reply_goes_on_within_800_ms() -> None:
    asr = ScriptedAsr(["Count.", Step(text="I see.", delay_s=0.12)])
    heard = call(voice=[(1.0, 2.0), (4.5, 4.98)], asr=asr, llm=ScriptedLlm([_LONG]))
    assert [(d.status, d.heard_text) for d in heard.of(ReplyDone)] == [("completed", _LONG)]
    assert all(b - 4.5 <= 0.8 for _, b in heard.silences(4.5, 6.0, longest=0.2))


def test_ears_that_fail_over_the_reply_leave_it_to_time() -> None:
    asr = ScriptedAsr(["Count.", Step(error=_BROKEN), "Wait a moment."])
    heard = call(voice=[(1.0, 2.0), (4.5, 6.0)], asr=asr, llm=ScriptedLlm([_LONG, "I wait."]))
    assert [d.status for d in heard.of(ReplyDone)] == ["interrupted", "completed"]
    assert heard.at(ReplyDone)[0] <= 4.5 + 0.62


def test_a_click_over_the_reply_is_dropped() -> None:
    heard = call(voice=[(1.0, 2.0), (4.5, 4.54)], asr=ScriptedAsr(["Count."]), llm=ScriptedLlm([_LONG]))
    assert [(d.status, d.heard_text) for d in heard.of(ReplyDone)] == [("completed", _LONG)]


def test_a_short_command_over_the_reply_is_an_interruption() -> None:
    asr = ScriptedAsr(["Count.", Step(text="Stop!", delay_s=0.1)])
    heard = call(voice=[(1.0, 2.0), (4.5, 4.8)], asr=asr, llm=ScriptedLlm([_LONG, "I have stopped."]))
    assert [d.status for d in heard.of(ReplyDone)] == ["interrupted", "completed"]
    assert [text for role, text in heard.said() if role == "user"] == ["Count.", "Stop!"]


def test_a_late_transcript_is_waited_for() -> None:
    heard = call(voice=[(1.0, 2.0)], asr=ScriptedAsr([Step(text="Late.", delay_s=3.0)]))
    assert [message.text for message in heard.of(UserTranscript)] == ["Late."]
    assert heard.of(ReplyDone)[0].status == "completed"
    assert "thinking" in [message.state for message in heard.of(CallState)]


def test_a_noise_without_words_brings_no_answer() -> None:
    heard = call(voice=[(1.0, 1.6)], asr=ScriptedAsr([""]))
    assert [message.text for message in heard.of(UserTranscript)] == [""]
    assert not heard.of(ReplyDone)
    assert heard.state is State.LISTENING


@pytest.mark.parametrize(
    ("engines", "code"),
    [
        ({"llm": ScriptedLlm([Step(error=_BROKEN), Step(error=_BROKEN), "Fine now."])}, "llm_failed"),
        ({"llm": ScriptedLlm([Step(hang=True), "Fine now."])}, "llm_timeout"),
        ({"llm": ScriptedLlm([Step(text=""), "Fine now."])}, "llm_empty"),
    ],
    ids=["error", "timeout", "empty"],
)
def test_a_language_model_that_fails_is_apologised_for_and_the_next_turn_works(
    engines: dict[str, ScriptedLlm], code: str
) -> None:
    heard = call(voice=[(1.0, 2.0), (9.0, 10.0)], asr=ScriptedAsr(["One.", "Two."]), llm=engines["llm"])
    assert [message.code for message in heard.of(CallError)] == [code]
    assert [(d.status, d.heard_text) for d in heard.of(ReplyDone)] == [
        ("failed", "Sorry, that went wrong."),
        ("completed", "Fine now."),
    ]


def test_a_language_model_that_breaks_in_mid_reply_leaves_what_was_said() -> None:
    llm = ScriptedLlm([Step(text="It is fine. And then", error=_BROKEN, pieces_before_error=4), "Fine now."])
    heard = call(voice=[(1.0, 2.0), (9.0, 10.0)], llm=llm)
    assert next((d.status, d.heard_text) for d in heard.of(ReplyDone)) == ("failed", "It is fine. And")
    assert heard.of(ReplyDone)[1].status == "completed"


def test_a_model_that_trickles_without_ending_a_sentence_is_still_spoken() -> None:
    llm = ScriptedLlm([Step(text="well so this goes on and on", piece_delay_s=0.7)])
    heard = call(voice=[(1.0, 2.0)], llm=llm)
    done = heard.of(ReplyDone)[0]
    assert done.heard_text == "well so this goes on and on"
    assert min(heard.sound_at) < 2.5 + 4 * 0.7


def test_a_voice_that_fails_is_shown_and_the_next_turn_works() -> None:
    tts = ScriptedTts([Step(error=_BROKEN), Step()])
    heard = call(voice=[(1.0, 2.0), (6.0, 7.0)], tts=tts)
    assert [message.code for message in heard.of(CallError)] == ["tts_failed"]
    assert [d.status for d in heard.of(ReplyDone)] == ["failed", "completed"]


def test_a_model_that_fails_before_its_first_word_is_asked_once_more() -> None:
    llm = ScriptedLlm([Step(error=_BROKEN), "It is fine."])
    heard = call(voice=[(1.0, 2.0)], llm=llm)
    assert heard.of(CallError) == []
    assert [d.heard_text for d in heard.of(ReplyDone)] == ["It is fine."]
    assert llm.requests[0] == llm.requests[1]


def test_recognition_that_fails_twice_is_shown_and_the_next_turn_works() -> None:
    asr = ScriptedAsr([Step(error=_BROKEN), Step(error=_BROKEN), "Two."])
    heard = call(voice=[(1.0, 2.0), (6.0, 7.0)], asr=asr)
    assert [message.code for message in heard.of(CallError)] == ["asr_failed"]
    assert [message.text for message in heard.of(UserTranscript)] == ["", "Two."]
    assert [d.status for d in heard.of(ReplyDone)] == ["completed"]


def test_recognition_that_fails_once_is_asked_again() -> None:
    heard = call(voice=[(1.0, 2.0)], asr=ScriptedAsr([Step(error=_BROKEN), "Two."]))
    assert not heard.of(CallError)
    assert [message.text for message in heard.of(UserTranscript)] == ["Two."]


def test_the_peer_greets_when_told_to() -> None:
    heard = call(voice=[(4.0, 5.0)], options=dataclasses.replace(talk_options(), greeting="Hello there."))
    assert heard.said()[0] == ("assistant", "Hello there.")
    assert heard.of(ReplyDone)[0].turn == 0
    assert heard.of(ReplyDone)[1].turn == 1


@pytest.mark.parametrize(
    ("at", "state"),
    [
        (0.5, State.LISTENING),
        (1.5, State.HEARING),
        (2.16, State.PAUSED),
        (2.4, State.READY),
        (2.7, State.THINKING),
        (4.0, State.SPEAKING),
        (4.6, State.DUCKED),
        (4.88, State.DECIDING),
    ],
    ids=lambda value: value.value if isinstance(value, State) else None,
)
def test_a_hang_up_in_any_state_leaves_nothing_behind(at: float, state: State) -> None:
    heard = call(
        voice=[(1.0, 2.0), (4.5, 4.75)],
        asr=ScriptedAsr([Step(text="Count.", delay_s=0.15)]),
        llm=ScriptedLlm([Step(text=_LONG, delay_s=0.8)]),
        hang_up_at=at,
    )
    assert heard.state is state
    assert heard.closed == ["over"]


def test_a_hang_up_while_the_transcript_is_late_leaves_nothing_behind() -> None:
    heard = call(voice=[(1.0, 2.0)], asr=ScriptedAsr([Step(text="Late.", delay_s=3.0)]), hang_up_at=4.0)
    assert heard.state is State.TRANSCRIBING
