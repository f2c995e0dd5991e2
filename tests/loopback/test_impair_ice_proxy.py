"""Real aiortc peers through the proxy: whatever the answer holds, every packet goes through the relay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import aioice.ice
import pytest
from aiohttp import web
from aiortc import RTCPeerConnection, RTCSessionDescription

from impair.errors import RelayError, TargetError
from impair.flows import Address
from impair.ice_proxy import IceProxy
from impair.profile import Direction
from impair.relay_process import RelayProcess

Change = Callable[[str], str]


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


@asynccontextmanager
async def agent(change_answer: Change, seen: list[str]) -> AsyncIterator[str]:
    """An aiortc agent behind a JSON `/api/offer`; echoes its data channel."""
    peers: list[RTCPeerConnection] = []

    async def offer(request: web.Request) -> web.Response:
        body = await request.json()
        seen.append(body["sdp"])
        peer = RTCPeerConnection()
        peers.append(peer)
        peer.on("datachannel", lambda channel: channel.on("message", channel.send))
        await peer.setRemoteDescription(RTCSessionDescription(body["sdp"], body["type"]))
        await peer.setLocalDescription(await peer.createAnswer())
        answer = {"sdp": change_answer(peer.localDescription.sdp), "type": "answer"}
        return web.json_response(answer, status=201, headers={"Location": str(request.url.origin()) + "/calls/1"})

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="<p>candidate:</p>", content_type="text/html")

    app = web.Application()
    app.router.add_post("/api/offer", offer)
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await asyncio.gather(*(peer.close() for peer in peers))
        await runner.cleanup()


def without_candidates(sdp: str) -> str:
    return "".join(line for line in sdp.splitlines(keepends=True) if not line.startswith("a=candidate"))


def same(sdp: str) -> str:
    return sdp


@pytest.mark.parametrize(
    ("change_offer", "change_answer"),
    [(same, same), (same, without_candidates), (without_candidates, same)],
    ids=["both", "answer without candidates", "offer without candidates"],
)
async def test_a_call_goes_through_the_relay(change_offer: Change, change_answer: Change) -> None:
    seen: list[str] = []
    async with RelayProcess("none") as relay, agent(change_answer, seen) as url:
        opened: list[Address] = []

        async def add_route(to: Address, way: Direction) -> Address:
            opened.append(await relay.add_route(to, way))
            return opened[-1]

        async with IceProxy(url, add_route) as proxy, aiohttp.ClientSession() as http:
            peer = RTCPeerConnection()
            channel = peer.createDataChannel("chat")
            echoed = asyncio.get_running_loop().create_future()
            channel.on("open", lambda: channel.send("hello"))
            channel.on("message", echoed.set_result)
            await peer.setLocalDescription(await peer.createOffer())
            body = {"sdp": change_offer(peer.localDescription.sdp), "type": "offer"}
            async with http.post(proxy.url + "/api/offer", json=body) as response:
                assert response.status == 201
                assert response.headers["Location"] == proxy.url + "/calls/1"
                answer = await response.json()
            await peer.setRemoteDescription(RTCSessionDescription(answer["sdp"], answer["type"]))
            assert await asyncio.wait_for(echoed, 20) == "hello"
            async with http.get(proxy.url + "/") as page:
                assert await page.text() == "<p>candidate:</p>"
            await peer.close()
    ports = {str(port) for _, port in opened}
    for sdp in (seen[0], answer["sdp"]):
        for line in sdp.splitlines():
            assert not line.startswith("a=candidate") or line.split()[5] in ports
    assert sum(flow["up"]["packets"] for flow in relay.report["flows"]) > 5
    assert sum(flow["down"]["packets"] for flow in relay.report["flows"]) > 5


async def test_what_the_proxy_rewrites_and_what_it_leaves() -> None:
    async def add_route(to: Address, way: Direction) -> Address:
        return "127.0.0.1", {("192.0.2.9", 7, "up"): 7001, ("192.0.2.9", 8, "down"): 7002}[(*to, way)]

    got: list[bytes] = []

    async def calls(request: web.Request) -> web.Response:
        got.append(await request.read())
        return web.json_response({"control": {"url": "https://192.0.2.9:7/x", "token": "t"}, "list": [1, None]})

    app = web.Application()
    app.router.add_route("*", "/calls", calls)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    target = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with IceProxy(target, add_route) as proxy, aiohttp.ClientSession() as http:
        line = "candidate:1 1 udp 1 192.0.2.9 8 typ host"
        fragment = {"Content-Type": "application/trickle-ice-sdpfrag"}
        async with http.patch(proxy.url + "/calls", data=f"a=mid:0\r\na={line}\r\n", headers=fragment) as response:
            answer = await response.json()
        assert answer == {"control": {"url": "https://127.0.0.1:7001/x", "token": "t"}, "list": [1, None]}
        await http.patch(proxy.url + "/calls", json={"candidate": line, "sdpMid": "0"})
        await http.post(proxy.url + "/calls", data=b"{broken", headers={"Content-Type": "application/json"})
    await runner.cleanup()
    moved = "candidate:1 1 udp 1 127.0.0.1 7002 typ host"
    assert got[0] == f"a=mid:0\r\na={moved}\r\n".encode()
    assert json.loads(got[1]) == {"candidate": moved, "sdpMid": "0"}
    assert got[2] == b"{broken"


async def test_faults_are_said() -> None:
    async def refuse(to: Address, way: Direction) -> Address:
        raise RelayError("no room")

    with pytest.raises(TargetError, match="no http or https URL"):
        IceProxy("127.0.0.1:80", refuse)
    with pytest.raises(RelayError, match="did you mean"):
        async with RelayProcess("jiter10"):
            pass
    async with IceProxy("http://127.0.0.1:9", refuse) as proxy, aiohttp.ClientSession() as http:
        async with http.get(proxy.url) as response:
            assert response.status == 502
            assert "does not answer" in await response.text()
        body = "v=0\r\nm=audio 9 RTP 0\r\na=candidate:1 1 udp 1 192.0.2.9 8 typ host\r\n"
        async with http.post(proxy.url, data=body, headers={"Content-Type": "application/sdp"}) as response:
            assert response.status == 502
            assert "no room" in await response.text()
