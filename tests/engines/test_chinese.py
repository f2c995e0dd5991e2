"""Chinese by the multilingual base model: detected, heard right, and with a stable prefix while it is spoken."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from peer.agreement import Partial
from peer.audio_history import AudioHistory
from peer.end_of_turn import Completeness, judge_words
from peer.engines.asr_whisper import WhisperAsr, create
from peer.engines.base import Samples
from peer.transcriber import TurnTranscriber

_FOLDER = Path(__file__).parent / "speech_zh"


@pytest.fixture(scope="module")
def asr() -> Iterator[WhisperAsr]:
    engine = create({"model": "base", "threads": 2}, lambda *_: None)
    yield engine
    engine._executor.shutdown()


def _recording(name: str) -> Samples:
    samples, rate = soundfile.read(_FOLDER / f"{name}.flac", dtype="int16")
    assert rate == 16_000
    return np.asarray(samples, np.int16)


def _words(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


async def test_chinese_is_detected_and_heard_right(asr: WhisperAsr) -> None:
    heard = await asr.transcribe(_recording("story"))
    assert heard.language == "zh"
    assert _words(heard.text) in {"你能给我讲一个故事吗", "你能給我講一個故事嗎"}
    assert judge_words(heard.text) is Completeness.COMPLETE


async def test_chinese_has_a_stable_prefix_while_it_is_spoken(asr: WhisperAsr) -> None:
    sound = np.concatenate([_recording("ticket"), np.zeros(4_800, np.int16)])
    history = AudioHistory()
    told: list[Partial] = []
    transcriber = TurnTranscriber(engine=asr, history=history, start_samples=0, on_partial=told.append)
    following = asyncio.create_task(transcriber.follow())
    for start in range(0, len(sound), 8_000):  # as fast as the model listens
        before = len(told)
        history.append(sound[start : start + 8_000], position_samples=start)
        transcriber.handle_audio()
        async with asyncio.timeout(30):
            while len(told) == before and start >= 8_000 and history.end_samples < len(sound):
                await asyncio.sleep(0.01)
    final = await transcriber.finish(len(sound) - 4_800)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    stable = [partial.stable_text for partial in told]
    assert len(stable) >= 3
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(stable))
    assert len(stable[-1]) >= 4, "it is agreed on by characters, not by the whole sentence"
    assert "明天早上" in final.text
    assert "去上海的火" in final.text
