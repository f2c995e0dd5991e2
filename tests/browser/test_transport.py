"""The transport against Chromium's own WebRTC, without our page: its SDP, its view of our silence, its ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Page

from tests.browser.chromium import launch, microphone_flags
from tests.loopback.pairs import wait_for
from tests.sounds import speech_like
from transport.peer_connection import PeerConnection, TransportConfig

pytestmark = pytest.mark.asyncio(loop_scope="module")

VOICE = speech_like(1.6)
PAGE = """<!doctype html><script>
async function start(video) {
  window.pc = new RTCPeerConnection(); window.heard = [];
  const stream = await navigator.mediaDevices.getUserMedia({audio: true});
  if (video === 'first') pc.addTransceiver('video');
  for (const track of stream.getTracks()) pc.addTrack(track, stream);
  if (video === 'last') pc.addTransceiver('video');
  const channel = pc.createDataChannel('events');
  channel.onmessage = (event) => heard.push(event.data);
  channel.onopen = () => channel.send('from the page');
  pc.ontrack = (event) => {
    window.audio = new Audio();
    audio.srcObject = new MediaStream([event.track]);
    audio.play();
  };
  await pc.setLocalDescription();
  const response = await fetch('/calls', {method: 'POST', body: pc.localDescription.sdp});
  await pc.setRemoteDescription({type: 'answer', sdp: await response.text()});
}
async function inbound() {
  let found = null;
  (await pc.getStats()).forEach((report) => { if (report.type === 'inbound-rtp') found = report; });
  return found;
}
</script>"""


class Server:
    """Answers every offer with a new `PeerConnection`, and keeps the last."""

    def __init__(self) -> None:
        self.connection: PeerConnection | None = None
        self.states: list[tuple[str, str]] = []
        self.messages: list[str] = []
        self.samples = 0
        self.url = ""

    async def page(self, request: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    async def answer(self, request: web.Request) -> web.Response:
        await self.close()
        self.connection = PeerConnection(TransportConfig())
        self.states, self.messages, self.samples = [], [], 0
        self.connection.on_state = lambda state, reason: self.states.append((state, reason))
        self.connection.on_message = self.messages.append
        self.connection.on_audio = self._count
        return web.Response(text=await self.connection.answer(await request.text()))

    def _count(self, frames: list[Any], now: float) -> None:
        self.samples += sum(len(frame.samples) for frame in frames)

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with launch(*microphone_flags()) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_get("/", server.page)
    app.router.add_post("/calls", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    yield server
    await server.close()
    await runner.cleanup()


@pytest_asyncio.fixture(loop_scope="module")
async def page(chromium: Browser, server: Server) -> AsyncIterator[Page]:
    page = await chromium.new_page()
    await page.goto(server.url)
    yield page
    await page.close()


async def call(page: Page, server: Server, video: str = "") -> PeerConnection:
    await page.evaluate("(video) => start(video)", video)
    await wait_for(lambda: server.states and server.states[-1][0] == "connected")
    assert server.connection is not None
    return server.connection


async def test_video_beside_audio_is_refused_and_audio_works(server: Server, page: Page) -> None:
    for video in ("last", "first"):
        connection = await call(page, server, video)
        connection.send_message("from the server")
        connection.playout.capture_frame(VOICE)
        await wait_for(lambda: server.samples > 16_000)
        await wait_for(lambda: server.messages == ["from the page"])
        await page.wait_for_function("heard.length === 1 && heard[0] === 'from the server'")
        await page.wait_for_function("inbound().then((report) => report.totalAudioEnergy > 0.001)")
        # A refused section stops its transceiver, which then is none any more.
        assert await page.evaluate("pc.getTransceivers().map((one) => one.receiver.track.kind)") == ["audio"]
        await page.evaluate("pc.close()")
        await wait_for(lambda: server.states[-1] == ("closed", "remote ended the call"))


async def test_silence_is_no_loss_to_the_browser_and_speech_after_it_is_whole(server: Server, page: Page) -> None:
    connection = await call(page, server)
    for _ in range(3):
        connection.playout.capture_frame(VOICE)
        connection.playout.flush()
        await asyncio.sleep(1.6 + 0.6)
        before = await page.evaluate("inbound()")
        await asyncio.sleep(1.2)
        after = await page.evaluate("inbound()")
        silent = {
            key: after[key] - before[key] for key in ("totalSamplesReceived", "concealedSamples", "packetsReceived")
        }
        assert silent["packetsReceived"] <= 6
        assert silent["concealedSamples"] < 0.1 * silent["totalSamplesReceived"]
    assert after["packetsLost"] == 0
    # What our own loop left out on a busy machine the browser had to conceal, and that alone.
    left_out = 960 * connection.stats().missed_slots
    assert after["concealedSamples"] - left_out < 0.05 * after["totalSamplesReceived"]
    assert after["fecPacketsReceived"] > 50


async def test_a_page_that_takes_its_microphone_away_is_still_there(server: Server, page: Page) -> None:
    connection = await call(page, server)
    await wait_for(lambda: server.samples > 8000)
    await page.evaluate("pc.getSenders()[0].replaceTrack(null)")
    await asyncio.sleep(2.5)
    assert server.states[-1][0] == "connected"
    assert connection.stats().ice_rtt_ms is not None
    await page.evaluate("pc.close()")
    await wait_for(lambda: server.states[-1] == ("closed", "remote ended the call"))


async def test_candidates_may_come_after_the_offer(server: Server, page: Page) -> None:
    await page.evaluate(
        """async () => {
          window.pc = new RTCPeerConnection(); window.late = [];
          const stream = await navigator.mediaDevices.getUserMedia({audio: true});
          pc.addTrack(stream.getTracks()[0], stream);
          pc.onicecandidate = (event) => late.push(event.candidate && event.candidate.toJSON());
          const offer = await pc.createOffer();
          const response = await fetch('/calls', {method: 'POST', body: offer.sdp});
          await pc.setLocalDescription(offer);
          await pc.setRemoteDescription({type: 'answer', sdp: await response.text()});
        }"""
    )
    await page.wait_for_function("late.length && late.at(-1) === null")
    assert server.connection is not None
    for candidate in await page.evaluate("late"):
        if candidate is None:
            await server.connection.add_candidate(None)
        else:
            await server.connection.add_candidate(
                candidate["candidate"], candidate["sdpMid"], candidate["sdpMLineIndex"]
            )
    await wait_for(lambda: server.states[-1][0] == "connected")
    await wait_for(lambda: server.samples > 8000)
