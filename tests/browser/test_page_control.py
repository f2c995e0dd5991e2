"""The page's end of the control channel, and what real browsers let the server's controller change."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser import bidi
from tests.browser.chromium import launch, microphone_flags
from tests.browser.stub_peer import StubPeer, serve
from tests.loopback.local_server import server_process

pytestmark = pytest.mark.asyncio(loop_scope="module")

OVER_QUIC = re.compile("Control channel over QUIC")
OVER_DATA_CHANNEL = re.compile("Control channel over the data channel")
KEEP_SESSIONS = """(() => {
  const Native = window.WebTransport;
  window.sessions = [];
  window.WebTransport = class extends Native {
    constructor(...given) { super(...given); sessions.push(this); }
  };
})()"""
KEEP_CONNECTIONS = """(() => {
  const Native = window.RTCPeerConnection;
  window.connections = [];
  window.RTCPeerConnection = class extends Native {
    constructor(...given) { super(...given); connections.push(this); }
  };
})()"""
CALL_WITH_RED = """async () => {
  const { Adaptation, offerWithNack } = await import("/adaptation.js");
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
  const connection = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
  connection.addTransceiver(microphone.getAudioTracks()[0], { direction: "sendrecv" });
  await offerWithNack(connection);
  await new Promise((resolve) => setTimeout(resolve, 200));
  const { sdp, type } = connection.localDescription;
  const headers = { "Content-Type": "application/json" };
  const response = await fetch("/calls", { method: "POST", headers, body: JSON.stringify({ sdp, type }) });
  const answer = await response.json();
  await connection.setRemoteDescription({ type: answer.type, sdp: answer.sdp });
  const adaptation = new Adaptation(connection, answer);
  const sent = async () => {
    const stats = [...(await connection.getStats()).values()].find((each) => each.type === "outbound-rtp");
    return [stats.bytesSent, stats.packetsSent];
  };
  const sizes = [];
  for (const offsets of [[], [1], []]) {
    await adaptation.setSenderRepair({ red_offsets: offsets, bitrate_bps: 32000 });
    await new Promise((resolve) => setTimeout(resolve, 300));
    const [bytes, packets] = await sent();
    await new Promise((resolve) => setTimeout(resolve, 1500));
    const [bytesAfter, packetsAfter] = await sent();
    sizes.push([(bytesAfter - bytes) / (packetsAfter - packets), packetsAfter - packets]);
  }
  connection.close();
  await fetch(`/calls/${answer.call_id}`, { method: "DELETE" });
  return { offer: connection.localDescription?.sdp ?? sdp, answer: answer.sdp, sizes };
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[str]:
    async with server_process() as (url, _):
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with launch(*microphone_flags()) as browser:
        yield browser


async def in_call(chromium: Browser, url: str, *scripts: str) -> Page:
    context = await chromium.new_context()
    page = await context.new_page()
    for script in scripts:
        await page.add_init_script(script)
    await page.goto(url)
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.locator("#state")).to_have_text(re.compile("Listening|Thinking|Speaking"), timeout=20_000)
    return page


async def assert_round_trip_shown(page: Page) -> None:
    row = page.get_by_role("figure", name="Round trip").locator("dl div").filter(has_text="control")
    await expect(row.locator("dd")).to_have_text(re.compile(r"^\d+ ms$"), timeout=10_000)


async def test_the_channel_runs_over_quic_and_is_back_after_a_drop(chromium: Browser, server: str) -> None:
    page = await in_call(chromium, server, KEEP_SESSIONS)
    await expect(page.locator("#repair")).to_have_text(OVER_QUIC, timeout=10_000)
    await assert_round_trip_shown(page)
    for drops in (1, 2):
        await page.evaluate("sessions.at(-1).close()")
        async with asyncio.timeout(5):
            while await page.evaluate("sessions.length") == drops:
                await asyncio.sleep(0.05)
        await page.evaluate("sessions.at(-1).ready.then(() => true)")
    await expect(page.locator("#repair")).to_have_text(OVER_QUIC)
    await assert_round_trip_shown(page)
    await page.context.close()


@pytest.mark.parametrize(
    "hindrance",
    [
        pytest.param("delete window.WebTransport", id="a browser without WebTransport"),
        pytest.param("window.WebTransport = class { ready = new Promise(() => 0); "
                     "closed = this.ready; close() {} }", id="a network without QUIC"),
    ],
)  # fmt: skip
async def test_without_quic_the_data_channel_carries_the_same(chromium: Browser, server: str, hindrance: str) -> None:
    page = await in_call(chromium, server, hindrance)
    await expect(page.locator("#repair")).to_have_text(OVER_DATA_CHANNEL, timeout=10_000)
    await assert_round_trip_shown(page)
    row = page.get_by_role("figure", name="Buffer").locator("dl div").filter(has_text="from you")
    await expect(row.locator("dd")).to_have_text(re.compile(r"^\d+ ms$"), timeout=10_000)
    await page.context.close()


async def test_firefox_opens_the_channel_over_quic_too(server: str) -> None:
    async with bidi.launch() as firefox:
        await firefox.goto(server)
        await asyncio.sleep(0.5)
        await firefox.evaluate("document.getElementById('call-button').click()")
        async with asyncio.timeout(20):
            while not OVER_QUIC.search(await firefox.evaluate("document.getElementById('repair').textContent")):
                await asyncio.sleep(0.2)


async def test_chromium_offers_nack_and_sends_red_when_asked(chromium: Browser, server: str) -> None:
    page = await chromium.new_page()
    await page.goto(server)
    result = await page.evaluate(CALL_WITH_RED)
    assert re.search(r"a=rtcp-fb:(\d+) nack\b", result["offer"])
    assert re.search(r"a=rtcp-fb:(\d+) nack\b", result["answer"])
    (plain, plain_packets), (red, red_packets), (plain_again, _) = result["sizes"]
    assert red > 1.3 * max(plain, plain_again), result["sizes"]
    assert min(plain_packets, red_packets) >= 50, "sending goes on while it changes"
    await page.close()


async def test_the_browsers_buffer_follows_what_the_server_asks(chromium: Browser) -> None:
    async with serve(StubPeer(messages=[{"type": "call.state", "state": "listening"}])) as peer:
        page = await in_call(chromium, peer.url, KEEP_CONNECTIONS)
        await expect(page.locator("#repair")).to_have_text(OVER_DATA_CHANNEL, timeout=10_000)
        for target in (180.0, None):
            await peer.send({"type": "receiver.target", "target_ms": target})
            async with asyncio.timeout(5):
                while await target_of(page) != target:
                    await asyncio.sleep(0.05)
        decision = {"output": "receiver_target_ms", "before": "None", "after": "180", "reason": "fec+red(1,) needs it"}
        await peer.send({"type": "control.decision", "at_ms": 5.0, **decision})
        await expect(page.locator("#decisions")).to_have_text(
            "Your buffer's target: none → 180 ms (FEC + copies at 1 needs it)"
        )
        await page.context.close()


async def target_of(page: Page) -> Any:
    return await page.evaluate(
        "connections[0].getReceivers().find((each) => each.track.kind === 'audio').jitterBufferTarget"
    )
