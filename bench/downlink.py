"""The way down: what Chromium plays of our speech through a lossy relay, beside a plain aiortc sender."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from av import AudioFrame
from playwright.async_api import Browser, async_playwright

from bench.downlink_page import PAGE
from impair.ice_proxy import IceProxy
from impair.relay_process import RelayProcess
from peer.engines.base import Samples
from transport.call_network import CallNetwork
from transport.outbound_repair import RepairCounters
from transport.peer_connection import PeerConnection, TransportConfig
from transport.quic_server import ControlServer

_WEB = Path(__file__).parents[1] / "web"
_CHROMIUM = "/usr/bin/chromium"
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--autoplay-policy=no-user-gesture-required", "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
)  # fmt: skip
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
class Caller:
    """The benchmark's server: speaks without end to whoever calls."""

    speech: Samples
    control: ControlServer
    network: CallNetwork | None = None
    connection: PeerConnection | None = None
    plain: RTCPeerConnection | None = None
    url: str = ""
    _feeder: asyncio.Task[None] | None = None
    marks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def counters(self) -> RepairCounters:
        """Return what the call's repair has cost."""
        assert self.connection is not None
        return self.connection.outbound_repair.counters

    async def handle_call(self, request: web.Request) -> web.Response:
        """Answer with our own sender and a control channel."""
        body = await request.json()
        connection = self.connection = PeerConnection(TransportConfig(hosts=("127.0.0.1",)))
        network = self.network = CallNetwork(connection, call_id="bench")
        connection.on_message = network.take_text
        connection.on_state = lambda state, _: network.start() if state == "connected" else None
        self.control.register(network.control, send_out_of_band=network.send_out_of_band)
        answer = await connection.answer(body["sdp"])
        self._feeder = asyncio.create_task(self._feed(connection))
        control = self.control.describe("bench", "127.0.0.1")
        return web.json_response({"sdp": answer, "type": "answer", "call_id": "bench", "control": control}, status=201)

    async def handle_plain(self, request: web.Request) -> web.Response:
        """Answer as a plain aiortc program does."""
        body = await request.json()
        plain = self.plain = RTCPeerConnection()
        plain.addTrack(_PlainTrack(self.speech))
        await plain.setRemoteDescription(RTCSessionDescription(body["sdp"], body["type"]))
        await plain.setLocalDescription(await plain.createAnswer())
        return web.json_response({"sdp": plain.localDescription.sdp, "type": "answer"}, status=201)

    async def _feed(self, connection: PeerConnection) -> None:
        at = 0
        while True:
            if connection.playout.queued_ms < 400:
                piece = self.speech[at : at + 24_000]
                at = (at + len(piece)) % len(self.speech)
                connection.playout.capture_frame(piece)
            await asyncio.sleep(0.1)

    async def hang_up(self) -> None:
        """End the call that is on."""
        if self._feeder is not None:
            self._feeder.cancel()
            await asyncio.gather(self._feeder, return_exceptions=True)
            self._feeder = None
        if self.network is not None:
            self.network.close()
            self.control.unregister("bench")
            self.network = None
        if self.connection is not None:
            await self.connection.close()
            self.connection = None
        if self.plain is not None:
            await self.plain.close()
            self.plain = None


@asynccontextmanager
async def caller(speech: Samples) -> AsyncIterator[Caller]:
    """Serve the page and the calls on free ports of 127.0.0.1."""
    control = ControlServer(host="127.0.0.1", port=0, unix_time=time.time)
    await control.start()
    served = Caller(speech=speech, control=control)

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    app.router.add_post("/calls", served.handle_call)
    app.router.add_post("/plain", served.handle_plain)
    app.router.add_static("/web", _WEB)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        await served.hang_up()
        await runner.cleanup()
        await control.aclose()


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Run Chromium without a screen."""
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=_CHROMIUM, args=list(_FLAGS))
        try:
            yield launched
        finally:
            await launched.close()


async def measure_path(
    served: Caller,
    chromium: Browser,
    profile: str,
    *,
    seconds: float,
    seed: int,
    plain: bool,
    clean_after: bool = False,
) -> dict[str, Any]:
    """Call through `profile` for `seconds` and return what Chromium made of it from second 5 on."""
    async with RelayProcess(profile, seed=seed) as relay, IceProxy(served.url, relay.add_route) as proxy:
        page = await chromium.new_page()
        try:
            await page.goto(proxy.url)
            await page.wait_for_function("window.ready")
            await page.evaluate("plain => window.startCall(plain)", plain)
            await page.wait_for_function("window.connection.connectionState === 'connected'")
            await asyncio.sleep(SETTLE_S)
            first = await page.evaluate("window.readStats()")
            assert first is not None, "nothing was received within five seconds"
            cost_before = None if plain else cost(served.counters)
            seen = [first]
            for _ in range(round(seconds - SETTLE_S)):
                await asyncio.sleep(1.0)
                seen.append(await page.evaluate("window.readStats()"))
            result: dict[str, Any] = {**played(first, seen[-1]), "concealed_interval_pct": concealed_interval(seen)}
            if not plain:
                result |= overhead(cost_before, cost(served.counters))
                result["decisions"] = await page.evaluate("window.decisions")
                result["carrier"] = await page.evaluate("window.carrier")
                assert served.network is not None
                assert served.connection is not None
                result["missed_slots"] = served.connection.stats().missed_slots
                result["plan"] = str(served.network.sender.outputs.plan)
                result["rtt_p50_ms"] = served.network.control.statistics().p50_ms
                if clean_after:
                    result["clean_overhead_pct"] = await _overhead_when_clean(served, relay)
            return result
        finally:
            await page.evaluate("window.connection?.close()")
            await page.close()
            await served.hang_up()


async def _overhead_when_clean(served: Caller, relay: RelayProcess) -> float:
    """Return the overhead from second 15 to 20 after the path became clean."""
    await relay.set_profile("clean")
    await asyncio.sleep(15.0)
    before = cost(served.counters)
    await asyncio.sleep(5.0)
    return overhead(before, cost(served.counters))["overhead_pct"]


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


def concealed_interval(seen: Sequence[dict[str, Any]], *, draws: int = 1000) -> tuple[float, float]:
    """Return the 95 % interval of the concealed share, in %, by drawing whole seconds with replacement."""
    counts = np.array([(each["concealedSamples"], each["totalSamplesReceived"]) for each in seen], dtype=np.float64)
    since = np.diff(counts, axis=0)
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


def overhead(before: dict[str, float] | None, after: dict[str, float]) -> dict[str, float]:
    """Return what repair cost between the two, in % of the media itself; in-band FEC counts as 4 %."""
    assert before is not None
    since = {name: after[name] - before[name] for name in after}
    media = max(1.0, since["media"])
    return {
        "overhead_pct": 100 * (FEC_SHARE + (since["copies"] + since["resent"] + since["requests"]) / media),
        "copies_pct": 100 * since["copies"] / media,
        "resent_pct": 100 * since["resent"] / media,
        "requests_pct": 100 * since["requests"] / media,
    }
