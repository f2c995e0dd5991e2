"""The engine process: loads the engines it is told to, then serves requests until its server goes away.

Started by peer.engines.process with one end of a socket pair, under any interpreter that has numpy, msgspec and what
the named engines need. Every request is a task, so that a cancellation is acted on while native code works in threads.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import importlib
import inspect
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peer.engines import wire
from peer.errors import EngineError, ModelError
from transport.errors import AntiphonError

_PR_SET_PDEATHSIG = 1
_CLOSE_S = 3.0
_log = logging.getLogger("antiphon.engines.host")

Report = Callable[[float | None, str], None]
"""How a factory tells its progress: (fraction 0..1 or None, what is being done); callable from any thread."""


class Host:
    """Serves the engines of one process over one socket."""

    def __init__(self, stream: wire.FrameStream[wire.ToHost]) -> None:
        self._stream = stream
        self._engines: dict[str, Any] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Load what the first frame names and answer requests until the other side closes."""
        first = await self._stream.read()
        if not isinstance(first, wire.Configure):
            return
        loading = asyncio.create_task(self._load_all(first.parts))
        try:
            await self._answer_requests()
        finally:
            loading.cancel()
            for task in (loading, *self._tasks.values()):
                task.cancel()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._close_engines(), _CLOSE_S)

    async def _answer_requests(self) -> None:
        while (frame := await self._stream.read()) is not None:
            if isinstance(frame, wire.Cancel):
                if task := self._tasks.get(frame.request_id):
                    task.cancel()
            elif not isinstance(frame, wire.Configure):
                self._tasks[frame.request_id] = asyncio.create_task(self._answer(frame))

    async def _load_all(self, parts: dict[str, wire.PartSpec]) -> None:
        async with asyncio.TaskGroup() as group:
            for name, spec in parts.items():
                group.create_task(self._load(name, spec))
        if len(self._engines) == len(parts):
            self._stream.write(wire.Ready(sample_rate_hz=getattr(self._engines.get("tts"), "sample_rate_hz", None)))

    async def _load(self, part: str, spec: wire.PartSpec) -> None:
        loop = asyncio.get_running_loop()

        def report(fraction: float | None, message: str) -> None:
            frame = wire.Progress(part=part, fraction=fraction, message=message)
            loop.call_soon_threadsafe(self._stream.write, frame)

        try:
            module, _, function = spec.factory.partition(":")
            report(None, "loading")
            factory = getattr(await asyncio.to_thread(importlib.import_module, module), function)
            if inspect.iscoroutinefunction(factory):
                self._engines[part] = await factory(spec.options, report)
            else:
                self._engines[part] = await asyncio.to_thread(factory, spec.options, report)
            report(1.0, "ready")
        except Exception as error:
            expected = isinstance(error, AntiphonError)
            if not expected:
                _log.exception("loading %s", part)
            retryable = getattr(error, "retryable", not isinstance(error, (ModelError, ImportError)))
            message = str(error) if expected else f"{type(error).__name__}: {error}"
            self._stream.write(wire.NotLoaded(part=part, message=message, retryable=retryable))

    async def _answer(self, request: wire.Request) -> None:
        try:
            await self._perform(request)
        except EngineError as error:
            self._fail(request, str(error), retryable=error.retryable)
        except Exception as error:
            _log.exception("answering a request")
            self._fail(request, f"{type(error).__name__}: {error}", retryable=True)
        finally:
            del self._tasks[request.request_id]

    def _fail(self, request: wire.Request, message: str, *, retryable: bool) -> None:
        self._stream.write(wire.Failed(request_id=request.request_id, message=message, retryable=retryable))

    async def _perform(self, request: wire.Request) -> None:
        engines, number = self._engines, request.request_id
        match request:
            case wire.Transcribe():
                heard = await engines["asr"].transcribe(wire.unpack_audio(request.audio), options=request.options)
                self._stream.write(wire.TranscriptReply(request_id=number, transcript=heard))
            case wire.JudgeTurn():
                probability = await engines["turn"].end_of_turn_probability(wire.unpack_audio(request.audio))
                self._stream.write(wire.NumberReply(request_id=number, value=probability))
            case wire.CountTokens():
                count = await engines["llm"].count_tokens(request.messages)
                self._stream.write(wire.NumberReply(request_id=number, value=count))
            case wire.Generate():
                async with contextlib.aclosing(
                    engines["llm"].generate(request.messages, options=request.options)
                ) as texts:
                    async for text in texts:
                        self._stream.write(wire.TextPiece(request_id=number, text=text))
                        await self._stream.drain()
                self._stream.write(wire.Done(request_id=number))
            case wire.Synthesize():
                async with contextlib.aclosing(
                    engines["tts"].synthesize(request.text, options=request.options)
                ) as pieces:
                    async for piece in pieces:
                        self._stream.write(wire.AudioPiece(request_id=number, audio=wire.pack_audio(piece)))
                        await self._stream.drain()
                self._stream.write(wire.Done(request_id=number))

    async def _close_engines(self) -> None:
        for engine in self._engines.values():
            if close := getattr(engine, "aclose", None):
                await close()


def _die_with_parent(parent_pid: int) -> None:
    """Have the kernel end this process when its server dies, however that happens (Linux)."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(0)


def _yield_to_others(niceness: int) -> None:
    """Lower this process's priority, and its session's, since Linux shares the cores out between sessions first."""
    os.nice(niceness)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness))


async def _serve(file_descriptor: int) -> None:
    connection = socket.socket(fileno=file_descriptor)
    reader, writer = await asyncio.open_connection(sock=connection)
    await Host(wire.FrameStream(reader, writer, wire.TO_HOST)).serve()


def main() -> None:
    """Run the engine process: `python -m peer.engines.host --fd N --parent PID --nice N`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--nice", type=int, default=0)
    options = parser.parse_args()
    _die_with_parent(options.parent)
    _yield_to_others(options.nice)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_serve(options.fd))
    # Native threads may be in the middle of a request that nobody waits for; interpreter shutdown would join them.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
