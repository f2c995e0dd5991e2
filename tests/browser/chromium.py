"""Chromium as the tests start it: headless, with a file as its microphone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright, expect

from tests.browser.install import CHROMIUM, require

expect.set_options(timeout=20_000)  # a busy machine is slow; what never comes true still fails
ARTIFACTS = Path(__file__).parents[1] / "artifacts"
_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
)
GRANTED = "--use-fake-ui-for-media-stream"
FAKE_MICROPHONE = "--use-fake-device-for-media-stream"


def microphone_flags(wav: Path | None = None) -> tuple[str, ...]:
    """A granted microphone that beeps, or that plays `wav` once."""
    file = (f"--use-file-for-fake-audio-capture={wav}%noloop",) if wav else ()
    return (GRANTED, FAKE_MICROPHONE, *file)


@asynccontextmanager
async def launch(*flags: str) -> AsyncIterator[Browser]:
    """Start Chromium with `flags` beside the usual ones; end it afterwards."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=require(CHROMIUM), args=[*_QUIET, *flags])
        try:
            yield browser
        finally:
            await browser.close()


async def screenshot(page: Page, name: str, *, full_page: bool = True) -> Path:
    """Keep a picture of `page` among the test artifacts."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    path = ARTIFACTS / f"{name}.png"
    await page.screenshot(path=path, full_page=full_page)
    return path
