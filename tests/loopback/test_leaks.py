"""Calls one after another and ten at once leave no task, thread, process, socket or file behind, and no memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable

import psutil
import pytest

from peer.engines.scripted import ScriptedLlm
from peer.softphone_call import CallOptions, SoftphoneCall
from tests.loopback.local_server import LocalServer, local_server, utterance
from transport.messages import ReplyDone

_PROCESS = psutil.Process()
_VOICE = utterance(0.5, before=0.1, after=0.1)


def _count() -> dict[str, int]:
    gc.collect()
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "processes": len(_PROCESS.children(recursive=True)),
        "sockets": len(_PROCESS.net_connections(kind="all")),
        "files": _PROCESS.num_fds(),
    }


async def _hold_a_call(server: LocalServer) -> None:
    answered = asyncio.Event()

    def on_message(message: object) -> None:
        if isinstance(message, ReplyDone) and message.status == "completed":
            answered.set()

    async with SoftphoneCall(CallOptions(url=server.url)) as call:
        call.on_message = on_message
        await _until(lambda: call.log.state == "listening")
        async with asyncio.timeout(200):
            while not answered.is_set():  # a busy machine may swallow some of what is said
                call.connection.playout.clear_buffer(now=0.0)
                call.connection.playout.capture_frame(_VOICE)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(answered.wait(), 5.0)
    assert any(turn.heard_text == "Yes." for turn in call.log.turns)


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.05)


@pytest.mark.timeout(600)
async def test_twenty_calls_in_sequence_then_ten_at_once_leave_nothing_behind() -> None:
    async with local_server(llm=ScriptedLlm(["Yes."], record=False), silence_ms=300) as server:
        # What is loaded once, at the first calls, is no leak.
        await asyncio.gather(*(_hold_a_call(server) for _ in range(10)))
        await _until(lambda: len(server.calls) == 0)
        await asyncio.sleep(1.5)
        before, memory_before = _count(), _PROCESS.memory_info().rss
        for _ in range(20):
            await _hold_a_call(server)
        await asyncio.gather(*(_hold_a_call(server) for _ in range(10)))
        await _until(lambda: len(server.calls) == 0)
        await _until(lambda: _count() == before)
        await asyncio.sleep(1.5)
        grown = _PROCESS.memory_info().rss / memory_before - 1
        print(f"resident memory {memory_before / 2**20:.0f} MiB, grown by {grown:.1%} after 30 calls")
        assert grown < 0.05


async def test_a_call_that_is_cut_off_in_any_phase_leaves_nothing_behind() -> None:
    async with local_server(llm=ScriptedLlm(["Yes."], record=False), silence_ms=300) as server:
        await _hold_a_call(server)
        await _until(lambda: len(server.calls) == 0)
        await asyncio.sleep(1.0)
        before = _count()
        for wait_s in (0.0, 0.3, 0.9, 1.3):
            async with SoftphoneCall(CallOptions(url=server.url)) as call:
                call.connection.playout.capture_frame(_VOICE)
                await asyncio.sleep(wait_s)
        await _until(lambda: len(server.calls) == 0)
        await _until(lambda: _count() == before)
