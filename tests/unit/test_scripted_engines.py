"""Scripted engines: they answer in order, stream, fail and hang as told, and stop when cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import numpy as np
import pytest

from peer.engines.base import ChatMessage, LlmOptions, Samples, TtsOptions
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts, ScriptedTurn, Step
from peer.errors import EngineError

SECOND = np.zeros(16_000, np.int16)
HELLO = [ChatMessage(role="user", content="Hello.")]

Piece = TypeVar("Piece")


async def collect(source: AsyncIterator[Piece], into: list[Piece]) -> None:
    """Append what `source` yields, so that a failing source leaves what came before."""
    async for piece in source:
        into += [piece]


async def test_asr_answers_in_order_and_repeats_the_last_step() -> None:
    asr = ScriptedAsr(["one", Step(text="two")])
    texts = [(await asr.transcribe(SECOND)).text for _ in range(3)]
    assert texts == ["one", "two", "two"]
    assert len(asr.requests) == 3


async def test_asr_without_script_speaks_of_the_length_of_its_audio() -> None:
    asr = ScriptedAsr(record=False)
    assert (await asr.transcribe(SECOND)).text == "I spoke for 10 tenths of a second."
    assert asr.requests == []


async def test_llm_streams_words_that_join_to_the_script() -> None:
    llm = ScriptedLlm(["Well,  that is\n3.5 metres. "])
    pieces = [piece async for piece in llm.generate(HELLO)]
    assert "".join(pieces) == "Well,  that is\n3.5 metres. "
    assert len(pieces) == 6
    assert llm.requests == [tuple(HELLO)]


async def test_llm_obeys_max_tokens() -> None:
    llm = ScriptedLlm(["one two three"])
    assert [p async for p in llm.generate(HELLO, options=LlmOptions(max_tokens=2))] == ["one", " two"]


async def test_llm_script_may_be_a_function_of_the_dialogue() -> None:
    llm = ScriptedLlm(lambda messages: f"heard {len(messages)}")
    assert "".join([p async for p in llm.generate(HELLO)]) == "heard 1"


async def test_llm_fails_after_the_pieces_it_was_told() -> None:
    error = EngineError("out of memory", retryable=False)
    llm = ScriptedLlm([Step(text="a b c", error=error, pieces_before_error=2)])
    pieces: list[str] = []
    with pytest.raises(EngineError, match="out of memory") as caught:
        await collect(llm.generate(HELLO), pieces)
    assert pieces == ["a", " b"]
    assert not caught.value.retryable


@pytest.mark.parametrize("step", [Step(hang=True), Step(text="a b", hang=True, pieces_before_error=9)])
async def test_a_hanging_request_ends_only_by_cancellation(step: Step) -> None:
    llm = ScriptedLlm([step])

    async def consume() -> list[str]:
        return [piece async for piece in llm.generate(HELLO)]

    task = asyncio.create_task(consume())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_tts_speaks_a_tone_a_word_and_the_same_every_time() -> None:
    tts = ScriptedTts(sample_rate_hz=16_000, word_s=0.25, piece_s=0.5)
    first = [piece async for piece in tts.synthesize("one two three")]
    again = [piece async for piece in tts.synthesize("one two three")]
    assert [len(piece) for piece in first] == [8_000, 4_000]
    assert np.array_equal(np.concatenate(first), np.concatenate(again))
    assert np.abs(np.concatenate(first)).max() > 7_000


async def test_tts_speed_and_volume() -> None:
    tts = ScriptedTts(sample_rate_hz=16_000)
    plain = np.concatenate([p async for p in tts.synthesize("word")])
    fast = np.concatenate([p async for p in tts.synthesize("word", options=TtsOptions(speed=2.0, volume=0.5))])
    assert len(fast) == len(plain) // 2
    assert np.abs(fast).max() == pytest.approx(np.abs(plain).max() / 2, rel=0.01)


async def test_tts_fails_in_the_middle_of_a_piece_of_text() -> None:
    tts = ScriptedTts([Step(error=EngineError("voice lost"), pieces_before_error=1)])
    pieces: list[Samples] = []
    with pytest.raises(EngineError, match="voice lost"):
        await collect(tts.synthesize("one two three four five"), pieces)
    assert len(pieces) == 1


async def test_turn_believes_its_script() -> None:
    turn = ScriptedTurn([Step(probability=0.1), Step(probability=0.9)])
    assert [await turn.end_of_turn_probability(SECOND) for _ in range(2)] == [0.1, 0.9]
