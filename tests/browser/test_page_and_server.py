"""The real page with the real server (scripted engines): what their two halves must agree on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.chromium import launch, microphone_flags
from tests.loopback.local_server import server_process

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with launch(*microphone_flags()) as browser:
        yield browser


async def opened(chromium: Browser, url: str) -> Page:
    context = await chromium.new_context(ignore_https_errors=True)
    page = await context.new_page()
    await page.goto(url)
    await expect(page.locator("#state")).to_have_text("Ready")
    return page


async def press_call(page: Page) -> None:
    await page.get_by_role("button", name="Call", exact=True).click()


async def assert_in_call(page: Page) -> None:
    await expect(page.locator("#state")).to_have_text(re.compile("Listening|Thinking|Speaking"), timeout=20_000)


async def assert_calls(url: str, count: int) -> None:
    async with aiohttp.ClientSession() as http, asyncio.timeout(10):
        while (await (await http.get(f"{url}/healthz")).json())["calls"] != count:
            await asyncio.sleep(0.1)


async def test_hanging_up_and_closing_the_page_both_end_the_call_at_the_server(chromium: Browser) -> None:
    async with server_process() as (url, _):
        page = await opened(chromium, url)
        await press_call(page)
        await assert_in_call(page)
        await assert_calls(url, 1)
        await page.get_by_role("button", name="Hang up").click()
        await assert_calls(url, 0)
        await press_call(page)
        await assert_in_call(page)
        await page.close()
        await assert_calls(url, 0)


async def test_a_server_that_records_says_so_before_anybody_calls(chromium: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    async with server_process("--record", str(folder)) as (url, _):
        page = await opened(chromium, url)
        await expect(page.get_by_text("Calls to this server are recorded.")).to_be_visible()
        await press_call(page)
        await assert_in_call(page)
        await page.get_by_role("button", name="Hang up").click()
        await assert_calls(url, 0)
        await page.context.close()
    (recording,) = folder.iterdir()
    assert recording.suffix == ".wav"
    async with server_process() as (url, _):
        page = await opened(chromium, url)
        await expect(page.get_by_text("Calls to this server are recorded.")).to_be_hidden()
        await page.context.close()


async def test_the_network_panel_draws_both_directions(chromium: Browser) -> None:
    async with server_process() as (url, _):
        page = await opened(chromium, url)
        await press_call(page)
        await assert_in_call(page)
        for title, curve in (
            ("Round trip", "media"),
            ("Jitter", "to you"),
            ("Jitter", "from you"),
            ("Loss", "from you"),
        ):
            figure = page.get_by_role("figure", name=title)
            row = figure.locator("dl div").filter(has_text=curve)
            await expect(row.locator("dd")).to_have_text(re.compile(r"^\d+(\.\d)? (ms|%)$"), timeout=20_000)
            assert await figure.locator("canvas").evaluate(
                "(canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"
            )
        await expect(page.locator("#network-summary")).to_contain_text("round trip")
        await page.context.close()


async def test_a_server_for_others_has_https_asks_for_its_token_and_keeps_quic(chromium: Browser) -> None:
    async with server_process("--host", "0.0.0.0", "--access-token", "open sesame") as (address, _):
        url = address.replace("0.0.0.0", "127.0.0.1")
        assert url.startswith("https://")
        page = await opened(chromium, url)
        await press_call(page)
        dialog = page.get_by_role("dialog", name="Access token")
        await dialog.get_by_label("Token").fill("open sesame")
        await page.keyboard.press("Enter")
        await assert_in_call(page)
        await expect(page.locator("#repair")).to_contain_text("over QUIC", timeout=10_000)
        await page.get_by_role("button", name="Hang up").click()
        await expect(page.locator("#state")).to_have_text("Call ended")
        await page.context.close()


async def test_a_full_server_is_busy_until_a_line_is_free(chromium: Browser) -> None:
    async with server_process("--max-calls", "1") as (url, _):
        first, second = await opened(chromium, url), await opened(chromium, url)
        await press_call(first)
        await assert_in_call(first)
        await press_call(second)
        await expect(second.get_by_role("alert")).to_contain_text("All lines are busy")
        await first.get_by_role("button", name="Hang up").click()
        await assert_calls(url, 0)
        await press_call(second)
        await assert_in_call(second)
        await first.context.close()
        await second.context.close()


async def test_a_server_that_shuts_down_says_so(chromium: Browser) -> None:
    async with server_process() as (url, process):
        page = await opened(chromium, url)
        await press_call(page)
        await assert_in_call(page)
        process.terminate()
        await expect(page.locator("#state")).to_have_text("Call ended")
        await expect(page.locator("#hint")).to_contain_text("shutting down")
        await page.context.close()


async def test_a_server_that_is_killed_in_mid_call_is_noticed_within_seconds(chromium: Browser) -> None:
    async with server_process() as (url, process):
        page = await opened(chromium, url)
        await press_call(page)
        await assert_in_call(page)
        process.kill()
        await expect(page.locator("#state")).to_have_text("The line is unsteady", timeout=15_000)
        await expect(page.locator("#state")).to_have_text("Calling again…", timeout=15_000)
        await page.get_by_role("button", name="Hang up").click()
        await expect(page.locator("#state")).to_have_text("Call ended")
        await page.context.close()
