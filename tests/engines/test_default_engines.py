"""The default engines as the server has them: one process, all parts at once, bounded memory, back after kill -9.

Times are printed, not asserted: they belong to the benchmarks. Memory is a promise, and asserted.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from peer.engines.base import ChatMessage, LlmOptions, Samples
from peer.engines.factory import EngineSet, EngineSpec, create_engines
from peer.errors import EngineError
from tests.engines.speech import plain, speak

QUESTION = "What is the capital of France?"


def ask(text: str) -> list[ChatMessage]:
    return [ChatMessage(role="system", content="Answer in one short sentence."), ChatMessage(role="user", content=text)]


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def process_of(engines: EngineSet) -> int:
    pid = engines.processes[0].pid
    assert pid is not None
    return pid


@pytest.fixture
async def engines() -> AsyncIterator[EngineSet]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    ready = create_engines(EngineSpec())
    await ready.start()
    print(f"engines ready after {loop.time() - began:.1f} s, {resident_mb(process_of(ready)):.0f} MB")
    yield ready
    await ready.aclose()


async def take_turn(engines: EngineSet, audio: Samples) -> tuple[str, str, float]:
    """Hear, judge, answer and speak; return what was heard, the reply, and the seconds of speech."""
    loop = asyncio.get_running_loop()
    times = [loop.time()]
    assert engines.turn is not None
    assert 0.0 <= await engines.turn.end_of_turn_probability(audio) <= 1.0
    times.append(loop.time())
    heard = (await engines.asr.transcribe(audio)).text
    times.append(loop.time())
    reply = "".join([p async for p in engines.llm.generate(ask(heard), options=LlmOptions(max_tokens=24))])
    times.append(loop.time())
    speech = [piece async for piece in engines.tts.synthesize(reply)]
    times.append(loop.time())
    turn, asr, llm, tts = (round(1000 * (end - start)) for start, end in itertools.pairwise(times))
    print(f"turn {turn} ms, asr {asr} ms, llm {llm} ms, tts {tts} ms")
    return heard, reply, sum(map(len, speech)) / engines.tts.sample_rate_hz


async def test_a_turn_then_three_at_once_in_bounded_memory(engines: EngineSet) -> None:
    audio = speak(QUESTION)
    lags: list[float] = []

    async def watch_the_loop() -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.005)
            lags.append(loop.time() - before - 0.005)

    watching = asyncio.create_task(watch_the_loop())
    turns = [await take_turn(engines, audio)]
    turns += await asyncio.gather(*(take_turn(engines, audio) for _ in range(3)))
    watching.cancel()
    for heard, reply, seconds in turns:
        assert plain(heard) == plain(QUESTION)
        assert "Paris" in reply
        assert 0.5 < seconds < 20
    memory = resident_mb(process_of(engines))
    print(f"loop lag p99 {1000 * np.percentile(lags, 99):.1f} ms of {len(lags)}; engine process {memory:.0f} MB")
    assert memory < 1_000


async def test_killed_with_9_in_the_middle_of_a_reply_the_next_turn_works(engines: EngineSet) -> None:
    reply = engines.llm.generate(ask("Tell me a long story."), options=LlmOptions(max_tokens=2_000))
    await anext(reply)
    killed = process_of(engines)
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(EngineError) as caught:
        [piece async for piece in reply]
    assert caught.value.retryable
    while engines.not_ready_reason is not None:
        await asyncio.sleep(0.05)
    heard, answer, _ = await take_turn(engines, speak(QUESTION))
    assert plain(heard) == plain(QUESTION)
    assert answer
    assert process_of(engines) != killed


async def test_a_model_that_cannot_be_had_is_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_OFFLINE", "1")
    engines = create_engines(EngineSpec(cache_dir=tmp_path))
    with pytest.raises(EngineError, match="ANTIPHON_OFFLINE forbids to fetch: unset it") as caught:
        await engines.start()
    assert not caught.value.retryable
    await engines.aclose()
