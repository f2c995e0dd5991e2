"""Chromium as the reference receiver: NetEQ plays speech that came through the relay, and its own counters are read.

The sender is stock aiortc, paced at 20 ms, with libopus speech of 60-byte packets' class; nothing of ours is on the
way but the relay. Chromium is driven over the DevTools protocol, so no driver package is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fractions
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import aioice.ice
import av
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription

from impair.errors import ImpairError, TargetError
from impair.flows import Address
from impair.ice import CandidateRewriter
from impair.measures import Samples
from impair.profile import Direction
from impair.relay_process import RelayProcess
from impair.report import find_browser
from impair.waiting import ordinary_priority

_RATE_HZ = 48_000
_FRAME = 960
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--mute-audio", "--autoplay-policy=no-user-gesture-required",
    # Its own addresses, not mDNS names, so that the relay can lead to them.
    "--disable-features=WebRtcHideLocalIpsWithMdns", "--remote-debugging-port=0",
)  # fmt: skip
_START_TIMEOUT_S = 30.0
_EVALUATE_TIMEOUT_S = 60.0

_PAGE_SCRIPT = """
async (offer) => {
  const peer = new RTCPeerConnection();
  window.peer = peer;
  const player = new Audio();
  player.autoplay = true;
  peer.ontrack = (event) => { player.srcObject = new MediaStream([event.track]); player.play(); };
  await peer.setRemoteDescription({type: 'offer', sdp: offer});
  await peer.setLocalDescription(await peer.createAnswer());
  if (peer.iceGatheringState !== 'complete') {
    await new Promise((done) => {
      peer.onicegatheringstatechange = () => peer.iceGatheringState === 'complete' && done();
      setTimeout(done, 3000);
    });
  }
  window.player = player;
  return peer.localDescription.sdp;
}
"""
_STATS_SCRIPT = """
async () => {
  const out = {};
  for (const report of (await window.peer.getStats()).values()) {
    if (report.type === 'inbound-rtp' && report.kind === 'audio') Object.assign(out, report);
  }
  return out;
}
"""


class DevTools:
    """One page of a Chromium, spoken to over its DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0

    async def open(self, url: str, *, before: str) -> None:
        """Open a URL with a script run before the page's own."""
        await self._call("Page.enable", {})
        await self._call("Page.addScriptToEvaluateOnNewDocument", {"source": before})
        answer = await self._call("Page.navigate", {"url": url})
        if answer.get("errorText"):
            raise ImpairError(f"Chromium cannot open {url}: {answer['errorText']}")

    async def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        await self._socket.send_json({"id": self._last, "method": method, "params": parameters})
        try:
            async with asyncio.timeout(_EVALUATE_TIMEOUT_S):
                while True:
                    message = await self._socket.receive_json()
                    if message.get("id") == self._last:
                        break
        except TimeoutError:
            raise ImpairError(f"Chromium did not answer within {_EVALUATE_TIMEOUT_S:g} s") from None
        except (TypeError, ValueError):
            raise ImpairError("Chromium ended in mid-call") from None
        if "error" in message:
            raise ImpairError(f"Chromium: {message['error'].get('message')}")
        return dict(message["result"])

    async def evaluate(self, function: str, *arguments: Any) -> Any:
        """Call an async JavaScript function in the page and give what it returns; ImpairError where it throws."""
        expression = f"({function})({', '.join(json.dumps(argument) for argument in arguments)})"
        answer = await self._call(
            "Runtime.evaluate",
            {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True},
        )
        if "exceptionDetails" in answer:
            raise ImpairError(f"Chromium: {json.dumps(answer['exceptionDetails'])[:400]}")
        return answer["result"].get("value")


