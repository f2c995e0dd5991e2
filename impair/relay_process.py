"""A relay in a process of its own, steered over its local HTTP: no loop of ours and no GIL disturbs its time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any, Self

import aiohttp

from impair.errors import RelayError
from impair.flows import Address
from impair.profile import Direction, MediaWays
from impair.waiting import die_with_parent

_START_TIMEOUT_S = 20.0
_END_TIMEOUT_S = 10.0


class RelayProcess:
    """An async context manager: the relay runs inside, its last report is in `report` behind.

    Raises RelayError where the relay does not start, or a command makes no sense.
    """

    def __init__(
        self,
        profile: str,
        *,
        seed: int = 0,
        media: MediaWays = "both",
        control: str = "0",
        log: Path | None = None,
        record: str | None = None,
    ) -> None:
        self._arguments = [profile, "--seed", str(seed), "--media", media, "--control", control, "--json"]
        if log is not None:
            self._arguments += ["--log", str(log)]
        if record is not None:
            self._arguments += ["--record", record]
        self._process: asyncio.subprocess.Process | None = None
        self._http: aiohttp.ClientSession | None = None
        self.url = ""
        """Where its commands are taken."""
        self.report: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        """Start the relay."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "impair", *self._arguments,
            stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, preexec_fn=die_with_parent,
        )  # fmt: skip
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                first = await self._process.stdout.readline()
                if not first:
                    _, errors = await self._process.communicate()
                    raise RelayError(errors.decode(errors="replace").strip().removeprefix("python -m impair: "))
        except TimeoutError:
            await self._end()
            raise RelayError("the relay did not start in time") from None
        self.url = str(json.loads(first)["control"])
        # The relay's small server answers one request a connection best.
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the relay and keep its report."""
        if self._http is not None:
            await self._http.close()
        await self._end()

    async def _end(self) -> None:
        process = self._process
        assert process is not None
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                out, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            out, _ = await process.communicate()
        with contextlib.suppress(ValueError, IndexError):
            self.report = json.loads(out.splitlines()[-1])

    @property
    def process_id(self) -> int:
        """The relay's process."""
        assert self._process is not None
        return self._process.pid

    async def add_route(
        self, to: Address, listener: Direction = "up", *, listen: Address = ("127.0.0.1", 0)
    ) -> Address:
        """Relay from a port there (0: any free one) to this address; gives the address it listens on."""
        answer = await self._post("route", {"to": _text(to), "listen": _text(listen), "listener": listener})
        host, port = answer["listen"]
        return str(host), int(port)

    async def set_profile(self, profile: str, *, seed: int = 0, media: MediaWays = "both") -> None:
        """Change the network of every flow, now."""
        await self._post("profile", {"profile": profile, "seed": seed, "media": media})

    async def begin_outage(self, duration_s: float) -> None:
        """Lose everything for so long."""
        await self._post("outage", {"seconds": duration_s})

    async def rebind(self) -> int:
        """Give every flow another source port towards its target; how many there were."""
        return int((await self._post("rebind", {}))["rebound"])

    async def stats(self) -> dict[str, Any]:
        """What the relay did so far."""
        assert self._http is not None
        async with self._http.get(f"{self.url}/stats") as response:
            return dict(await response.json())

    async def _post(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert self._http is not None
        try:
            async with self._http.post(f"{self.url}/{command}", json=arguments) as response:
                answer = dict(await response.json())
        except aiohttp.ClientError as error:
            raise RelayError(f"the relay does not answer: {error}") from error
        if "error" in answer:
            raise RelayError(str(answer["error"]))
        return answer


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
