"""A real Chromium on a lossy path: it answers our requests, asks for what it misses, and plays our copies."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bench.downlink import browser, caller, played
from impair.ice_proxy import IceProxy
from impair.relay_process import RelayProcess
from tests.loopback.pairs import wait_for
from tests.sounds import speech_like


async def test_chromium_and_we_repair_both_ways() -> None:
    """Fails if Chromium stops taking NACK or RED for audio, or stops answering."""
    async with (
        caller(speech_like(8.0)) as served,
        browser() as chromium,
        RelayProcess("loss10", seed=3) as relay,
        IceProxy(served.url, relay.add_route) as proxy,
    ):
        page = await chromium.new_page()
        await page.goto(proxy.url)
        await page.wait_for_function("window.ready")
        call = served.calls[await page.evaluate("window.startCall(false)")]
        await page.wait_for_function("window.connection.connectionState === 'connected'", timeout=30_000)
        connection = call.connection
        assert connection is not None
        assert connection.can_nack
        assert connection.outbound_repair.can_red
        counters = connection.outbound_repair.counters
        await wait_for(lambda: counters.packets_requested > 5, timeout_s=20)
        await wait_for(lambda: connection.outbound_repair.red_offsets, timeout_s=20)
        stats = connection.reader.stats
        await wait_for(lambda: stats.retransmitted_packets_received > 3, timeout_s=20)
        # FEC with requests and copies cost about the same here: with the others forbidden, copies are what is left.
        abilities = connection.controller._abilities
        connection.controller._abilities = replace(abilities, fec=False, nack=False)
        await wait_for(lambda: connection.controller.decision.plan.red_offsets == (1,), timeout_s=40)
        await wait_for(lambda: stats.red_packets_recovered > 3, timeout_s=20)
        first = await page.evaluate("window.readStats()")
        copies_before = counters.copy_bytes
        await asyncio.sleep(5.0)
        heard = played(first, await page.evaluate("window.readStats()"))
        assert counters.copy_bytes > copies_before
        assert heard["concealed_pct"] < 8.0
        reasons = await page.evaluate("window.decisions.map(decision => decision.reason)")
        assert any("loss" in reason for reason in reasons)
        await page.evaluate("window.connection.close()")