@asynccontextmanager
async def chromium_page(*, prepare: Callable[[], None] = ordinary_priority) -> AsyncIterator[DevTools]:
    """A fresh headless Chromium with one blank page; ImpairError where it cannot be had.

    `prepare` runs in its process first and sets its priority: a receiver whose threads wait for a core would be
    measured as one with a worse buffer.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            find_browser(), *_FLAGS, f"--user-data-dir={profile}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            preexec_fn=prepare,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_START_TIMEOUT_S), contextlib.AsyncExitStack() as stack:
                http = await stack.enter_async_context(aiohttp.ClientSession())
                port = await _debugging_port(process)
                async with http.get(f"http://127.0.0.1:{port}/json/list") as response:
                    pages = [page for page in await response.json() if page["type"] == "page"]
                socket = await http.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
                stack.push_async_callback(socket.close)
                keep = stack.pop_all()
            async with keep:
                yield DevTools(socket)
        except TimeoutError:
            raise ImpairError("Chromium did not answer in time") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _debugging_port(process: asyncio.subprocess.Process) -> int:
    assert process.stderr is not None
    async for line in process.stderr:
        if b"DevTools listening on ws://" in line:
            return int(line.split(b"ws://", 1)[1].split(b":", 1)[1].split(b"/", 1)[0])
    raise ImpairError("Chromium ended before it could be used")


class LoopedSpeech(MediaStreamTrack):
    """A recording over and over, 20 ms at a time on absolute deadlines, int16 at 48 kHz."""

    kind = "audio"

    def __init__(self, samples: Samples) -> None:
        super().__init__()
        whole = len(samples) // _FRAME * _FRAME
        self._frames = samples[:whole].reshape(-1, _FRAME)
        self._sent = 0
        self._begun_at: float | None = None

    async def recv(self) -> Any:
        """The next frame, when it is due."""
        loop = asyncio.get_running_loop()
        if self._begun_at is None:
            self._begun_at = loop.time()
        await asyncio.sleep(max(0.0, self._begun_at + self._sent * 0.02 - loop.time()))
        frame = av.AudioFrame.from_ndarray(self._frames[self._sent % len(self._frames)][None], "s16", "mono")
        frame.sample_rate, frame.pts, frame.time_base = _RATE_HZ, self._sent * _FRAME, fractions.Fraction(1, _RATE_HZ)
        self._sent += 1
        return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class NeteqFigures:
    """What NetEQ says of what it played, from W3C's counters."""

    delay_ms: float
    concealed_pct: float
    accelerated_pct: float
    expanded_pct: float
    packets: int
    lost: int


async def neteq(page: DevTools, relay: RelayProcess, speech: Samples, *, duration_s: float) -> NeteqFigures:
    """Let NetEQ play for so long and give its figures, its beginning counted in."""
    peer = RTCPeerConnection()
    try:
        peer.addTrack(LoopedSpeech(speech))
        with _on_loopback():
            await peer.setLocalDescription(await peer.createOffer())

        async def add_route(to: Address, way: Direction) -> Address:
            return await relay.add_route(to, way)

        # The sender is the system under test here: its packets go "down" to the receiver, who is the caller.
        rewriter = CandidateRewriter(add_route)
        answer = await page.evaluate(_PAGE_SCRIPT, await rewriter.answer(peer.localDescription.sdp))
        rewritten = await rewriter.offer(str(answer))
        await peer.setRemoteDescription(RTCSessionDescription(rewritten, "answer"))
        stats = await _stats_after(page, duration_s)
    finally:
        await peer.close()
        with contextlib.suppress(ImpairError, TimeoutError):
            await page.evaluate(
                "() => { window.peer && window.peer.close(); window.player && window.player.remove(); }"
            )
    return _figures(stats)


async def _stats_after(page: DevTools, seconds: float) -> dict[str, float]:
    await asyncio.sleep(seconds)
    stats = await page.evaluate(_STATS_SCRIPT)
    if not stats or not stats.get("totalSamplesReceived"):
        raise TargetError("Chromium plays nothing: the call did not come about")
    return dict(stats)


def _figures(stats: dict[str, float]) -> NeteqFigures:
    samples = max(1.0, stats["totalSamplesReceived"])
    return NeteqFigures(
        delay_ms=1000 * stats["jitterBufferDelay"] / max(1.0, stats["jitterBufferEmittedCount"]),
        concealed_pct=100 * (stats["concealedSamples"] - stats["silentConcealedSamples"]) / samples,
        accelerated_pct=100 * stats["removedSamplesForAcceleration"] / samples,
        expanded_pct=100 * stats["insertedSamplesForDeceleration"] / samples,
        packets=round(stats["packetsReceived"]),
        lost=round(stats["packetsLost"]),
    )


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """aioice leaves loopback out; both ends stand on this machine."""
    original = aioice.ice.get_host_addresses

    def loopback(*_: object, **__: object) -> list[str]:
        return ["127.0.0.1"]

    aioice.ice.get_host_addresses = loopback
    try:
        yield
    finally:
        aioice.ice.get_host_addresses = original
