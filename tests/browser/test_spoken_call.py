"""A person's call, whole: the real page in real browsers, a voice as microphone, the server with its real engines."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page

from tests.browser import bidi, chromium
from tests.browser.page_ears import RECORD_VOICE, SNAPSHOT, TAKE_RECORDING, WATCH_MICROPHONE, microphone_from_file
from tests.browser.speech import Speech, decode, recording, synthesize, transcribe
from tests.loopback.local_server import server_process
from tests.word_errors import word_error_rate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

Evaluate = Callable[[str], Awaitable[Any]]
QUESTION = "Please tell me something about the sun."
KENNEDY = "And so my fellow Americans, ask not what your country can do for you, ask what you can do for your country."
REAL = ("--asr", "whisper:tiny.en", "--llm", "ct2:smollm2-135m-instruct", "--tts", "piper:en_US-joe-medium")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[str]:
    async with server_process(*REAL, "--turn", "smart-turn") as (url, _):
        yield url


async def hold_call(evaluate: Evaluate, speech: Speech) -> dict[str, Any]:
    """Press Call, let the file speak, wait for the answer to end; return what the page shows then."""
    await until(evaluate, lambda page: page["state"] == "Ready", 10)
    await evaluate("document.getElementById('call-button').click()")
    await until(evaluate, lambda page: page["voice"] and page["state"] == "Listening", 20)
    await evaluate(RECORD_VOICE)
    await until(evaluate, lambda page: page["ms"] > 1000 * speech.ends_s, speech.ends_s + 20)
    answered = 1 + len((await evaluate(SNAPSHOT))["peer"])
    return await until(
        evaluate,
        lambda page: len(page["peer"]) >= answered and page["state"] == "Listening" and not page["growing"],
        45,
    )


async def until(evaluate: Evaluate, met: Callable[[dict[str, Any]], bool], within_s: float) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for _ in range(round(within_s * 5)):
        seen = await evaluate(SNAPSHOT)
        assert not seen["problem"], seen
        if met(seen):
            return seen
        await asyncio.sleep(0.2)
    raise AssertionError(f"not within {within_s} s: {seen}")


async def hear_answer(evaluate: Evaluate, speech: Speech) -> str:
    """Transcribe what the browser received after the end of `speech`."""
    sound, began_ms = await evaluate(TAKE_RECORDING)
    skip = max(0, round((speech.ends_s - began_ms / 1000) * 16_000))
    return transcribe(decode(base64.b64decode(sound))[skip:])


async def evaluator(page: Page) -> Evaluate:
    await page.add_init_script(f"({WATCH_MICROPHONE})()")
    return page.evaluate


async def test_chromium_is_understood_and_answered(server: str, tmp_path: Path) -> None:
    speech = synthesize(QUESTION, tmp_path)
    async with chromium.launch(*chromium.microphone_flags(speech.path)) as browser:
        page = await browser.new_page(viewport={"width": 1280, "height": 960})
        evaluate = await evaluator(page)
        await page.goto(server)
        seen = await hold_call(evaluate, speech)
        heard = await hear_answer(evaluate, speech)
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            await page.wait_for_timeout(500)
            await chromium.screenshot(page, f"call-chromium-{scheme}")
    assert_understood(seen, speech, heard)


async def test_chromium_with_a_person_who_pauses(server: str, tmp_path: Path) -> None:
    speech = recording("jfk.flac", KENNEDY, tmp_path) or synthesize(KENNEDY, tmp_path)
    async with chromium.launch(*chromium.microphone_flags(speech.path)) as browser:
        page = await browser.new_page()
        evaluate = await evaluator(page)
        await page.goto(server)
        seen = await hold_call(evaluate, speech)
        heard = await hear_answer(evaluate, speech)
    assert_understood(seen, speech, heard)


async def test_firefox_is_understood_and_answered(server: str, tmp_path: Path) -> None:
    speech = synthesize(QUESTION, tmp_path)
    async with bidi.launch() as firefox:
        await firefox.resize(1280, 960)
        await firefox.preload(microphone_from_file(speech.path))
        await firefox.goto(server)
        seen = await hold_call(firefox.evaluate, speech)
        heard = await hear_answer(firefox.evaluate, speech)
        await firefox.screenshot(chromium.ARTIFACTS / "call-firefox.png")
    assert_understood(seen, speech, heard)


def assert_understood(seen: dict[str, Any], speech: Speech, heard: str) -> None:
    assert word_error_rate(speech.text, " ".join(seen["user"])) <= 0.15, seen
    assert seen["peer"][-1], seen
    assert word_error_rate(seen["peer"][-1], heard) <= 0.2, (seen["peer"][-1], heard)
