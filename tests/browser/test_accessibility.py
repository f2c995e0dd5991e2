"""The page for everyone: names and roles, the keyboard's way, announcements, contrast in both schemes, calm motion."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.chromium import launch, microphone_flags, screenshot
from tests.browser.stub_peer import StubPeer, serve

pytestmark = pytest.mark.asyncio(loop_scope="module")

INPUT = "conversation.item.input_audio_transcription"
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
TALK: list[dict[str, Any]] = [
    {"type": "call.state", "state": "listening"},
    {"type": f"{INPUT}.completed", "turn": 1, "text": "What should I cook tonight?"},
    {
        "type": "response.done",
        "turn": 1,
        "status": "interrupted",
        "reply_text": "An omelette would be quick. You need two eggs.",
        "heard_text": "An omelette would be quick.",
    },
    {"type": f"{INPUT}.delta", "turn": 2, "text": "And what if I have no eg", "stable_chars": 16},
    {"type": "error", "code": "asr_failed", "message": "I could not make out the last words."},
    {"type": "call.state", "state": "speaking"},
]

CONTRASTS = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
  const backdrop = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.unshift(parse(getComputedStyle(at).backgroundColor));
    return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const luminance = (rgb) => rgb
    .map((value) => value / 255)
    .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility({ checkVisibilityCSS: true })) continue;
    if (element.closest("dialog:not([open]), noscript, script, option")) continue;
    const behind = backdrop(element);
    const [one, two] = [luminance(over(parse(getComputedStyle(element).color), behind)), luminance(behind)];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    found.push([ratio, walker.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""

FOCUS = """() => {
  const at = document.activeElement;
  const outline = getComputedStyle(at);
  return [at.id || at.tagName.toLowerCase(), outline.outlineStyle, parseFloat(outline.outlineWidth)];
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with launch(*microphone_flags()) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def peer() -> AsyncIterator[StubPeer]:
    async with serve(StubPeer(messages=TALK)) as stub:
        yield stub


async def opened(chromium: Browser, peer: StubPeer, **options: Any) -> Page:
    context = await chromium.new_context(**({"viewport": DESKTOP} | options))
    page = await context.new_page()
    await page.goto(peer.url)
    await expect(page.locator("#state")).to_have_text("Ready")
    return page


async def call(page: Page) -> None:
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.locator("#state")).to_have_text("Speaking", timeout=20_000)


async def test_everything_has_its_role_and_its_name(chromium: Browser, peer: StubPeer) -> None:
    page = await opened(chromium, peer)
    assert await page.evaluate("document.documentElement.lang") == "en"
    await expect(page.get_by_role("banner")).to_have_count(1)
    await expect(page.get_by_role("main")).to_have_count(1)
    await expect(page.get_by_role("heading", level=1, name="Antiphon")).to_be_visible()
    for region in ("Call", "Conversation", "Network", "Microphone and speaker"):
        await expect(page.get_by_role("region", name=region, exact=True)).to_be_visible()
    await expect(page.get_by_role("status")).to_contain_text("Ready")
    await call(page)
    await expect(page.get_by_role("button", name="Hang up")).to_be_visible()
    await expect(page.get_by_role("button", name="Mute", pressed=False)).to_be_visible()
    await expect(page.get_by_role("meter", name="Your voice")).not_to_have_attribute("aria-valuenow", "0")
    await expect(page.get_by_role("meter", name="Antiphon")).not_to_have_attribute("aria-valuenow", "0")
    await expect(page.get_by_role("combobox", name="Microphone")).to_be_visible()
    await expect(page.get_by_role("combobox", name="Speaker")).to_be_visible()
    assert "Speaking" in await page.title()
    await page.context.close()


async def test_final_words_are_announced_and_drafts_are_not(chromium: Browser, peer: StubPeer) -> None:
    page = await opened(chromium, peer)
    await call(page)
    log = page.get_by_role("log", name="What was said")
    await expect(log).to_have_attribute("aria-live", "polite")
    await expect(log.get_by_role("listitem")).to_have_count(2)
    await expect(log).not_to_contain_text("And what if")
    drafts = page.get_by_role("list", name="Being said now")
    await expect(drafts).to_contain_text("And what if I have no eg")
    assert await drafts.evaluate("(list) => !list.closest('[aria-live], [role=log], [role=status]')")
    await expect(page.get_by_role("alert")).to_have_text("I could not make out the last words.")
    await expect(page.get_by_role("status")).to_contain_text("Speaking")
    await page.context.close()


