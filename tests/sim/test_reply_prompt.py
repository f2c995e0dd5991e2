"""A reply's prompt on its way: interrupted it comes home, and a model that runs ahead of the voice is held back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from peer.engines.base import LLM_DEFAULTS, ChatMessage, LlmOptions
from peer.engines.scripted import ScriptedLlm, ScriptedTts, Step
from peer.prompts import TOKEN_CHANNEL_CAPACITY, PromptState
from peer.reply import PREPARED_MS, Reply, ReplyOptions
from tests.sim.virtual_time import run_virtual
from transport.playout_queue import PlayoutQueue

_ASKED = [ChatMessage(role="user", content="Count.")]


def _make_reply(llm: ScriptedLlm, *, tts: ScriptedTts | None = None, options: ReplyOptions | None = None) -> Reply:
    return Reply(
        turn=1,
        prompt=_ASKED,
        llm=llm,
        tts=tts or ScriptedTts(),
        playout=PlayoutQueue(),
        options=options or ReplyOptions(max_tokens=100_000),
        emit=lambda _: None,
        clock=asyncio.get_running_loop().time,
    )


class Unending(ScriptedLlm):
    """Gives a word each `every_s` and counts them; says when it was stopped."""

    def __init__(self, *, every_s: float, sentence_words: int = 10) -> None:
        super().__init__()
        self.given = 0
        self.stopped = False
        self._every_s = every_s
        self._sentence_words = sentence_words

    async def generate(
        self, messages: Sequence[ChatMessage], *, options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str, None]:
        try:
            while True:
                await asyncio.sleep(self._every_s)
                self.given += 1
                yield "word. Word" if self.given % self._sentence_words == 0 else " word"
        finally:
            self.stopped = True


def test_an_interrupted_prompt_comes_home_and_its_model_is_stopped() -> None:
    async def interrupt(after_s: float, llm: ScriptedLlm) -> Reply:
        reply = _make_reply(llm)
        running = asyncio.create_task(reply.run())
        await asyncio.sleep(after_s)
        states.append(reply.prompt_state)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return reply

    states: list[PromptState] = []
    waiting = run_virtual(interrupt(0.1, ScriptedLlm([Step(hang=True)])))
    streaming_llm = Unending(every_s=0.05)
    streaming = run_virtual(interrupt(1.0, streaming_llm))
    assert states == [PromptState.DISPATCH, PromptState.STREAMING]
    assert waiting.prompt_state is streaming.prompt_state is PromptState.IDLE
    assert streaming_llm.stopped


def test_a_model_that_runs_ahead_of_the_voice_is_held_back() -> None:
    async def prepare() -> tuple[int, int]:
        llm = Unending(every_s=0.0005)
        reply = _make_reply(llm)
        running = asyncio.create_task(reply.run())
        await asyncio.sleep(20.0)
        after_20_s = llm.given
        await asyncio.sleep(20.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return after_20_s, llm.given

    early, late = run_virtual(prepare())
    assert early == late, "unheard, it makes so much and no more"
    # Four seconds of speech, four sentences, what the chunker holds, and what may wait in the channel.
    assert early <= PREPARED_MS / 250 + 10 + 6 * 10 + TOKEN_CHANNEL_CAPACITY
    assert early >= 40
