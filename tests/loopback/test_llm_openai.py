"""The OpenAI-compatible client against a server on this machine: what is sent, streams, cancels, and every fault."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from peer.engines.base import ChatMessage, LlmOptions, ToolCall, ToolSpec
from peer.engines.llm_openai import OpenAiLlm
from peer.errors import EngineError

HELLO = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Hello.")]
Answer = Callable[["Server", web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers chat completions as `answer` says and keeps what it was asked."""

    def __init__(self) -> None:
        self.answer: Answer = say("Hello", " there", ".")
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.gone = asyncio.Event()
        self.url = ""


def event(data: Any) -> bytes:
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\r\n\r\n".encode()


def delta(text: str | None) -> bytes:
    return event({"id": "x", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


async def open_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


def send(*chunks: bytes) -> Answer:
    async def answer(_server: Server, request: web.Request) -> web.StreamResponse:
        response = await open_stream(request)
        for chunk in chunks:
            await response.write(chunk)
        return response

    return answer


def say(*texts: str) -> Answer:
    role = event({"choices": [{"delta": {"role": "assistant"}}]})
    usage = event({"choices": [], "usage": {"total_tokens": 9}})
    return send(role, *(delta(text) for text in texts), delta(None), usage, event("[DONE]"))


def refuse(status: int, body: Any) -> Answer:
    async def answer(_server: Server, _request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return answer


async def talk_forever(server: Server, request: web.Request) -> web.StreamResponse:
    response = await open_stream(request)
    try:
        while True:
            await response.write(delta("more "))
            await asyncio.sleep(0.005)
    except (ConnectionError, asyncio.CancelledError):
        server.gone.set()
        raise


async def fall_silent(server: Server, request: web.Request) -> web.StreamResponse:
    response = await open_stream(request)
    await response.write(delta("I "))
    await server.gone.wait()
    return response


async def hang_up(_server: Server, request: web.Request) -> web.StreamResponse:
    response = await open_stream(request)
    await response.write(delta("I "))
    assert request.transport is not None
    request.transport.abort()
    return response


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    state = Server()

    async def complete(request: web.Request) -> web.StreamResponse:
        state.bodies.append(await request.json())
        state.keys.append(request.headers.get("Authorization"))
        return await state.answer(state, request)

    async def models(request: web.Request) -> web.Response:
        state.keys.append(request.headers.get("Authorization"))
        return web.json_response(
            {"data": []}, status=401 if request.headers.get("Authorization") == "Bearer bad" else 200
        )

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    state.url = f"http://{host}:{port}/v1/"
    yield state
    state.gone.set()
    await runner.cleanup()


@pytest.fixture
async def llm(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenAiLlm]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    engine = OpenAiLlm(url=server.url, model="test-model", stall_s=0.5)
    await engine.start()
    yield engine
    await engine.aclose()


async def reply(llm: OpenAiLlm, options: LlmOptions | None = None) -> list[str]:
    return [piece async for piece in llm.generate(HELLO, options=options or LlmOptions())]


async def test_the_reply_streams_piece_by_piece(server: Server, llm: OpenAiLlm) -> None:
    assert llm.not_ready_reason is None
    assert await reply(llm) == ["Hello", " there", "."]
    assert server.bodies[0] == {
        "model": "test-model",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}],
        "stream": True,
        "max_tokens": 128,
        "temperature": 0.0,
        "top_p": 1.0,
    }
    assert server.keys == [None, None]


async def test_options_are_sent(server: Server, llm: OpenAiLlm) -> None:
    await reply(llm, LlmOptions(max_tokens=5, temperature=0.7, top_p=0.9, repetition_penalty=1.1, stop=("\n",)))
    sent = server.bodies[0]
    assert (sent["max_tokens"], sent["temperature"], sent["top_p"]) == (5, 0.7, 0.9)
    assert (sent["repetition_penalty"], sent["stop"]) == (1.1, ["\n"])


async def test_the_key_comes_from_the_option_or_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    for key, expected in ((None, "Bearer from-environment"), ("given", "Bearer given")):
        engine = OpenAiLlm(url=server.url, model="m", api_key=key)
        await reply(engine)
        await engine.aclose()
        assert server.keys[-1] == expected


async def test_a_server_that_does_not_stream_is_understood(server: Server, llm: OpenAiLlm) -> None:
    server.answer = refuse(200, {"choices": [{"message": {"role": "assistant", "content": "All at once."}}]})
    assert await reply(llm) == ["All at once."]


def call_delta(index: int | None, number: str | None, name: str | None, arguments: str | None) -> bytes:
    piece = {"index": index, "id": number, "type": "function", "function": {"name": name, "arguments": arguments}}
    return event({"choices": [{"delta": {"tool_calls": [piece]}}]})


async def test_calls_of_tools_are_put_together_from_their_pieces(server: Server, llm: OpenAiLlm) -> None:
    server.answer = send(
        delta("One moment."),
        call_delta(0, "a1", "price", ""),
        call_delta(0, None, None, '{"item"'),
        call_delta(1, "b2", "stock", "{}"),
        call_delta(0, None, None, ': "tea"}'),
        event("[DONE]"),
    )
    tools = [ToolSpec(name="price", description="Tell it.", parameters={"type": "object"})]
    history = [
        *HELLO,
        ChatMessage(role="assistant", content="", tool_calls=(ToolCall(id="z", name="stock", arguments="{}"),)),
        ChatMessage(role="tool", content="4", tool_call_id="z"),
    ]
    given = [piece async for piece in llm.generate_with_tools(history, tools=tools)]
    assert given == [
        "One moment.",
        ToolCall(id="a1", name="price", arguments='{"item": "tea"}'),
        ToolCall(id="b2", name="stock", arguments="{}"),
    ]
    sent = server.bodies[0]
    assert sent["tools"] == [
        {"type": "function", "function": {"name": "price", "description": "Tell it.", "parameters": {"type": "object"}}}
    ]
    assert sent["messages"][2:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "z", "type": "function", "function": {"name": "stock", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "4", "tool_call_id": "z"},
    ]


async def test_calls_of_tools_come_from_a_server_that_does_not_stream_too(server: Server, llm: OpenAiLlm) -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "price", "arguments": "{}"}}] * 2
    server.answer = refuse(200, {"choices": [{"message": {"content": None, "tool_calls": calls}}]})
    given = [piece async for piece in llm.generate_with_tools(HELLO, tools=[])]
    assert given == [ToolCall(id="a", name="price", arguments="{}")] * 2
    assert "tools" not in server.bodies[0]


