"""Microphone and speaker in the page: mute, choice, loss of a device, levels, and a word where nothing is heard."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.chromium import GRANTED, launch
from tests.browser.stub_peer import StubPeer, serve

pytestmark = pytest.mark.asyncio(loop_scope="module")

TWO_MICROPHONES = "--use-fake-device-for-media-stream=device-count=2"
KEEP_STREAMS = """(() => {
  window.opened = [];
  const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (constraints) => {
    // Chromium's fake microphone beeps, and the noise suppressor takes a steady beep for noise.
    const plain = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    const stream = await open({ ...constraints, audio: { ...constraints.audio, ...plain } });
    opened.push({ device: constraints.audio.deviceId?.exact ?? "", track: stream.getAudioTracks()[0] });
    return stream;
  };
})()"""
SILENT_MICROPHONE = """(() => {
  navigator.mediaDevices.getUserMedia = async () => new AudioContext().createMediaStreamDestination().stream;
})()"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with launch(GRANTED, TWO_MICROPHONES) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def peer() -> AsyncIterator[StubPeer]:
    async with serve(StubPeer(messages=[{"type": "call.state", "state": "listening"}])) as stub:
        yield stub


async def in_call(chromium: Browser, peer: StubPeer, script: str) -> Page:
    context = await chromium.new_context()
    page = await context.new_page()
    await page.add_init_script(script)
    await page.goto(peer.url)
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.locator("#state")).to_have_text("Listening", timeout=20_000)
    return page


async def heard(peer: StubPeer, met: Callable[[float], bool], *, for_s: float = 0.0) -> None:
    """Wait until the loudness of what arrives is as wanted, without a break of `for_s`."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    async with asyncio.timeout(15):
        while loop.time() - since < for_s or not met(peer.heard_rms):
            if not met(peer.heard_rms):
                since = loop.time()
            await asyncio.sleep(0.02)


async def test_mute_silences_and_unmute_lets_through(chromium: Browser, peer: StubPeer) -> None:
    page = await in_call(chromium, peer, KEEP_STREAMS)
    await heard(peer, lambda rms: rms > 2)
    await page.get_by_role("button", name="Mute").click()
    await heard(peer, lambda rms: rms < 1, for_s=1.5)
    await page.get_by_role("button", name="Mute", pressed=True).click()
    await heard(peer, lambda rms: rms > 2)
    await page.get_by_role("button", name="Mute", pressed=False).click()
    await page.get_by_role("button", name="Hang up").click()
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.locator("#state")).to_have_text("Listening", timeout=20_000)
    await heard(peer, lambda rms: rms > 2)
    await page.context.close()


async def test_another_microphone_in_mid_call_and_remembered(chromium: Browser, peer: StubPeer) -> None:
    page = await in_call(chromium, peer, KEEP_STREAMS)
    choice = page.get_by_role("combobox", name="Microphone")
    await expect(choice.locator("option")).not_to_have_count(1)
    device = await choice.locator("option").last.get_attribute("value")
    assert device
    await choice.select_option(device)
    async with asyncio.timeout(5):
        while await page.evaluate("opened.length") < 2:
            await asyncio.sleep(0.05)
    assert await page.evaluate("opened.map((each) => [each.device, each.track.readyState])") == [
        ["", "ended"],
        [device, "live"],
    ]
    peer.heard_rms = 0.0
    await heard(peer, lambda rms: rms > 2)
    await page.reload()
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.locator("#state")).to_have_text("Listening", timeout=20_000)
    assert await page.evaluate("opened[0].device") == device
    await page.context.close()


async def test_a_microphone_pulled_out_gives_way_to_the_default(chromium: Browser, peer: StubPeer) -> None:
    page = await in_call(chromium, peer, KEEP_STREAMS)
    await page.evaluate("opened[0].track.stop(); opened[0].track.dispatchEvent(new Event('ended'))")
    async with asyncio.timeout(5):
        while await page.evaluate("opened.length") < 2:
            await asyncio.sleep(0.05)
    peer.heard_rms = 0.0
    await heard(peer, lambda rms: rms > 2)
    await expect(page.get_by_role("button", name="Hang up")).to_be_visible()
    await page.context.close()


async def test_the_last_microphone_pulled_out_ends_the_call_with_a_word(chromium: Browser, peer: StubPeer) -> None:
    page = await in_call(chromium, peer, KEEP_STREAMS)
    await page.evaluate("""() => {
      navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('none', 'NotFoundError'); };
      opened[0].track.stop();
      opened[0].track.dispatchEvent(new Event('ended'));
    }""")
    await expect(page.get_by_role("alert").locator(".title")).to_have_text("No microphone found")
    await expect(page.get_by_role("button", name="Call", exact=True)).to_be_visible()
    assert "DELETE" in peer.requests
    await page.context.close()


async def test_the_speaker_can_be_chosen(chromium: Browser, peer: StubPeer) -> None:
    page = await in_call(chromium, peer, KEEP_STREAMS)
    choice = page.get_by_role("combobox", name="Speaker")
    device = await choice.locator("option").last.get_attribute("value")
    assert device
    await choice.select_option(device)
    async with asyncio.timeout(5):
        while await page.locator("#voice").evaluate("(voice) => voice.sinkId") != device:
            await asyncio.sleep(0.05)
    await page.context.close()


async def test_both_levels_move_with_the_sound(chromium: Browser, peer: StubPeer) -> None:
    page = await in_call(chromium, peer, KEEP_STREAMS)
    for name in ("Your voice", "Antiphon"):
        await expect(page.get_by_role("meter", name=name)).to_have_attribute("aria-valuenow", re.compile(r"^[1-9]\d$"))
    await page.get_by_role("button", name="Hang up").click()
    for name in ("Your voice", "Antiphon"):
        await expect(page.get_by_role("meter", name=name)).to_have_attribute("aria-valuenow", "0")
    await page.context.close()


async def test_a_microphone_without_a_sound_is_worth_a_word(chromium: Browser, peer: StubPeer) -> None:
    page = await in_call(chromium, peer, SILENT_MICROPHONE)
    await expect(page.get_by_role("alert")).to_contain_text("Your microphone gives no sound", timeout=15_000)
    await expect(page.get_by_role("button", name="Hang up")).to_be_visible()
    await page.context.close()
