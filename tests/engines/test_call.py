"""A spoken call with the default engines, in virtual voices: what was said is understood, what is answered is heard."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import jiwer
import numpy as np
import psutil
import pytest

from bench.caller import Utterance, synthetic
from bench.server import MeasuredServer, measured_server
from peer.engines.base import Samples
from peer.models import ModelStore
from peer.softphone_call import CallOptions, SoftphoneCall

_SENTENCES = ("What is the capital of France?", "Please tell me something about the moon.")


@pytest.fixture(scope="module")
def said() -> list[Utterance]:
    return synthetic(_SENTENCES)


@pytest.fixture
async def server() -> AsyncIterator[MeasuredServer]:
    async with measured_server() as running:
        yield running


def _words(text: str) -> str:
    return " ".join(re.sub(r"[^a-z' ]", " ", text.lower().replace("-", " ")).split())


def _transcribe(samples: Samples) -> str:
    from faster_whisper import WhisperModel

    model = WhisperModel(str(ModelStore().path("whisper-tiny.en")), compute_type="int8", cpu_threads=2)
    audio = np.concatenate([samples, np.zeros(4 * 16_000, np.int16)]).astype(np.float32) / 32768
    segments, _ = model.transcribe(audio, language="en")
    return " ".join(segment.text for segment in segments)


async def _play(call: SoftphoneCall, utterance: Utterance, *, first: bool = False) -> None:
    await call.play(utterance.samples, speech_ends_ms=[utterance.speech_end_ms], labelled=True, first=first)


async def _health(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/healthz") as response:
        health: dict[str, Any] = await response.json()
        return health


async def test_a_spoken_call_is_understood_and_its_answer_heard(server: MeasuredServer, said: list[Utterance]) -> None:
    async with SoftphoneCall(CallOptions(url=server.url)) as call:
        await _play(call, said[0], first=True)
    turn = call.log.turns[-1]
    assert jiwer.wer(_words(_SENTENCES[0]), _words(turn.user_text)) <= 0.2
    assert turn.heard_text == turn.reply_text
    assert len(turn.heard_text.split()) >= 2
    # The record from the recording's end on is the answer.
    start = round(len(said[0].samples) / 3)
    heard = await asyncio.to_thread(_transcribe, call.recorder.recording()[start:])
    assert jiwer.wer(_words(turn.heard_text), _words(heard)) <= 0.25
    assert not call.log.errors
    print(f"ready after {server.ready_s:.1f} s, resident {server.resident_bytes() / 2**20:.0f} MiB")
    print(f"voice to voice {turn.voice_to_voice_ms} ms: {turn.latency_ms}")
    assert server.resident_bytes() < 1.3e9


async def test_a_caller_who_speaks_over_the_answer_silences_it_and_is_answered(
    server: MeasuredServer, said: list[Utterance]
) -> None:
    async with SoftphoneCall(CallOptions(url=server.url)) as call:
        playing = asyncio.create_task(_play(call, said[1], first=True))
        async with asyncio.timeout(60):
            while call.log.state != "speaking":
                await asyncio.sleep(0.02)
        await asyncio.sleep(1.0)
        playing.cancel()
        await _interrupt(call, said[0])
        first, *_, last = call.log.turns
    assert first.interrupted
    assert len(first.heard_text.split()) >= 1
    assert first.reply_text.startswith(first.heard_text)
    assert first.heard_text != first.reply_text
    assert jiwer.wer(_words(_SENTENCES[0]), _words(last.user_text)) <= 0.3
    assert last.heard_text == last.reply_text != ""


async def _interrupt(call: SoftphoneCall, utterance: Utterance) -> None:
    """Speak while the peer does, and wait until it has answered."""
    turns = len(call.log.turns)
    call.connection.playout.clear_buffer(now=0.0)
    call.connection.playout.capture_frame(utterance.samples)
    async with asyncio.timeout(90):
        while len(call.log.turns) == turns or not call.log.settled:
            await asyncio.sleep(0.05)


async def test_engines_killed_in_mid_call_come_back_and_the_next_turn_works(
    server: MeasuredServer, said: list[Utterance]
) -> None:
    async with SoftphoneCall(CallOptions(url=server.url)) as call:
        await _play(call, said[0], first=True)
        assert call.log.turns[-1].reply_text
        engines = [child for child in server.process.children() if "peer.engines.host" in " ".join(child.cmdline())]
        assert engines
        for engine in engines:
            engine.kill()
        psutil.wait_procs(engines, timeout=5)
        turns = len(call.log.turns)
        await _play(call, said[1])
        assert call.is_up
        answered = call.log.turns[turns:]
        assert jiwer.wer(_words(_SENTENCES[1]), _words(answered[-1].user_text)) <= 0.3
        assert answered[-1].heard_text
        lag_ms = float((await _health(server.url))["loop_lag_p99_ms"])
    print(f"loop lag of the media process, p99, while all engines worked and came back: {lag_ms:.2f} ms")
