"""Answers begun in a pause, in virtual time: spoken unheard, thrown away without a trace if the caller goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import numpy as np
import pytest

from peer.engines.base import LLM_DEFAULTS, TTS_DEFAULTS, ChatMessage, LlmOptions, Samples, TtsOptions
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts, Step
from tests.sim.line import Heard, call
from transport.messages import ReplyDelta, ReplyDone, ReplyStarted, UserTranscript

_HALF = "It was cold."
_WHOLE = "It was cold. But the sun was out."
_HALF_ANSWER = "Then put on a warm coat. That always helps in winter."
_WHOLE_ANSWER = "Then you had a fine day. I am glad to hear it."
_FIRST_S = 1.0


def hear(samples: Samples) -> Step:
    """Hear the half until there is clearly more voice than it has."""
    voiced_s = float(np.mean(np.abs(samples) > 500)) * len(samples) / 16_000
    return Step(text=_WHOLE if voiced_s > _FIRST_S else _HALF, delay_s=0.05)


def answer(messages: tuple[ChatMessage, ...]) -> Step:
    """Answer the half or the whole."""
    return Step(text=_WHOLE_ANSWER if messages[-1].content == _WHOLE else _HALF_ANSWER, delay_s=0.05)


class LoggedLlm(ScriptedLlm):
    """Notes when each of its answers began and when it was over or closed."""

    def __init__(self) -> None:
        super().__init__(lambda messages: Step(text=answer(messages).text, delay_s=0.05, piece_delay_s=0.02))
        self.spans: list[list[float]] = []

    async def generate(
        self, messages: Sequence[ChatMessage], *, options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str, None]:
        span = [asyncio.get_running_loop().time()]
        self.spans.append(span)
        try:
            async for token in super().generate(messages, options=options):
                yield token
        finally:
            span.append(asyncio.get_running_loop().time())


class LoggedTts(ScriptedTts):
    """Notes when each of its pieces was asked for."""

    def __init__(self) -> None:
        super().__init__(lambda _: Step(delay_s=0.05))
        self.asked_at: list[float] = []

    async def synthesize(self, text: str, *, options: TtsOptions = TTS_DEFAULTS) -> AsyncGenerator[Samples, None]:
        self.asked_at.append(asyncio.get_running_loop().time())
        async for piece in super().synthesize(text, options=options):
            yield piece


def check_one_turn(heard: Heard, *, goes_on_at: float) -> None:
    """The caller said one thing in two parts: one entry, the whole answered, and silence while he spoke."""
    assert heard.said() == [("user", _WHOLE), ("assistant", _WHOLE_ANSWER)]
    assert heard.of(UserTranscript)[-1].text == _WHOLE
    done = heard.of(ReplyDone)
    assert (done[-1].status, done[-1].heard_text) == ("completed", _WHOLE_ANSWER)
    over = [at for at in heard.sound_at if goes_on_at + 0.15 < at < goes_on_at + 1.5]
    assert not over, f"sound over the caller at {over}"


def test_an_answer_begun_in_the_pause_is_spoken_unheard_and_thrown_away_without_a_trace() -> None:
    llm, tts = LoggedLlm(), LoggedTts()
    heard = call(voice=[(1.0, 2.0), (2.4, 3.9)], asr=ScriptedAsr(hear), llm=llm, tts=tts)
    check_one_turn(heard, goes_on_at=2.4)
    assert llm.requests[0][-1].content == _HALF
    assert 2.0 < llm.spans[0][0] < 2.2, "it is begun as soon as the words of the pause are known"
    assert 2.0 < tts.asked_at[0] < 2.4, "its first words are spoken before the turn is over"
    assert _HALF_ANSWER.startswith(tts.requests[0])
    assert min(heard.sound_at) > 3.9
    assert len(heard.of(ReplyStarted)) == len(heard.of(ReplyDone)) == 1
    assert all(delta.text in _WHOLE_ANSWER for delta in heard.of(ReplyDelta))
    assert [message.content for message in llm.requests[1] if message.role != "system"] == [_WHOLE]


def test_the_engines_are_told_to_stop_when_the_caller_goes_on() -> None:
    class Endless(LoggedLlm):
        async def generate(
            self, messages: Sequence[ChatMessage], *, options: LlmOptions = LLM_DEFAULTS
        ) -> AsyncGenerator[str, None]:
            async for token in super().generate(messages, options=options):
                yield token
                if messages[-1].content == _HALF:
                    await asyncio.sleep(1.0)

    llm = Endless()
    heard = call(voice=[(1.0, 2.0), (2.4, 3.9)], asr=ScriptedAsr(hear), llm=llm)
    check_one_turn(heard, goes_on_at=2.4)
    begun_at, ended_at = llm.spans[0]
    assert begun_at < 2.4 < ended_at < 2.6


@pytest.mark.parametrize("pause_ms", range(150, 1100, 50))
def test_however_long_the_pause_the_whole_is_one_turn_and_is_answered(pause_ms: int) -> None:
    goes_on_at = 2.0 + pause_ms / 1000
    heard = call(voice=[(1.0, 2.0), (goes_on_at, goes_on_at + 1.5)], asr=ScriptedAsr(hear), llm=ScriptedLlm(answer))
    check_one_turn(heard, goes_on_at=goes_on_at)


def test_a_caller_who_speaks_after_a_while_of_the_answer_has_begun_a_turn_of_his_own() -> None:
    heard = call(voice=[(1.0, 2.0), (3.6, 5.1)], asr=ScriptedAsr(hear), llm=ScriptedLlm(answer))
    roles = [role for role, _ in heard.said()]
    assert roles == ["user", "assistant", "user", "assistant"]
    first, second = heard.of(ReplyDone)
    assert (first.status, second.status) == ("interrupted", "completed")
    assert 0 < len(first.heard_text.split()) < len(_HALF_ANSWER.split())
