"""Calls between two of our own peers through a relay, as many at once as wanted: what the way up is measured on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import numpy as np
from aiohttp import web

from bench.downlink_page import PAGE
from bench.local_site import local_site
from impair.ice_proxy import IceProxy
from impair.relay_process import RelayProcess
from jitter.frame import AudioFrame
from jitter.packet import RtpPacket
from peer.engines.base import Samples
from peer.softphone_channel import SoftphoneChannel
from transport.call_network import CallNetwork
from transport.peer_connection import PeerConnection, TransportConfig
from transport.quic_server import ControlServer

_LOCAL = TransportConfig(hosts=("127.0.0.1",))
CONNECT_TIMEOUT_S = 20.0
_WEB = Path(__file__).parents[1] / "web"


@dataclass
class Callee:
    """The server's end of one call, and everything it received."""

    connection: PeerConnection
    network: CallNetwork
    frames: list[AudioFrame] = field(default_factory=list)
    packets: list[tuple[float, int]] = field(default_factory=list)
    """Arrival and sequence number of each packet."""

    @property
    def heard(self) -> Samples:
        """All sound so far, int16 at 16 kHz."""
        return np.concatenate([frame.samples for frame in self.frames]) if self.frames else np.zeros(0, np.int16)


async def _page(_: web.Request) -> web.Response:
    return web.Response(text=PAGE, content_type="text/html")


class Exchange:
    """Answers calls in this process, a browser's too; every call has its control channel."""

    def __init__(self, configs: Sequence[TransportConfig] = (_LOCAL,)) -> None:
        """Calls are answered with one of `configs` after another."""
        self._configs = configs
        self.control = ControlServer(host="127.0.0.1", port=0, unix_time=time.time)
        self.callees: dict[str, Callee] = {}
        self.url = ""
        self._open = AsyncExitStack()
        self._count = 0

    async def __aenter__(self) -> Self:
        """Serve on free ports of 127.0.0.1."""
        await self.control.start()
        app = web.Application()
        app.router.add_post("/calls", self._answer)
        app.router.add_get("/", _page)
        app.router.add_static("/web", _WEB)
        self.url = await self._open.enter_async_context(local_site(app))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every call."""
        for call_id in list(self.callees):
            await self.hang_up(call_id)
        await self._open.aclose()
        await self.control.aclose()

    async def play(self, seconds: float) -> None:
        """Pull sound from every call as a loudspeaker does, 10 ms at a time, for so long."""
        loop = asyncio.get_running_loop()
        due = began = loop.time()
        while due < began + seconds:
            for callee in self.callees.values():
                callee.connection.get_audio(now=max(due, loop.time()))
            due += 0.01
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def hang_up(self, call_id: str) -> None:
        """End one call."""
        callee = self.callees.pop(call_id)
        callee.network.close()
        self.control.unregister(call_id)
        await callee.connection.close()

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._count += 1
        call_id = f"call-{self._count}"
        connection = PeerConnection(self._configs[(self._count - 1) % len(self._configs)])
        network = CallNetwork(connection, call_id=call_id)
        callee = self.callees[call_id] = Callee(connection=connection, network=network)
        connection.on_message = network.take_text
        connection.on_state = lambda state, _: network.start() if state == "connected" else None
        connection.on_audio = lambda frames, _: callee.frames.extend(frames)
        observe = connection.on_packet

        def handle_packet(packet: RtpPacket, now: float) -> None:
            callee.packets.append((packet.arrival, packet.sequence_number))
            if observe is not None:
                observe(packet, now)

        connection.on_packet = handle_packet
        self.control.register(network.control, send_out_of_band=network.send_out_of_band)
        answer = await connection.answer(body["sdp"])
        control = self.control.describe(call_id, "127.0.0.1")
        payload = {"sdp": answer, "type": "answer", "call_id": call_id, "control": control}
        return web.json_response(payload, status=201)


@dataclass
class Line:
    """One call from the caller's end."""

    call_id: str
    connection: PeerConnection
    channel: SoftphoneChannel
    media_after_s: float
    """From the request to the first packet received."""
    channel_after_s: float
    """From the request to the open control channel."""

    def say(self, samples: Samples) -> None:
        """Send `samples`, int16 at 48 kHz."""
        self.connection.playout.capture_frame(samples)
        self.connection.playout.flush()


@asynccontextmanager
async def line(url: str) -> AsyncIterator[Line]:
    """Call `url` and yield the call once media and channel are up."""
    loop = asyncio.get_running_loop()
    connection = PeerConnection(_LOCAL)
    connected = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []
    channel: SoftphoneChannel | None = None
    try:
        offer = await connection.offer()
        connection.on_state = lambda state, _: connected.set() if state == "connected" else None
        began = loop.time()
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{url}/calls", json={"sdp": offer, "type": "offer"}) as got,
        ):
            body = await got.json()
        channel = SoftphoneChannel(connection, call_id=body["call_id"], offer=body["control"])
        connection.on_message = channel.network.take_text
        tasks.append(asyncio.create_task(channel.run()))
        await connection.accept(body["sdp"])
        opened_at = asyncio.create_task(_when(lambda: channel.network.control.carrier_kind == "quic"))
        heard_at = asyncio.create_task(_when(lambda: connection.stats().first_packet_at is not None))
        tasks += [opened_at, heard_at]
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await connected.wait()
            channel.start()
            await opened_at
            await heard_at
        first = connection.stats().first_packet_at
        assert first is not None
        yield Line(
            call_id=body["call_id"],
            connection=connection,
            channel=channel,
            media_after_s=first - began,
            channel_after_s=opened_at.result() - began,
        )
    finally:
        if channel is not None:
            channel.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await connection.close()


async def _when(condition: Any) -> float:
    loop = asyncio.get_running_loop()
    while not condition():  # noqa: ASYNC110 the millisecond matters, and nobody signals it
        await asyncio.sleep(0.001)
    return loop.time()


@asynccontextmanager
async def lines(exchange: Exchange, relay: RelayProcess, count: int) -> AsyncIterator[list[tuple[Line, Callee]]]:
    """Place `count` calls at once through `relay`."""
    async with IceProxy(exchange.url, relay.add_route) as proxy, AsyncExitStack() as stack:
        placed = await asyncio.gather(*(stack.enter_async_context(line(proxy.url)) for _ in range(count)))
        pairs = [(each, exchange.callees[each.call_id]) for each in placed]
        yield pairs
        for each, _ in pairs:
            await exchange.hang_up(each.call_id)