async def test_the_keyboard_reaches_everything_in_order_and_one_sees_where_it_is(
    chromium: Browser, peer: StubPeer
) -> None:
    page = await opened(chromium, peer)
    await page.keyboard.press("Tab")
    assert (await page.evaluate(FOCUS))[0] == "call-button"
    await page.keyboard.press("Enter")
    await expect(page.locator("#state")).to_have_text("Speaking", timeout=20_000)
    assert (await page.evaluate(FOCUS))[0] == "call-button", "focus stays on the button that became Hang up"
    order = []
    for _ in range(7):
        await page.keyboard.press("Tab")
        name, style, width = await page.evaluate(FOCUS)
        order.append(name)
        assert style == "solid", name
        assert width >= 2, name
    assert order == ["mute-button", "transcript", "save-text", "save-json", "microphone", "speaker", "summary"]
    await page.locator("#mute-button").focus()
    await page.keyboard.press("Space")
    await expect(page.get_by_role("button", name="Mute", pressed=True)).to_be_focused()
    await page.locator("#call-button").focus()
    await page.keyboard.press("Space")
    await expect(page.locator("#state")).to_have_text("Call ended")
    await expect(page.get_by_role("button", name="Call", exact=True)).to_be_focused()
    await page.context.close()


async def test_what_was_said_is_kept_as_a_file_by_the_keyboard_alone(chromium: Browser, peer: StubPeer) -> None:
    page = await opened(chromium, peer)
    await expect(page.get_by_role("group", name="Save the transcript")).to_be_hidden()
    await call(page)
    kept = []
    for name in ("Save as text", "Save as JSON"):
        await page.get_by_role("button", name=name).focus()
        async with page.expect_download() as download:
            await page.keyboard.press("Enter")
        file = await download.value
        kept.append((file.suggested_filename, (await file.path()).read_text(encoding="utf-8")))
    (text_name, text), (json_name, data) = kept
    assert text_name.startswith("antiphon-")
    assert text_name.endswith(".txt")
    assert json_name.endswith(".json")
    assert text.splitlines()[2:] == [
        "You: What should I cook tonight?",
        "Antiphon: An omelette would be quick. [interrupted]",
    ]
    (talk,) = json.loads(data)["calls"]
    assert [(said["who"], said["turn"], said.get("interrupted", False)) for said in talk["utterances"]] == [
        ("you", 1, False),
        ("antiphon", 1, True),
    ]
    await page.get_by_role("button", name="Hang up").click()
    await expect(page.get_by_role("button", name="Save as text")).to_be_visible()
    await page.context.close()


async def test_the_token_dialog_takes_the_focus_and_gives_it_back(chromium: Browser, peer: StubPeer) -> None:
    peer.token = "secret"
    page = await opened(chromium, peer)
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.get_by_role("dialog", name="Access token").get_by_label("Token")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Call", exact=True)).to_be_focused()
    await page.context.close()


@pytest.mark.parametrize("size", ["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_can_be_read_and_every_button_hit(
    chromium: Browser, peer: StubPeer, scheme: str, size: str
) -> None:
    viewport = DESKTOP if size == "desktop" else PHONE
    page = await opened(chromium, peer, color_scheme=scheme, viewport=viewport)
    await assert_readable(page)
    await call(page)
    await assert_readable(page)
    await screenshot(page, f"layout-{size}-{scheme}")
    await page.get_by_role("button", name="Mute").click()
    peer.refuse = (400, "the offer has no audio section")
    await page.get_by_role("button", name="Hang up").click()
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.get_by_role("alert").locator(".title")).to_be_visible()
    await assert_readable(page)
    await page.context.close()


async def assert_readable(page: Page) -> None:
    await page.wait_for_timeout(400)  # colours fade in
    contrasts = await page.evaluate(CONTRASTS)
    assert len(contrasts) >= 10
    assert [(round(ratio, 2), text) for ratio, text in contrasts if ratio < 4.5] == []
    for button in await page.get_by_role("button").all():
        box = await button.bounding_box()
        assert box is not None
        assert box["height"] >= 44
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off at the side"


async def test_reduced_motion_is_still(chromium: Browser, peer: StubPeer) -> None:
    peer.messages = [{"type": "call.state", "state": "thinking"}]
    moving, still = [await opened(chromium, peer, reduced_motion=wish) for wish in ("no-preference", "reduce")]
    for page, animations in ((moving, 1), (still, 0)):
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.locator("#state")).to_have_text("Thinking", timeout=20_000)
        assert (
            await page.evaluate("document.getAnimations().filter((each) => each instanceof CSSAnimation).length")
            == animations
        )
        await page.context.close()
