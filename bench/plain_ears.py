"""The receiving half of a voice agent on plain aiortc: what comes out of its track, cut into turns at silence.

The caller and the recogniser are those of our own calls; only the way from the packets to the sound is aiortc's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import aiohttp
import av
import numpy as np
from aiohttp import web
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError

from bench.local_site import local_site
from bench.plain_peer import LOUD_RMS, QUIET_S, RATE_HZ, SHORTEST_S
from impair.ice_proxy import IceProxy
from impair.relay_process import RelayProcess
from peer.engines.base import Samples
from transport.peer_connection import PeerConnection, TransportConfig

CONNECT_TIMEOUT_S = 20.0
STEP_SAMPLES = RATE_HZ // 50


class PlainEar:
    """One call, as aiortc hears it."""

    def __init__(self) -> None:
        self.peer = RTCPeerConnection()
        self._pieces: list[Samples] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.peer.on("track", lambda track: self._tasks.append(asyncio.create_task(self._listen(track))))

    @property
    def heard(self) -> Samples:
        """All sound so far, int16 at 16 kHz."""
        return np.concatenate(self._pieces) if self._pieces else np.zeros(0, np.int16)

    async def _listen(self, track: MediaStreamTrack) -> None:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
        with contextlib.suppress(MediaStreamError):
            while True:
                received: Any = await track.recv()
                self._pieces += [frame.to_ndarray()[0] for frame in resampler.resample(received)]

    async def close(self) -> None:
        """Hang up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.peer.close()


class PlainExchange:
    """Answers calls as a plain aiortc program does."""

    def __init__(self) -> None:
        self.ears: list[PlainEar] = []
        self.url = ""
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Serve on a free port of 127.0.0.1."""
        app = web.Application()
        app.router.add_post("/calls", self._answer)
        self.url = await self._open.enter_async_context(local_site(app))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every call."""
        await asyncio.gather(*(ear.close() for ear in self.ears))
        await self._open.aclose()

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        ear, number = PlainEar(), len(self.ears)
        self.ears.append(ear)
        await ear.peer.setRemoteDescription(RTCSessionDescription(body["sdp"], body["type"]))
        await ear.peer.setLocalDescription(await ear.peer.createAnswer())
        payload = {"sdp": ear.peer.localDescription.sdp, "type": "answer", "ear": number}
        return web.json_response(payload, status=201)


@asynccontextmanager
async def plain_lines(
    exchange: PlainExchange, relay: RelayProcess, count: int
) -> AsyncIterator[list[tuple[PeerConnection, PlainEar]]]:
    """Place `count` calls at once through `relay`, each from our own sender."""
    async with IceProxy(exchange.url, relay.add_route) as proxy, AsyncExitStack() as stack:
        yield await asyncio.gather(*(stack.enter_async_context(_plain_line(exchange, proxy.url)) for _ in range(count)))


@asynccontextmanager
async def _plain_line(exchange: PlainExchange, url: str) -> AsyncIterator[tuple[PeerConnection, PlainEar]]:
    connection = PeerConnection(TransportConfig(hosts=("127.0.0.1",)))
    connected = asyncio.Event()
    connection.on_state = lambda state, _: connected.set() if state == "connected" else None
    ear = None
    try:
        body = {"sdp": await connection.offer(), "type": "offer"}
        async with aiohttp.ClientSession() as http, http.post(f"{url}/calls", json=body) as got:
            answer = await got.json()
        ear = exchange.ears[answer["ear"]]
        await connection.accept(answer["sdp"])
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await connected.wait()
        connection.encoder.set_dtx(False)  # browsers send their pauses too; without them aiortc's track skips the time
        yield connection, ear
    finally:
        await connection.close()
        if ear is not None:
            await ear.close()


def turns(sound: Samples) -> list[Samples]:
    """Cut `sound` as `bench.plain_peer` does: QUIET_S of quiet end a turn, less than SHORTEST_S of sound is none."""
    found: list[Samples] = []
    begin: int | None = None
    loud_s = quiet_s = 0.0
    for at in range(0, len(sound) - STEP_SAMPLES + 1, STEP_SAMPLES):
        piece = sound[at : at + STEP_SAMPLES].astype(np.float32)
        if float(np.sqrt(np.mean(np.square(piece)))) > LOUD_RMS:
            begin = at if begin is None else begin
            loud_s, quiet_s = loud_s + STEP_SAMPLES / RATE_HZ, 0.0
        else:
            quiet_s += STEP_SAMPLES / RATE_HZ
        if begin is not None and quiet_s > QUIET_S:
            if loud_s > SHORTEST_S:
                found.append(sound[begin : at + STEP_SAMPLES])
            begin, loud_s = None, 0.0
    if begin is not None and loud_s > SHORTEST_S:
        found.append(sound[begin:])
    return found
