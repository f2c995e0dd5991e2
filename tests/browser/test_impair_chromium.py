"""Real Chromium for the harness: NetEQ as the reference receiver, and a page as the caller, both through the relay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from aiohttp import web

from impair.caller import Clip
from impair.errors import TargetError
from impair.flows import Address
from impair.ice_proxy import IceProxy
from impair.page_caller import PageCaller
from impair.profile import Direction
from impair.receivers import compare
from impair.relay_process import RelayProcess
from peer.engines.base import Samples
from transport.config import TransportConfig
from transport.peer_connection import PeerConnection

PAGE = """<!doctype html><title>a page of somebody else</title><button id="other" disabled>no</button>
<button id="call">call</button><script>
document.querySelector('#call').onclick = async () => {
  const peer = new RTCPeerConnection();
  const stream = await navigator.mediaDevices.getUserMedia({audio: true});
  stream.getTracks().forEach((track) => peer.addTrack(track, stream));
  peer.createDataChannel('events');
  peer.ontrack = (event) => { const player = new Audio(); player.srcObject = event.streams[0]; player.play(); };
  await peer.setLocalDescription(await peer.createOffer());
  await new Promise((done) => {
    peer.onicegatheringstatechange = () => peer.iceGatheringState === 'complete' && done();
  });
  const answer = await fetch('/offer', {method: 'POST', headers: {'Content-Type': 'application/json'},
    body: JSON.stringify(peer.localDescription)});
  await peer.setRemoteDescription(await answer.json());
};
</script>"""


def noise(seconds: float, level: float = 3000) -> Samples:
    return np.random.default_rng(3).normal(0, level, round(seconds * 48_000)).astype(np.int16)


@asynccontextmanager
async def page_server() -> AsyncIterator[tuple[str, list[PeerConnection]]]:
    peers: list[PeerConnection] = []

    async def offer(request: web.Request) -> web.Response:
        peers.append(PeerConnection(TransportConfig(hosts=("127.0.0.1",))))
        return web.json_response({"sdp": await peers[-1].answer((await request.json())["sdp"]), "type": "answer"})

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    app = web.Application()
    app.router.add_post("/offer", offer)
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/", peers
    finally:
        await asyncio.gather(*(peer.close("the end") for peer in peers))
        await runner.cleanup()


async def test_a_page_is_driven_and_heard_through_the_relay() -> None:
    async with RelayProcess("loss5", seed=2) as relay, page_server() as (url, peers):

        async def add_route(to: Address, way: Direction) -> Address:
            return await relay.add_route(to, way)

        async with IceProxy(url, add_route, behind_nat=True) as proxy:
            caller = PageCaller(proxy.url, selector="button")
            async with caller:
                loud: list[float] = []
                peers[0].on_audio = lambda frames, now: loud.extend(
                    now for frame in frames if np.abs(frame.samples).max() > 1000
                )
                assert caller.record.connected_at is not None
                clip = Clip(name="a", samples=noise(1.0), speech_end_s=1.0, text=None)
                said = await caller.say(clip)
                peers[0].playout.capture_frame(noise(1.0))
                assert await caller.wait_for_sound(after=said.began_at, timeout_s=15) is not None
                assert await caller.wait_for_quiet(quiet_s=0.5, timeout_s=15)
                await relay.rebind()
                while not (await relay.stats())["relay"]["moves_ms"]:
                    await asyncio.sleep(0.1)
            heard = caller.heard(until=0, counted_until=0)
    assert loud
    assert heard is not None
    assert 0.5 < sum(end - begin for begin, end in heard.spans()) < 2
    assert heard.delay_ms is not None
    assert heard.delay_ms > 0
    assert any(flow["up"]["lost_by"].get("Loss") for flow in relay.report["flows"])


async def test_a_page_without_the_button_is_said() -> None:
    async with page_server() as (url, _):
        with pytest.raises(TargetError, match="no button"):
            async with PageCaller(url, selector="#nowhere"):
                pass


async def test_neteq_and_ours_play_the_same_packets() -> None:
    said: list[str] = []
    (row,) = await compare(["loss5"], noise(3.0, 1500), seed=4, duration_s=8.0, say=said.append)
    assert row["neteq"]["lost"] > 3
    lost_pct = 100 * row["neteq"]["lost"] / (row["neteq"]["lost"] + row["neteq"]["packets"])
    assert row["neteq"]["concealed_pct"] > 0.3 * lost_pct
    assert row["ours"]["concealed_pct"] > 0.3 * lost_pct
    assert row["ours_with_repair"]["concealed_pct"] <= row["ours"]["concealed_pct"]
    assert row["neteq"]["delay_ms"] > 0
    assert said
    (bad,) = await compare(["loss100"], noise(1.0), seed=4, duration_s=1.0, say=said.append)
    assert "no profile" in bad["neteq_missing"]
