"""Each thing that can go wrong with a call: the page says it in a person's words, and can call again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.browser.chromium import FAKE_MICROPHONE, launch, microphone_flags
from tests.browser.stub_peer import StubPeer, serve

pytestmark = pytest.mark.asyncio(loop_scope="module")

LISTENING = {"type": "call.state", "state": "listening"}
HEARD = "conversation.item.input_audio_transcription.completed"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with launch(*microphone_flags()) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def peer() -> AsyncIterator[StubPeer]:
    async with serve(StubPeer(messages=[LISTENING])) as stub:
        yield stub


@pytest_asyncio.fixture(loop_scope="module")
async def context(chromium: Browser) -> AsyncIterator[BrowserContext]:
    context = await chromium.new_context()
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(context: BrowserContext, peer: StubPeer) -> Page:
    return await opened(context, peer)


async def opened(context: BrowserContext, peer: StubPeer) -> Page:
    page = await context.new_page()
    await page.goto(peer.url)
    return page


def state(page: Page, text: str, *, within_s: float = 10) -> asyncio.Future[None]:
    return asyncio.ensure_future(expect(page.locator("#state")).to_have_text(text, timeout=within_s * 1000))


async def problem(page: Page, title: str, *, within_s: float = 10) -> None:
    alert = page.get_by_role("alert").locator(".title")
    await expect(alert).to_have_text(title, timeout=within_s * 1000)


async def call(page: Page) -> None:
    await page.get_by_role("button", name="Call", exact=True).click()


async def assert_can_call(page: Page) -> None:
    await call(page)
    await state(page, "Listening", within_s=20)
    await expect(page.get_by_role("alert").locator(".title")).to_have_count(0)


async def test_a_server_that_is_not_ready_says_why_and_then_takes_the_call(
    context: BrowserContext, peer: StubPeer
) -> None:
    peer.not_ready = "loading the voice, 40 %"
    page = await opened(context, peer)
    await state(page, "Getting ready")
    await expect(page.locator("#hint")).to_have_text("loading the voice, 40 %")
    await page.locator("#call-button").click(force=True)
    assert peer.requests == []
    peer.not_ready = None
    await state(page, "Ready")
    await assert_can_call(page)


async def test_a_server_that_stops_being_ready_refuses_and_the_page_waits_for_it(page: Page, peer: StubPeer) -> None:
    await state(page, "Ready")
    peer.not_ready = "restarting the language model"
    peer.refuse = (503, "not ready yet: restarting the language model")
    await call(page)
    await problem(page, "The server is getting ready")
    await state(page, "Getting ready")
    peer.not_ready = peer.refuse = None
    await state(page, "Ready")
    await assert_can_call(page)


@pytest.mark.parametrize(
    ("status", "words", "title"),
    [
        (503, "all 16 lines are taken; try again later", "All lines are busy"),
        (429, "all 16 lines are taken; try again later", "All lines are busy"),
        (400, "the offer has no audio section", "The server refused the call"),
        (500, "", "The server refused the call"),
    ],
)
async def test_a_refused_call_is_explained_with_the_servers_words(
    page: Page, peer: StubPeer, status: int, words: str, title: str
) -> None:
    peer.refuse = (status, words)
    await call(page)
    await problem(page, title)
    if words:
        await expect(page.get_by_role("alert")).to_contain_text(words)
    peer.refuse = None
    await assert_can_call(page)


async def test_the_page_asks_for_the_token_once_and_keeps_it_for_the_tab(page: Page, peer: StubPeer) -> None:
    peer.token = "open sesame"
    await call(page)
    dialog = page.get_by_role("dialog", name="Access token")
    await dialog.get_by_label("Token").fill("guess")
    await dialog.get_by_role("button", name="Call").click()
    await problem(page, "The access token was not accepted")
    await dialog.get_by_label("Token").fill("open sesame")
    await page.keyboard.press("Enter")
    await state(page, "Listening")
    await page.reload()
    await assert_can_call(page)
    await expect(dialog).to_be_hidden()


async def test_a_person_without_a_token_may_cancel(page: Page, peer: StubPeer) -> None:
    peer.token = "open sesame"
    await call(page)
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await problem(page, "This server asks for an access token")
    peer.token = ""
    await assert_can_call(page)


async def test_a_dropped_call_is_called_again_by_itself(page: Page, peer: StubPeer) -> None:
    peer.messages = [LISTENING, {"type": HEARD, "turn": 1, "text": "good evening"}]
    await assert_can_call(page)
    await expect(page.get_by_role("log")).to_have_text(re.compile("good evening"))
    await peer.drop_calls()
    await state(page, "Calling again…")
    await state(page, "Listening", within_s=20)
    await expect(page.get_by_role("log")).to_contain_text("A new call: what was said above is forgotten.")
    assert peer.requests.count("POST") == 2


async def test_a_server_that_goes_away_in_mid_call_is_named_and_waited_for(context: BrowserContext) -> None:
    async with serve(StubPeer(messages=[LISTENING])) as first:
        page = await context.new_page()
        await page.clock.install()
        await page.goto(first.url)
        await assert_can_call(page)
    port = int(first.url.rstrip("/").rpartition(":")[2])
    await state(page, "Calling again…")
    for _ in range(4):
        await page.clock.fast_forward(8_000)  # the pauses between its tries
        await page.wait_for_timeout(500)
    await problem(page, "The server has gone", within_s=40)
    await state(page, "No server")
    async with serve(StubPeer(messages=[LISTENING]), port=port):
        await state(page, "Ready")
        await assert_can_call(page)


async def test_hanging_up_stops_calling_again(page: Page, peer: StubPeer) -> None:
    await assert_can_call(page)
    peer.refuse = (503, "all lines are taken")
    await peer.drop_calls()
    await state(page, "Calling again…")
    await page.get_by_role("button", name="Hang up").click()
    await state(page, "Call ended")
    tries = peer.requests.count("POST")
    await asyncio.sleep(1.0)
    assert peer.requests.count("POST") == tries
    peer.refuse = None
    await assert_can_call(page)


async def test_no_answer_and_no_way_through_are_told_apart(context: BrowserContext, peer: StubPeer) -> None:
    async with serve(StubPeer(break_ice=True)) as blocked:
        peer.hold_answer = True
        silent_page, blocked_page = await opened(context, peer), await opened(context, blocked)
        await call(silent_page)
        await call(blocked_page)
        await problem(silent_page, "No answer", within_s=25)
        await problem(blocked_page, "No sound can get through", within_s=25)
        peer.hold_answer = blocked.break_ice = False
        blocked.messages = [LISTENING]
        await assert_can_call(silent_page)
        await assert_can_call(blocked_page)
        assert blocked.requests.count("DELETE") == 1, "a call that never connected is hung up"


async def test_the_peer_ending_the_call_is_not_an_error(page: Page, peer: StubPeer) -> None:
    await assert_can_call(page)
    await peer.send({"type": "call.ended", "reason": "the server is shutting down"})
    await state(page, "Call ended")
    await expect(page.locator("#hint")).to_contain_text("shutting down")
    await expect(page.get_by_role("alert").locator(".title")).to_have_count(0)
    await assert_can_call(page)


async def test_a_fault_inside_the_peer_is_shown_while_the_call_goes_on(page: Page, peer: StubPeer) -> None:
    await assert_can_call(page)
    await peer.send({"type": "error", "code": "llm_failed", "message": "The language model is restarting."})
    await expect(page.get_by_role("alert")).to_have_text("The language model is restarting.")
    await expect(page.get_by_role("button", name="Hang up")).to_be_visible()
    await peer.send({"type": "input_audio_buffer.speech_started", "turn": 2})
    await expect(page.get_by_role("alert")).to_have_text("")


async def test_closing_the_page_hangs_up(page: Page, peer: StubPeer) -> None:
    await assert_can_call(page)
    await page.close(run_before_unload=False)
    async with asyncio.timeout(5):
        while "DELETE" not in peer.requests:
            await asyncio.sleep(0.05)


async def test_a_denied_microphone_is_explained_and_a_granted_one_calls(peer: StubPeer) -> None:
    async with launch(FAKE_MICROPHONE, "--deny-permission-prompts") as browser:
        context = await browser.new_context()
        page = await opened(context, peer)
        await call(page)
        await problem(page, "The microphone is blocked")
        await context.grant_permissions(["microphone"])
        await assert_can_call(page)


async def test_a_machine_without_a_microphone_is_told_so(peer: StubPeer) -> None:
    async with launch("--use-fake-ui-for-media-stream") as browser:
        page = await opened(await browser.new_context(), peer)
        await call(page)
        await problem(page, "No microphone found")
        await call(page)
        await problem(page, "No microphone found")
        assert peer.requests == []


async def test_an_insecure_address_is_named(peer: StubPeer) -> None:
    async with launch(*microphone_flags(), "--host-resolver-rules=MAP antiphon.test 127.0.0.1") as browser:
        page = await browser.new_page()
        await page.goto(peer.url.replace("127.0.0.1", "antiphon.test"))
        await problem(page, "This page needs a secure address")
