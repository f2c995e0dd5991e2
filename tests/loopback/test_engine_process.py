"""The engine process: requests cross and stream, cancels cross, crashes are survived, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest

from peer.engines.base import ChatMessage, LlmOptions
from peer.engines.process import EngineProcess
from peer.engines.wire import PartSpec
from peer.errors import EngineError

FAKES = "tests.loopback.engine_fakes"
PARTS = {
    "asr": PartSpec(factory=f"{FAKES}:create_asr"),
    "llm": PartSpec(factory=f"{FAKES}:create_llm"),
    "tts": PartSpec(factory=f"{FAKES}:create_tts", options={"sample_rate_hz": 8_000}),
    "turn": PartSpec(factory=f"{FAKES}:create_turn"),
}
SECOND = np.arange(16_000, dtype=np.int16)


def say(text: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=text)]


async def reply_to(process: EngineProcess, text: str) -> str:
    return "".join([piece async for piece in process.llm.generate(say(text), options=LlmOptions(max_tokens=7))])


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def count_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture
async def process() -> AsyncIterator[EngineProcess]:
    engines = EngineProcess(PARTS)
    await engines.start()
    yield engines
    await engines.aclose()


async def test_every_part_answers_through_its_client(process: EngineProcess) -> None:
    assert process.not_ready_reason is None
    assert (await process.asr.transcribe(SECOND)).text == "I spoke for 10 tenths of a second."
    assert await reply_to(process, "count") == "one two 7"
    assert process.tts.sample_rate_hz == 8_000
    speech = [piece async for piece in process.tts.synthesize("three little words")]
    assert [len(piece) for piece in speech] == [4_000, 2_000]
    assert await process.turn.end_of_turn_probability(SECOND) == 0.25


async def test_requests_run_side_by_side_and_large_replies_do_not_mix(process: EngineProcess) -> None:
    texts = await asyncio.gather(*(reply_to(process, "big") for _ in range(3)), reply_to(process, "count"))
    assert [len(text) for text in texts] == [5_000_000] * 3 + [9]


async def test_a_cancel_crosses_at_once(process: EngineProcess) -> None:
    async with contextlib.aclosing(process.llm.generate(say("hang"))) as reply:
        assert await anext(reply) == "hanging"
        assert await process.llm.count_tokens([]) == 0
    assert await process.llm.count_tokens([]) == 1


async def test_cancelling_the_task_cancels_the_work(process: EngineProcess) -> None:
    started = asyncio.Event()

    async def listen() -> None:
        async for _ in process.llm.generate(say("hang")):
            started.set()

    task = asyncio.create_task(listen())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await process.llm.count_tokens([]) == 1


@pytest.mark.parametrize(
    ("text", "message", "retryable"), [("refuse", "out of tokens", False), ("crash", "ZeroDivisionError", True)]
)
async def test_an_engine_error_arrives_as_one(
    process: EngineProcess, text: str, message: str, *, retryable: bool
) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        await reply_to(process, text)
    assert caught.value.retryable is retryable
    assert await reply_to(process, "count") == "one two 7"


async def test_a_crash_fails_what_is_pending_and_the_next_request_works(process: EngineProcess) -> None:
    first_pid = process.pid
    hanging = asyncio.create_task(reply_to(process, "hang"))
    await asyncio.sleep(0)
    with pytest.raises(EngineError, match="died") as caught:
        await reply_to(process, "die")
    assert caught.value.retryable
    with pytest.raises(EngineError, match="died"):
        await hanging
    assert await reply_to(process, "count") == "one two 7"
    assert process.pid != first_pid


async def test_killed_with_9_it_comes_back(process: EngineProcess) -> None:
    assert process.pid is not None
    for _ in range(2):
        pid = process.pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: process.not_ready_reason is not None)
        assert await reply_to(process, "count") == "one two 7"
        assert process.pid != pid
        assert not is_alive(pid)


async def test_progress_is_told_by_part() -> None:
    told: list[tuple[str, float | None, str]] = []
    engines = EngineProcess(PARTS, on_progress=lambda *progress: told.append(progress))
    assert engines.not_ready_reason is not None
    await engines.start()
    await engines.aclose()
    assert ("llm", 0.5, "half way") in told
    assert {part for part, _, message in told if message == "ready"} == set(PARTS)


async def test_a_part_without_weights_says_so_and_is_not_tried_again() -> None:
    engines = EngineProcess({**PARTS, "llm": PartSpec(factory=f"{FAKES}:create_without_weights")})
    with pytest.raises(EngineError, match="llm: no weights; run: fetch") as caught:
        await engines.start()
    assert not caught.value.retryable
    assert engines.not_ready_reason == "llm: no weights; run: fetch"
    with pytest.raises(EngineError, match="no weights"):
        await reply_to(engines, "count")
    await engines.aclose()


async def test_a_process_that_dies_before_it_is_ready_is_given_up() -> None:
    engines = EngineProcess({"llm": PartSpec(factory=f"{FAKES}:create_and_die")})
    with pytest.raises(EngineError, match="died 3 times before it was ready"):
        await engines.start()
    await engines.aclose()


async def test_an_interpreter_that_is_not_there_is_named() -> None:
    engines = EngineProcess(PARTS, interpreter=".venv-nowhere/bin/python")
    with pytest.raises(EngineError, match=r"cannot run \.venv-nowhere/bin/python"):
        await engines.start()
    await engines.aclose()


async def test_closing_ends_the_process_and_every_task() -> None:
    before = len(asyncio.all_tasks()), count_files()
    engines = EngineProcess(PARTS)
    await engines.start()
    pid = engines.pid
    assert pid is not None
    hanging = asyncio.create_task(reply_to(engines, "hang"))
    await asyncio.sleep(0.05)
    await engines.aclose()
    with pytest.raises(EngineError):
        await hanging
    assert not is_alive(pid)
    assert engines.pid is None
    await asyncio.sleep(0)
    assert (len(asyncio.all_tasks()), count_files()) == before
    with pytest.raises(EngineError, match="shut down"):
        await reply_to(engines, "count")


async def test_a_deaf_process_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peer.engines.process._EXIT_S", 0.1)
    engines = EngineProcess(PARTS)
    await engines.start()
    pid = engines.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    await engines.aclose()
    assert not is_alive(pid)


_SERVER = """
import asyncio, os
from tests.loopback.test_engine_process import PARTS
from peer.engines.process import EngineProcess

async def main():
    engines = EngineProcess(PARTS)
    await engines.start()
    print(engines.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_when_the_server_is_killed_its_engine_process_ends() -> None:
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", _SERVER, stdout=subprocess.PIPE)
    assert server.stdout is not None
    pid = int(await server.stdout.readline())
    assert is_alive(pid)
    server.kill()
    await server.wait()
    async with asyncio.timeout(10):
        await until(lambda: not is_alive(pid))
