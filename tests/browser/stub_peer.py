"""A peer for the page's fault and layout tests only: serves web/, answers calls as a test says, speaks no engine."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web
from aiortc import MediaStreamTrack, RTCDataChannel, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

WEB = Path(__file__).parents[2] / "web"


class Tone(MediaStreamTrack):
    """A soft 330 Hz tone that comes and goes every half second."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._index = 0
        self._start = 0.0

    async def recv(self) -> AudioFrame:
        loop = asyncio.get_running_loop()
        self._start = self._start or loop.time()
        await asyncio.sleep(max(0.0, self._start + self._index * 0.02 - loop.time()))
        position = np.arange(960) + self._index * 960
        loud = 4000.0 if (self._index // 25) % 2 == 0 else 0.0
        samples = (loud * np.sin(2 * np.pi * 330 * position / 48_000)).astype(np.int16)
        frame = AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 48_000, self._index * 960, Fraction(1, 48_000)
        self._index += 1
        return frame


@dataclass
class StubPeer:
    """What the stub does is what its fields say at that moment."""

    not_ready: str | None = None
    token: str = ""
    refuse: tuple[int, str] | None = None
    hold_answer: bool = False
    break_ice: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    connections: dict[str, RTCPeerConnection] = field(default_factory=dict)
    channels: list[RTCDataChannel] = field(default_factory=list)
    url: str = ""
    heard_rms: float = 0.0
    """Loudness of the caller's newest 20 ms."""
    _listeners: set[asyncio.Task[None]] = field(default_factory=set)

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/", _index)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_post("/calls", self._place)
        app.router.add_patch("/calls/{id}", self._touch)
        app.router.add_delete("/calls/{id}", self._hang_up)
        app.router.add_static("/", WEB)
        return app

    async def send(self, *messages: dict[str, Any]) -> None:
        """Send on the newest data channel."""
        for message in messages:
            self.channels[-1].send(json.dumps(message))

    async def drop_calls(self) -> None:
        """End every call as a server does that is stopped."""
        for connection in list(self.connections.values()):
            await connection.close()
        self.connections.clear()
        for listener in self._listeners:
            listener.cancel()  # a track of a call that never connected never ends by itself
        await asyncio.gather(*self._listeners, return_exceptions=True)
        self._listeners.clear()

    async def _readyz(self, request: web.Request) -> web.Response:
        if self.not_ready is None:
            return web.json_response({"status": "ready"})
        return web.json_response({"status": "not_ready", "reason": self.not_ready}, status=503)

    async def _place(self, request: web.Request) -> web.Response:
        self.requests.append("POST")
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"error": "unauthorized"}, status=401)
        if self.refuse is not None:
            return web.json_response({"error": self.refuse[1]}, status=self.refuse[0])
        if self.hold_answer:
            await asyncio.sleep(60)
        offer = await request.json()
        call_id = f"call{len(self.requests)}"
        sdp = await self._answer(call_id, offer["sdp"])
        if self.break_ice:
            sdp = re.sub(r"a=ice-pwd:.*", "a=ice-pwd:" + "x" * 24, sdp)
        return web.json_response({"sdp": sdp, "type": "answer", "call_id": call_id, "control": None}, status=201)

    async def _answer(self, call_id: str, offer_sdp: str) -> str:
        connection = RTCPeerConnection()
        self.connections[call_id] = connection
        connection.addTrack(Tone())
        connection.on("datachannel", self._handle_channel)
        connection.on("track", lambda track: self._listeners.add(asyncio.create_task(self._listen(track))))
        offer_sdp = re.sub(r"a=candidate:.*\.local .*\r\n", "", offer_sdp)  # aiortc would look them up, and wait
        await connection.setRemoteDescription(RTCSessionDescription(sdp=offer_sdp, type="offer"))
        await connection.setLocalDescription(await connection.createAnswer())
        return connection.localDescription.sdp

    def _handle_channel(self, channel: RTCDataChannel) -> None:
        self.channels.append(channel)
        for message in self.messages:
            channel.send(json.dumps(message))

    async def _listen(self, track: MediaStreamTrack) -> None:
        with suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                assert isinstance(frame, AudioFrame)
                self.heard_rms = float(np.sqrt(np.mean(frame.to_ndarray().astype(np.float64) ** 2)))

    async def _touch(self, request: web.Request) -> web.Response:
        self.requests.append("PATCH")
        return web.Response(status=204)

    async def _hang_up(self, request: web.Request) -> web.Response:
        self.requests.append("DELETE")
        connection = self.connections.pop(request.match_info["id"], None)
        if connection is not None:
            await connection.close()
        return web.Response(status=204)


async def _index(_request: web.Request) -> web.FileResponse:
    return web.FileResponse(WEB / "index.html")


@asynccontextmanager
async def serve(peer: StubPeer, *, port: int = 0) -> AsyncIterator[StubPeer]:
    """Serve `peer` on a loopback port (0: a free one); its `url` says where."""
    runner = web.AppRunner(peer.application(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    peer.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield peer
    finally:
        await peer.drop_calls()
        await runner.cleanup()
