"""A whole server with scripted engines, in this process or as its own, and recordings to play to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr

from peer.calls import Calls
from peer.config import make_config
from peer.engines.base import LlmEngine, Samples
from peer.engines.factory import EngineSet
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts
from peer.http_api import ApiOptions, HttpApi
from signaling_server import listening, make_calls
from tests.speechlike import make_noise, make_voice

ROOT = Path(__file__).parents[2]
SCRIPTED = ("--asr", "scripted", "--llm", "scripted", "--tts", "scripted", "--turn", "scripted")


@dataclass
class LocalServer:
    """Where it is, and its calls."""

    url: str
    calls: Calls


@asynccontextmanager
async def local_server(
    *,
    asr: ScriptedAsr | None = None,
    llm: LlmEngine | None = None,
    tts: ScriptedTts | None = None,
    llm_name: str = "scripted",
    **options: object,
) -> AsyncIterator[LocalServer]:
    """Serve scripted engines on a free port of 127.0.0.1 in this process."""
    config = make_config({"port": 0, "llm": llm_name, **options})
    engines = EngineSet(
        asr=asr or ScriptedAsr(["What is it?"], record=False),
        llm=llm or ScriptedLlm(["Yes, it is."], record=False),
        tts=tts or ScriptedTts(record=False),
        turn=None,
    )
    calls = make_calls(config, engines)
    api = HttpApi(calls=calls, not_ready_reason=lambda: None, options=ApiOptions(access_token=config.access_token))
    async with listening(config, api.make_application()) as url:
        try:
            yield LocalServer(url=url, calls=calls)
        finally:
            await calls.aclose("over")


@asynccontextmanager
async def server_process(*arguments: str) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Run `signaling_server.py` with scripted engines on a free port; yields its address once it is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "signaling_server.py"),
        "--port",
        "0",
        "--quic-port",
        "0",
        *SCRIPTED,
        *arguments,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while not (line := (await process.stdout.readline()).decode()).startswith("ready: "):
                assert line, "the server ended before it was ready"
        yield line.removeprefix("ready: ").strip(), process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def utterance(seconds: float = 1.0, *, before: float = 0.3, after: float = 0.3) -> Samples:
    """Return a voice between two silences, int16 at 48 kHz."""
    parts = [make_noise(before), make_voice(seconds), make_noise(after, seed=2)]
    return np.asarray(soxr.resample(np.concatenate(parts), 16_000, 48_000), np.int16)
