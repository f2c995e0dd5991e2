"""A real Chromium opens the control channel by WebTransport, with the certificate known by its digest alone."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Page, async_playwright

from tests.browser import bidi as firefox
from tests.loopback.control_helpers import Side, ignore, make_side, running_server, until
from transport.control_messages import ReceiverTarget, SenderRepair
from transport.quic_server import ControlServer

CHROMIUM_ARGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

OPEN = """async ([url, token, digests]) => {
  const bytes = hex => new Uint8Array(hex.match(/../g).map(byte => parseInt(byte, 16)));
  const session = new WebTransport(`${url}?token=${token}`, {
    serverCertificateHashes: digests.map(hex => ({algorithm: "sha-256", value: bytes(hex)})),
  });
  try {
    await session.ready;
  } catch (error) {
    return {error: String(error)};
  }
  const streams = session.incomingBidirectionalStreams.getReader();
  const stream = (await streams.read()).value;
  window.lines = [];
  window.rtts_ms = [];
  window.session = session;
  window.writer = stream.writable.getWriter();
  (async () => {
    let rest = "";
    for await (const chunk of stream.readable.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + chunk).split("\\n");
      rest = lines.pop();
      window.lines.push(...lines.map(line => JSON.parse(line)));
    }
  })().catch(() => {});
  const now_us = () => Math.round(performance.now() * 1000);
  const out = session.datagrams.writable.getWriter();
  const send = message => out.write(new TextEncoder().encode(JSON.stringify(message)));
  let seq = 0;
  setInterval(() => send({type: "echo.request", seq: seq++, sent_us: now_us()}), 100);
  (async () => {
    const datagrams = session.datagrams.readable.getReader();
    for (;;) {
      const {value, done} = await datagrams.read();
      if (done) return;
      const message = JSON.parse(new TextDecoder().decode(value));
      const at_us = now_us();
      const {seq, sent_us} = message;
      if (message.type === "echo.request")
        send({type: "echo.reply", seq, sent_us, received_us: at_us, replied_us: now_us()});
      if (message.type === "echo.reply")
        window.rtts_ms.push((at_us - sent_us - (message.replied_us - message.received_us)) / 1000);
    }
  })().catch(() => {});
  return {};
}"""


@asynccontextmanager
async def _serve_empty() -> AsyncIterator[str]:
    """An empty page of a secure origin, which 127.0.0.1 is."""

    async def empty(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>test</title>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", empty)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _page() -> AsyncIterator[Page]:
    async with _serve_empty() as url, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM_ARGS)
        page = await browser.new_page()
        await page.goto(url)
        yield page
        await browser.close()


async def _open(page: Page, server: ControlServer, token: str, digests: list[str] | None = None) -> dict[str, Any]:
    arguments = [server.url("127.0.0.1"), token, digests or server.certificate_sha256_list]
    result: dict[str, Any] = await page.evaluate(OPEN, arguments)
    return result


@asynccontextmanager
async def _opened() -> AsyncIterator[tuple[Page, ControlServer, Side]]:
    async with running_server(unix_time=time.time) as server, _page() as page:
        ours = make_side()
        token = server.register(ours.control, send_out_of_band=ignore)
        assert await _open(page, server, token) == {}
        yield page, server, ours


async def test_chromium_opens_the_channel_measures_it_and_talks_both_ways() -> None:
    async with _opened() as (page, _, ours):
        await until(lambda: ours.control.statistics().echoes > 5)
        assert ours.listener.carriers == ["webtransport"]
        rtts_ms = await page.evaluate("window.rtts_ms")
        assert len(rtts_ms) > 3
        assert 0 <= min(rtts_ms) < 100
        ours.control.send(ReceiverTarget(target_ms=120.0, reason="loss"))
        await page.wait_for_function("window.lines.length >= 2")
        first, second = await page.evaluate("window.lines")
        assert first["type"] == "control.accepted"
        assert len(first["next_token"]) >= 40
        assert second == {"type": "receiver.target", "target_ms": 120.0, "reason": "loss"}
        line = '{"type":"sender.repair","red_offsets":[1],"fec":true}\\n'
        await page.evaluate(f"window.writer.write(new TextEncoder().encode('{line}'))")
        await until(lambda: SenderRepair(red_offsets=[1], fec=True) in ours.listener.messages)
        await page.evaluate("window.session.close()")
        await until(lambda: ours.listener.carriers == ["webtransport", None])


async def test_chromium_reopens_with_the_next_token_after_the_connection_was_killed() -> None:
    async with _opened() as (page, server, ours):
        await page.wait_for_function("window.lines.length >= 1")
        (accepted,) = await page.evaluate("window.lines")
        carrier = ours.control._carrier
        assert carrier is not None
        carrier.close()
        await page.evaluate("window.session.closed.catch(() => {})")
        assert await _open(page, server, accepted["next_token"]) == {}
        await until(lambda: ours.listener.carriers.count("webtransport") == 2)
        await page.wait_for_function("window.rtts_ms.length > 2")


@pytest.mark.parametrize("fault", ["token", "certificate"])
async def test_chromium_without_the_token_or_before_another_server_gets_nothing(fault: str) -> None:
    async with running_server(unix_time=time.time) as server, _page() as page:
        ours = make_side()
        token = server.register(ours.control, send_out_of_band=ignore)
        if fault == "token":
            result = await _open(page, server, "A" * 43)
        else:
            result = await _open(page, server, token, ["00" * 32])
        assert "error" in result
        assert ours.listener.carriers == []
        await asyncio.sleep(0.1)
        assert server.redeem(token) is ours.control


async def test_firefox_opens_the_channel_with_the_certificate_s_digest_and_is_measured() -> None:
    async with running_server(unix_time=time.time) as server, _serve_empty() as url, firefox.launch() as tab:
        ours = make_side()
        token = server.register(ours.control, send_out_of_band=ignore)
        await tab.goto(url)
        arguments = json.dumps([server.url("127.0.0.1"), token, server.certificate_sha256_list])
        assert await tab.evaluate(f"({OPEN})({arguments})") == {}
        await until(lambda: ours.control.statistics().echoes > 5)
        assert ours.listener.carriers == ["webtransport"]
