"""The examples, each behind a real call of the softphone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from peer.agent import load_agent
from peer.engines.scripted import ScriptedAsr, ScriptedTts
from peer.softphone_call import CallOptions, SoftphoneCall, SoftphoneError
from signaling_server import main
from tests.loopback.local_server import ROOT, SCRIPTED, local_server, server_process, utterance

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


async def _say(call: SoftphoneCall, *, first: bool) -> None:
    await call.play(utterance(0.6), speech_ends_ms=[900], labelled=False, first=first)


def _quick_voice() -> ScriptedTts:
    return ScriptedTts(word_s=0.06, record=False)


@asynccontextmanager
async def _call(example: str, *, heard: str) -> AsyncIterator[SoftphoneCall]:
    """Call a server with an example as its agent and a recogniser that hears `heard`."""
    async with (
        local_server(
            asr=ScriptedAsr([heard], record=False),
            tts=_quick_voice(),
            agent=str(ROOT / "examples" / example),
            llm_name="none",
        ) as server,
        SoftphoneCall(CallOptions(url=server.url)) as call,
    ):
        yield call


async def test_the_echo_example_greets_says_back_what_it_heard_and_hangs_up() -> None:
    async with _call("echo.py", heard="Well, goodbye.") as call:
        with pytest.raises(SoftphoneError, match="the server ended the call: the caller said goodbye"):
            await _say(call, first=True)
    assert [turn.reply_text for turn in call.log.turns] == ["Hello. I say back what you say.", "Goodbye."]
    echo: Any = load_agent(str(ROOT / "examples/echo.py"))()
    assert await echo.on_turn(SimpleNamespace(text="Hello there.")) == "You said: Hello there."


async def test_the_game_example_ends_the_call_when_the_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.randint", lambda low, high: 7)
    async with _call("guess_the_number.py", heard="Is it seven?") as call:
        with pytest.raises(SoftphoneError, match="the game is over"):
            await _say(call, first=True)
    assert [turn.reply_text for turn in call.log.turns][1:] == ["Yes, it is 7. Guesses: 1. Thank you for playing."]


async def test_the_game_example_compares_each_guess_in_a_call_of_its_own() -> None:
    game_class = load_agent(str(ROOT / "examples/guess_the_number.py"))
    game: Any = game_class()
    game.secret = 7
    guesses = ("Is it three?", "Maybe 12.", "I do not know.")
    said = [[piece async for piece in game.on_turn(SimpleNamespace(text=text))] for text in guesses]
    assert [piece for pieces in said for piece in pieces] == [
        "3 is too low. Try again.",
        "12 is too high. Try again.",
        "I heard no number in that. Try again.",
    ]
    assert game_class().guesses == 0  # type: ignore[attr-defined]


@asynccontextmanager
async def _model_that_calls() -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Serve a chat model that asks for a price and then tells the result; yields its URL and what it was asked."""
    bodies: list[dict[str, Any]] = []

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        bodies.append(body)
        last = body["messages"][-1]
        if last["role"] == "tool":
            message: dict[str, Any] = {"content": f"A cake costs {last['content']}."}
        else:
            function = {"name": "price", "arguments": '{"item": "cake"}'}
            message = {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}
        return web.json_response({"choices": [{"message": message}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)

    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"data": []})

    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", bodies
    finally:
        await runner.cleanup()


async def test_the_bakery_example_answers_from_what_its_tool_returned() -> None:
    async with _model_that_calls() as (url, bodies):
        arguments = ("--agent", "examples/bakery.py", "--llm", "openai:test", "--llm-url", url)
        async with server_process(*arguments) as (address, _), SoftphoneCall(CallOptions(url=address)) as call:
            await _say(call, first=True)
    assert [turn.reply_text for turn in call.log.turns] == ["A cake costs 28.0 dollars."]
    assert call.log.errors == []
    assert [tool["function"]["name"] for tool in bodies[0]["tools"]] == ["price", "order"]
    item = bodies[0]["tools"][0]["function"]["parameters"]["properties"]["item"]
    assert sorted(item["enum"]) == ["bread", "cake", "croissant"]
    assert bodies[0]["messages"][0]["content"].startswith("You answer the phone of a small bakery")


def test_tools_behind_a_model_that_cannot_call_are_refused_at_the_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--port", "0", "--quic-port", "0", "--asr", "scripted", "--tts", "scripted", "--turn", "none"]
    arguments += ["--agent", str(ROOT / "examples/bakery.py")]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "Bakery has tools (price, order), and --llm ct2:smollm2-135m-instruct cannot call any" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_tells_how_to_run_it_and_is_short(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    command = re.search(r'make run ARGS="([^"]+)"', text)
    assert command is not None
    assert f"--agent examples/{path.name}" in command[1]
    assert len(text.splitlines()) <= 50


def test_an_agent_without_a_model_is_the_only_use_of_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SCRIPTED, "--llm", "none"]) == 2
    assert "goes with an --agent" in capsys.readouterr().err
