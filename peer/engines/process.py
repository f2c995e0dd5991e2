"""The supervisor of an engine process: starts it, hands out clients, restarts it when it dies.

Nothing here blocks: frames are handed to a socket pair, and the process is waited for by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path

from peer.engines import wire
from peer.engines.clients import AsrClient, LlmClient, TtsClient, TurnClient
from peer.errors import EngineError

OnProgress = Callable[[str, float | None, str], None]
"""Called with (part, fraction 0..1 or None where unknown, what is being done)."""

_log = logging.getLogger("antiphon.engines")
_NICENESS = 5
_BACKOFF_S = (0.05, 0.5, 1.0, 2.0, 5.0, 10.0)
_STEADY_S = 60.0
"""A process that lived this long is restarted at once again."""
_STARTS_BEFORE_GIVING_UP = 3
_WAIT_FOR_READY_S = 30.0
"""How long a request waits for a process that is being restarted."""
_EXIT_S = 5.0
_ROOT = Path(__file__).resolve().parents[2]


class EngineProcess:
    """One engine process and the clients of the parts in it."""

    def __init__(
        self,
        parts: Mapping[str, wire.PartSpec],
        *,
        interpreter: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._parts = dict(parts)
        self._interpreter = interpreter
        self._environment = dict(environment or {})
        self._on_progress = on_progress
        self._process: asyncio.subprocess.Process | None = None
        self._stream: wire.FrameStream[wire.FromHost] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._decided = asyncio.Event()
        """Set while the engines are ready, and for good once they were given up."""
        self._given_up: EngineError | None = None
        self._state = dict.fromkeys(self._parts, "not started")
        self._request_ids = itertools.count()
        self._pending: dict[int, asyncio.Queue[wire.Reply]] = {}
        self._was_ready = False
        self.asr = AsrClient(self.exchange)
        self.llm = LlmClient(self.exchange)
        self.tts = TtsClient(self.exchange)
        self.turn = TurnClient(self.exchange)

    @property
    def pid(self) -> int | None:
        """Process id while one is running."""
        return self._process.pid if self._process else None

    @property
    def not_ready_reason(self) -> str | None:
        """What keeps the engines from answering now, in words; None when nothing does."""
        if self._given_up:
            return str(self._given_up)
        if self._decided.is_set():
            return None
        return ", ".join(f"{part}: {state}" for part, state in self._state.items() if state != "ready") or "starting"

    async def start(self) -> None:
        """Start the process and wait until every part is loaded and warm; raises EngineError when that cannot be."""
        self._supervisor = asyncio.create_task(self._supervise())
        await self._decided.wait()
        if self._given_up:
            raise self._given_up

    async def aclose(self) -> None:
        """End the process; whoever still waits for an answer gets EngineError."""
        if self._supervisor:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        self._give_up(EngineError("the engines are shut down", retryable=False))
        self._fail_pending("the engines are shut down")

    async def exchange(self, make_request: Callable[[int], wire.Request]) -> AsyncGenerator[wire.Reply, None]:
        """Send a request and yield its replies until the last; closing the generator cancels it over there."""
        await self._wait_until_ready()
        request_id = next(self._request_ids)
        replies: asyncio.Queue[wire.Reply] = asyncio.Queue()
        self._pending[request_id] = replies
        self._write(make_request(request_id))
        try:
            while True:
                reply = await replies.get()
                if isinstance(reply, wire.Failed):
                    raise EngineError(reply.message, retryable=reply.retryable)
                if isinstance(reply, (wire.Done, wire.TranscriptReply, wire.NumberReply)):
                    del self._pending[request_id]
                yield reply
                if request_id not in self._pending:
                    return
        finally:
            if self._pending.pop(request_id, None) is not None:
                self._write(wire.Cancel(request_id=request_id))

    async def _wait_until_ready(self) -> None:
        if not self._decided.is_set():
            try:
                await asyncio.wait_for(self._decided.wait(), _WAIT_FOR_READY_S)
            except TimeoutError:
                raise EngineError(f"the engines are not ready ({self.not_ready_reason})") from None
        if self._given_up:
            raise self._given_up

    def _give_up(self, error: EngineError) -> None:
        self._given_up = self._given_up or error
        self._decided.set()

    def _write(self, frame: wire.ToHost) -> None:
        if self._stream:
            self._stream.write(frame)

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        deaths = 0
        while True:
            began = loop.time()
            try:
                refusal = await self._run_once()
            finally:
                self._decided.clear()
                self._fail_pending("the engine process died")
            deaths = 1 if loop.time() - began > _STEADY_S else deaths + 1
            if refusal is None and not self._was_ready and deaths >= _STARTS_BEFORE_GIVING_UP:
                refusal = EngineError(f"the engine process died {deaths} times before it was ready")
            if refusal:
                self._give_up(refusal)
                return
            delay_s = _BACKOFF_S[min(deaths, len(_BACKOFF_S)) - 1]
            _log.warning("engine process died; it starts again in %.2f s", delay_s)
            self._state = dict.fromkeys(self._parts, "restarting")
            await asyncio.sleep(delay_s)

    async def _run_once(self) -> EngineError | None:
        """Run one process until it ends; returns an error when another one would fare no better."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await self._spawn(theirs)
            except OSError as failure:
                ours.close()
                return EngineError(f"cannot run {self._interpreter}: {failure.strerror}", retryable=False)
        self._process = process
        try:
            reader, writer = await asyncio.open_connection(sock=ours)
            self._stream = wire.FrameStream(reader, writer, wire.FROM_HOST)
            self._write(wire.Configure(parts=self._parts))
            while (frame := await self._stream.read()) is not None:
                if isinstance(frame, wire.NotLoaded):
                    error = EngineError(f"{frame.part}: {frame.message}", retryable=frame.retryable)
                    return None if frame.retryable and self._was_ready else error
                self._handle(frame)
        finally:
            await self._end_process(process)
        return None

    async def _spawn(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        handle = theirs.fileno()
        command = [self._interpreter, "-m", "peer.engines.host", "--fd", str(handle)]
        command += ["--parent", str(os.getpid()), "--nice", str(_NICENESS)]
        search = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        return await asyncio.create_subprocess_exec(
            *command,
            pass_fds=(handle,),
            stdin=asyncio.subprocess.DEVNULL,
            env={**self._environment, **os.environ, "PYTHONPATH": search},
            start_new_session=True,  # Ctrl-C is the server's to handle, and a session of its own can be ended whole
        )

    async def _end_process(self, process: asyncio.subprocess.Process) -> None:
        if self._stream:
            self._stream.close()
            self._stream = None
        self._process = None
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _EXIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def _handle(self, frame: wire.FromHost) -> None:
        match frame:
            case wire.Progress():
                self._state[frame.part] = frame.message
                if self._on_progress:
                    self._on_progress(frame.part, frame.fraction, frame.message)
            case wire.Ready():
                if frame.sample_rate_hz:
                    self.tts.sample_rate_hz = frame.sample_rate_hz
                self._was_ready = True
                self._decided.set()
            case wire.NotLoaded():
                raise AssertionError("ends the process before it gets here")
            case _:
                if (replies := self._pending.get(frame.request_id)) is not None:
                    replies.put_nowait(frame)

    def _fail_pending(self, message: str) -> None:
        for request_id, replies in self._pending.items():
            replies.put_nowait(wire.Failed(request_id=request_id, message=message, retryable=True))
