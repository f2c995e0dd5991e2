"""The server under measurement, in a process of its own, and what it costs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

_ROOT = Path(__file__).parents[1]
_READY_TIMEOUT_S = 120.0


@dataclass
class MeasuredServer:
    """Its address and its process."""

    url: str
    process: psutil.Process
    ready_s: float

    def cpu_seconds(self) -> float:
        """Return the CPU time of the server and all its children so far."""
        return sum(self._of(process) for process in [self.process, *self.process.children(recursive=True)])

    def resident_bytes(self) -> int:
        """Return the resident memory of the server and all its children."""
        return sum(p.memory_info().rss for p in [self.process, *self.process.children(recursive=True)])

    @staticmethod
    def _of(process: psutil.Process) -> float:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(times.user + times.system)


@asynccontextmanager
async def measured_server(*arguments: str, log: Path | None = None) -> AsyncIterator[MeasuredServer]:
    """Run `signaling_server.py` on a free port and yield it once it is ready; its log goes to `log`, else to stderr."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    with contextlib.ExitStack() as stack:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(_ROOT / "signaling_server.py"),
            "--port",
            "0",
            "--quic-port",
            "0",
            "--log-level",
            "warning",
            *arguments,
            cwd=_ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if log is None else stack.enter_context(log.open("wb")),
        )
    task = asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)  # or who ends the benchmark leaves its server behind
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_READY_TIMEOUT_S):
            while not (line := (await process.stdout.readline()).decode()).startswith("ready: "):
                if not line:
                    raise RuntimeError("the server ended before it was ready")
        url = line.removeprefix("ready: ").strip()
        yield MeasuredServer(url=url, process=psutil.Process(process.pid), ready_s=loop.time() - began)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        if process.returncode is None:
            process.terminate()
        await process.wait()