async def test_a_stream_without_done_ends(server: Server, llm: OpenAiLlm) -> None:
    server.answer = send(delta("Fine"), delta(".").rstrip())
    assert await reply(llm) == ["Fine", "."]


async def test_closing_the_generator_closes_the_stream(server: Server, llm: OpenAiLlm) -> None:
    server.answer = talk_forever
    async with contextlib.aclosing(llm.generate(HELLO)) as pieces:
        assert await anext(pieces) == "more "
    async with asyncio.timeout(5):
        await server.gone.wait()


async def test_cancelling_the_task_closes_the_stream(server: Server, llm: OpenAiLlm) -> None:
    server.answer = talk_forever
    task = asyncio.create_task(reply(llm))
    while not server.bodies:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5):
        await server.gone.wait()


@pytest.mark.parametrize(
    ("answer", "message", "retryable"),
    [
        (refuse(401, {"error": {"message": "wrong key"}}), "401: wrong key; check the API key", False),
        (refuse(404, {"error": "no such model"}), "404: no such model; check --llm-url", False),
        (refuse(400, {"object": "error"}), "answered 400", False),
        (refuse(429, {"error": {"message": "slow down"}}), "slow down", True),
        (refuse(503, {}), "answered 503", True),
        (send(delta("I "), event({"error": {"message": "out of memory"}})), "out of memory", True),
        (send(delta("I "), event("not json")), "no chat completion: not json", True),
        (send(b"data: " + b"x" * 1_100_000), "without end", True),
        (fall_silent, "did not answer in time", True),
        (hang_up, "broke off its answer", True),
    ],
    ids=["key", "model", "request", "busy", "down", "error event", "junk", "endless", "silent", "hung up"],
)
async def test_every_fault_is_an_engine_error(
    server: Server, llm: OpenAiLlm, answer: Answer, message: str, *, retryable: bool
) -> None:
    server.answer = answer
    with pytest.raises(EngineError) as caught:
        await reply(llm)
    assert message in str(caught.value)
    assert caught.value.retryable is retryable
    server.answer = say("Fine.")
    assert await reply(llm) == ["Fine."]


async def test_a_wrong_key_is_told_at_the_start(server: Server) -> None:
    engine = OpenAiLlm(url=server.url, model="m", api_key="bad")
    with pytest.raises(EngineError, match="check the API key"):
        await engine.start()
    await engine.aclose()


async def test_a_server_that_is_not_there_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peer.engines.llm_openai._START_S", 0.1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    engine = OpenAiLlm(url=url, model="m")
    with pytest.raises(EngineError, match=r"not reachable.*check --llm-url"):
        await engine.start()
    assert engine.not_ready_reason is not None
    await engine.aclose()


async def test_tokens_are_estimated(llm: OpenAiLlm) -> None:
    assert await llm.count_tokens([ChatMessage(role="user", content="x" * 40)]) == 14
    assert await llm.count_tokens([ChatMessage(role="user", content="你好")]) == 6
