"""The way down: what Chromium plays of our speech through a lossy relay, beside a plain aiortc sender."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from av import AudioFrame
from playwright.async_api import Browser, Page

from bench.downlink_page import PAGE
from bench.local_site import local_site
from impair.ice_proxy import IceProxy
from impair.relay_process import RelayProcess
from peer.engines.base import Samples
from tests.browser.chromium import launch, microphone_flags
from transport.call_network import CallNetwork
from transport.outbound_repair import RepairCounters
from transport.peer_connection import PeerConnection, TransportConfig
from transport.quic_server import ControlServer

_WEB = Path(__file__).parents[1] / "web"
REQUEST_BYTES = 30
FEC_SHARE = 0.04
SETTLE_S = 5.0


class _PlainTrack(MediaStreamTrack):
    """Speech as aiortc's users send it: a frame of 20 ms at a time, encoded by aiortc."""

    kind = "audio"

    def __init__(self, speech: Samples) -> None:
        super().__init__()
        self._speech = speech
        self._index = 0
        self._start = 0.0

    async def recv(self) -> AudioFrame:
        loop = asyncio.get_running_loop()
        self._start = self._start or loop.time()
        await asyncio.sleep(max(0.0, self._start + self._index * 0.02 - loop.time()))
        at = self._index * 960 % (len(self._speech) - 960)
        frame = AudioFrame.from_ndarray(self._speech[at : at + 960].reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 48_000, self._index * 960, Fraction(1, 48_000)
        self._index += 1
        return frame


@dataclass
class Call:
    """One call, by our own sender or by a plain one."""

    connection: PeerConnection | None = None
    network: CallNetwork | None = None
    plain: RTCPeerConnection | None = None
    feeder: asyncio.Task[None] | None = None

    @property
    def counters(self) -> RepairCounters:
        """Return what the call's repair has cost."""
        assert self.connection is not None
        return self.connection.outbound_repair.counters


class Caller:
    """The benchmark's server: speaks without end to whoever calls."""

    def __init__(self, speech: Samples, control: ControlServer) -> None:
        self.url = ""
        self.calls: dict[str, Call] = {}
        self._speech = speech
        self._control = control
        self._count = 0

    async def handle_call(self, request: web.Request) -> web.Response:
        """Answer with our own sender and a control channel."""
        body = await request.json()
        call_id, call = self._begin()
        connection = call.connection = PeerConnection(TransportConfig(hosts=("127.0.0.1",)))
        network = call.network = CallNetwork(connection, call_id=call_id)
        connection.on_message = network.take_text
        connection.on_state = lambda state, _: network.start() if state == "connected" else None
        self._control.register(network.control, send_out_of_band=network.send_out_of_band)
        answer = await connection.answer(body["sdp"])
        call.feeder = asyncio.create_task(self._feed(connection))
        control = self._control.describe(call_id, "127.0.0.1")
        return web.json_response({"sdp": answer, "type": "answer", "call_id": call_id, "control": control}, status=201)

    async def handle_plain(self, request: web.Request) -> web.Response:
        """Answer as a plain aiortc program does."""
        body = await request.json()
        call_id, call = self._begin()
        plain = call.plain = RTCPeerConnection()
        plain.addTrack(_PlainTrack(self._speech))
        await plain.setRemoteDescription(RTCSessionDescription(body["sdp"], body["type"]))
        await plain.setLocalDescription(await plain.createAnswer())
        return web.json_response({"sdp": plain.localDescription.sdp, "type": "answer", "call_id": call_id}, status=201)

    def _begin(self) -> tuple[str, Call]:
        self._count += 1
        call_id, call = f"bench-{self._count}", Call()
        self.calls[call_id] = call
        return call_id, call

    async def _feed(self, connection: PeerConnection) -> None:
        at = 0
        while True:
            if connection.playout.queued_ms < 400:
                piece = self._speech[at : at + 24_000]
                at = (at + len(piece)) % len(self._speech)
                connection.playout.capture_frame(piece)
            await asyncio.sleep(0.1)

    async def hang_up(self, call_id: str) -> None:
        """End one call."""
        call = self.calls.pop(call_id)
        if call.feeder is not None:
            call.feeder.cancel()
            await asyncio.gather(call.feeder, return_exceptions=True)
        if call.network is not None:
            call.network.close()
            self._control.unregister(call_id)
        if call.connection is not None:
            await call.connection.close()
        if call.plain is not None:
            await call.plain.close()


@asynccontextmanager
async def caller(speech: Samples) -> AsyncIterator[Caller]:
    """Serve the page and the calls on free ports of 127.0.0.1."""
    control = ControlServer(host="127.0.0.1", port=0, unix_time=time.time)
    await control.start()
    served = Caller(speech, control)

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    app.router.add_post("/calls", served.handle_call)
    app.router.add_post("/plain", served.handle_plain)
    app.router.add_static("/web", _WEB)
    try:
        async with local_site(app) as served.url:
            try:
                yield served
            finally:
                for call_id in list(served.calls):
                    await served.hang_up(call_id)
    finally:
        await control.aclose()


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Run Chromium without a screen."""
    async with launch(*microphone_flags()) as launched:
        yield launched


async def measure_pair(
    served: Caller, chromium: Browser, profile: str, *, seconds: float, seed: int, clean_after: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Call twice at once through `profile`, to a plain sender and to ours; return what Chromium made of each."""
    async with RelayProcess(profile, seed=seed) as relay, IceProxy(served.url, relay.add_route) as proxy:
        plain, ours = await asyncio.gather(
            _measure(served, chromium, proxy.url, seconds=seconds, plain=True),
            _measure(served, chromium, proxy.url, seconds=seconds, plain=False, relay=relay if clean_after else None),
        )
    return plain, ours


async def _measure(
    served: Caller, chromium: Browser, url: str, *, seconds: float, plain: bool, relay: RelayProcess | None = None
) -> dict[str, Any]:
    """Call for `seconds` and return what Chromium made of it from second 5 on; then through a clean `relay`."""
    page = await chromium.new_page()
    call_id = None
    try:
        await page.goto(url)
        await page.wait_for_function("window.ready")
        call_id = await page.evaluate("plain => window.startCall(plain)", plain)
        await page.wait_for_function("window.connection.connectionState === 'connected'")
        await asyncio.sleep(SETTLE_S)
        call = served.calls[call_id]
        first = await page.evaluate("window.readStats()")
        assert first is not None, "nothing was received within five seconds"
        cost_before = None if plain else cost(call.counters)
        seen = [first]
        for _ in range(round(seconds - SETTLE_S)):
            await asyncio.sleep(1.0)
            seen.append(await page.evaluate("window.readStats()"))
        result: dict[str, Any] = {**played(first, seen[-1]), "seconds": concealed_seconds(seen)}
        if cost_before is not None:
            result |= overhead(cost_before, cost(call.counters))
            result |= await _of_ours(call, page)
            if relay is not None:
                result["clean_overhead_pct"] = await _overhead_when_clean(call, relay)
        return result
    finally:
        await page.evaluate("window.connection?.close()")
        await page.close()
        if call_id is not None:
            await served.hang_up(call_id)


async def _of_ours(call: Call, page: Page) -> dict[str, Any]:
    assert call.network is not None
    assert call.connection is not None
    return {
        "decisions": await page.evaluate("window.decisions"),
        "carrier": await page.evaluate("window.carrier"),
        "missed_slots": call.connection.stats().missed_slots,
        "plan": str(call.network.sender.outputs.plan),
        "rtt_p50_ms": call.network.control.statistics().p50_ms,
    }


async def _overhead_when_clean(call: Call, relay: RelayProcess) -> float:
    """Return the overhead from second 15 to 20 after the path became clean."""
    await relay.set_profile("clean")
    await asyncio.sleep(15.0)
    before = cost(call.counters)
    await asyncio.sleep(5.0)
    return overhead(before, cost(call.counters))["overhead_pct"]


def played(first: dict[str, Any], last: dict[str, Any]) -> dict[str, float]:
    """Return shares and delays between two getStats of inbound-rtp."""
    since = {
        name: last.get(name, 0) - first.get(name, 0)
        for name in (
            "concealedSamples", "silentConcealedSamples", "totalSamplesReceived", "jitterBufferDelay",
            "jitterBufferEmittedCount", "packetsReceived", "packetsLost", "nackCount", "fecPacketsReceived",
        )
    }  # fmt: skip
    total = max(1, since["totalSamplesReceived"])
    return {
        "concealed_pct": 100 * since["concealedSamples"] / total,
        "audibly_concealed_pct": 100 * (since["concealedSamples"] - since["silentConcealedSamples"]) / total,
        "delay_ms": 1000 * since["jitterBufferDelay"] / max(1, since["jitterBufferEmittedCount"]),
        "packets": since["packetsReceived"],
        "nacks": since["nackCount"],
    }


def concealed_seconds(seen: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return, for each second, the samples that were concealed and all samples."""
    pairs = [(each["concealedSamples"], each["totalSamplesReceived"]) for each in seen]
    return [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(pairs)]


def concealed_interval(seconds: Sequence[tuple[int, int]], *, draws: int = 1000) -> tuple[float, float]:
    """Return the 95 % interval of the concealed share, in %, by drawing whole seconds with replacement."""
    since = np.array(seconds, dtype=np.float64)
    picked = since[np.random.default_rng(1).integers(0, len(since), (draws, len(since)))].sum(axis=1)
    low, high = np.percentile(100 * picked[:, 0] / np.maximum(picked[:, 1], 1), (2.5, 97.5))
    return float(low), float(high)


def cost(counters: RepairCounters) -> dict[str, float]:
    """Return the bytes that media and repair have cost so far."""
    return {
        "media": counters.media_bytes,
        "copies": counters.copy_bytes,
        "resent": counters.resent_bytes,
        "requests": counters.requests * REQUEST_BYTES,
    }


def overhead(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return what repair cost between the two, in % of the media itself; in-band FEC counts as 4 %."""
    since = {name: after[name] - before[name] for name in after}
    media = max(1.0, since["media"])
    return {
        "overhead_pct": 100 * (FEC_SHARE + (since["copies"] + since["resent"] + since["requests"]) / media),
        "copies_pct": 100 * since["copies"] / media,
        "resent_pct": 100 * since["resent"] / media,
        "requests_pct": 100 * since["requests"] / media,
    }
