"""A call over a bad network: a person sees the loss both ways, and what is done about it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from playwright.async_api import Page, expect

from impair.ice_proxy import IceProxy
from impair.relay_process import RelayProcess
from tests.browser.chromium import launch, microphone_flags, screenshot
from tests.browser.test_page_control import KEEP_CONNECTIONS
from tests.loopback.local_server import server_process

GREETING = "I will now speak for a while, so that there is something to hear on this line. " * 6
NONZERO = re.compile(r"^([1-9]\d*(\.\d)?|0\.[1-9]) ?%$")
INBOUND = """async () => {
  const stats = [...(await connections[0].getStats()).values()];
  return stats.find((each) => each.type === "inbound-rtp");
}"""


async def test_ten_percent_loss_is_seen_both_ways_and_repaired() -> None:
    async with (
        server_process("--greeting", GREETING) as (url, _),
        RelayProcess("loss10", seed=7) as relay,
        IceProxy(url, relay.add_route) as proxy,
        launch(*microphone_flags()) as browser,
    ):
        page = await browser.new_page(viewport={"width": 1280, "height": 960})
        await page.add_init_script(KEEP_CONNECTIONS)
        await page.goto(proxy.url)
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.locator("#state")).to_have_text("Speaking", timeout=30_000)
        await expect(page.locator("#repair")).to_have_text(re.compile("over QUIC"), timeout=10_000)
        await expect(loss(page, "from you")).to_have_text(NONZERO, timeout=20_000)
        await expect(page.locator("#decisions li").first).to_have_text(re.compile("loss"), timeout=20_000)
        async with asyncio.timeout(15):  # how well it is repaired is bench.repair's to measure
            while not (await page.evaluate(INBOUND))["nackCount"]:
                await asyncio.sleep(0.2)
        await screenshot(page, "call-under-loss")


def loss(page: Page, way: str) -> Any:
    return page.get_by_role("figure", name="Loss").locator("dl div").filter(has_text=way).locator("dd")
