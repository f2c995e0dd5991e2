"""Piper: speech that says its text, by pieces, at the speed and volume asked for, and bounded in what it takes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import numpy as np
import pytest

from peer.engines.base import TtsOptions
from peer.engines.tts_piper import create, split_text
from peer.errors import EngineError, ModelError
from tests.engines.speech import speak, voice

TEXT = "The capital of France is Paris. It lies on the Seine."


async def collect(text: str) -> int:
    return sum([len(piece) async for piece in voice().synthesize(text)])


async def test_sentences_come_one_by_one() -> None:
    pieces = [piece async for piece in voice().synthesize(TEXT)]
    assert len(pieces) == 2
    assert all(piece.dtype == np.int16 and piece.ndim == 1 for piece in pieces)
    assert voice().sample_rate_hz == 22_050
    assert 2.0 < sum(map(len, pieces)) / 22_050 < 6.0
    assert 0.5 < max(np.abs(piece).max() for piece in pieces) / 32_767 <= 0.7


async def test_the_first_sound_comes_at_once() -> None:
    piece = await anext(voice().synthesize(TEXT))
    assert np.flatnonzero(np.abs(piece) > 0.007 * 32_767)[0] / 22_050 < 0.02


async def test_speed_and_volume() -> None:
    plain, changed = [
        np.concatenate([piece async for piece in voice().synthesize(TEXT, options=options)])
        for options in (TtsOptions(), TtsOptions(speed=1.5, volume=0.25))
    ]
    assert len(changed) / len(plain) == pytest.approx(1 / 1.5, rel=0.15)
    assert np.abs(changed).max() / np.abs(plain).max() == pytest.approx(0.25, rel=0.02)


async def test_loud_speech_clips_and_does_not_wrap() -> None:
    speech = np.concatenate([p async for p in voice().synthesize("Paris.", options=TtsOptions(volume=20.0))])
    assert speech.max() == 32_767
    assert speech.min() == -32_768


@pytest.mark.parametrize("text", ["", "   ", "...", "—"])
async def test_text_without_words_is_silence_or_nothing(text: str) -> None:
    pieces = [piece async for piece in voice().synthesize(text)]
    assert sum(map(len, pieces)) < 2 * 22_050


async def test_closing_early_leaves_the_voice_usable() -> None:
    async with contextlib.aclosing(voice().synthesize(TEXT)) as speech:
        await anext(speech)
    assert [piece async for piece in voice().synthesize("Yes.")]


async def test_a_cancel_ends_a_synthesis_in_the_middle_of_a_sentence() -> None:
    """Two requests of a long sentence are cancelled while at work; whole they take seconds of CPU time."""
    sentence = "the children were playing football in the park until it started to rain and " * 3
    used_s = []
    for cancel in (False, True):
        began = time.process_time()
        for _ in range(2):
            task = asyncio.create_task(collect(sentence))
            await asyncio.sleep(0.05)
            if cancel:
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await collect("Yes.")
        used_s.append(time.process_time() - began)
    assert used_s[1] < 0.6 * used_s[0]


def test_text_without_punctuation_is_cut_between_words() -> None:
    words = [f"word{number}" for number in range(400)]
    pieces = split_text(" ".join(words))
    assert all(len(piece) <= 240 for piece in pieces)
    assert " ".join(pieces).split() == words
    assert len(pieces) < 25


def test_cuts_prefer_punctuation_and_always_end() -> None:
    assert split_text("aaaa bbbb, cccc dddd", at_most=14) == ["aaaa bbbb,", "cccc dddd"]
    assert split_text("x" * 25, at_most=10) == ["x" * 10, "x" * 10, "x" * 5]
    assert split_text("你好，" * 10, at_most=12) == ["你好，你好，你好，你好，"] * 2 + ["你好，你好，"]


def test_a_voice_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot load the voice"):
        create({"voice": str(tmp_path / "none.onnx")}, lambda *_: None)
    with pytest.raises(ModelError, match="xx_XX-nobody: no such voice; there are: en_US"):
        create({"voice": "xx_XX-nobody"}, lambda *_: None)


async def test_the_voice_still_runs_after_a_request_was_closed() -> None:
    tts = voice()
    speech = tts.synthesize("One sentence. Another sentence.")
    await anext(speech)
    await speech.aclose()
    assert len(speak("It still speaks."))
