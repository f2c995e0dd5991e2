"""A chat model behind any OpenAI-compatible server, streamed over HTTP (POST /chat/completions)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import aiohttp
import msgspec

from peer.engines.base import LLM_DEFAULTS, ChatMessage, LlmOptions, ToolCall, ToolSpec
from peer.engines.sse import SseError, SseParser
from peer.errors import EngineError

_CONNECT_S = 5.0
_STALL_S = 30.0
"""Longest wait for the first token and between two; a cold server computes a long prompt in this time."""
_START_S = 10.0
_TOKENS_PER_MESSAGE = 4
_CHARACTERS_PER_TOKEN = 4
_END = "[DONE]"


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    error: Any = None


_CHUNK = msgspec.json.Decoder(_Chunk)


class OpenAiLlm:
    """An OpenAI-compatible server behind the LlmEngine protocol."""

    def __init__(
        self,
        *,
        url: str,
        model: str,
        api_key: str | None = None,
        connect_s: float = _CONNECT_S,
        stall_s: float = _STALL_S,
    ) -> None:
        self._url = url.rstrip("/")
        self._model = model
        key = api_key or os.environ.get("OPENAI_API_KEY")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=stall_s)
        self._session: aiohttp.ClientSession | None = None
        self._reason: str | None = f"{self._url} has not answered yet"

    @property
    def not_ready_reason(self) -> str | None:
        """Why the server cannot be asked now; None once it has answered."""
        return self._reason

    async def start(self) -> None:
        """Wait some seconds for the server to answer at all; raises EngineError if it does not or refuses the key."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_S
        while True:
            try:
                async with self._client().get(f"{self._url}/models", headers=self._headers) as response:
                    if response.status in {401, 403}:
                        raise await self._explain(response)
                self._reason = None
                return
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._reason = self._describe(error)
                if loop.time() > deadline:
                    raise EngineError(f"{self._reason}; start it, or check --llm-url") from error
            await asyncio.sleep(0.5)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()
            self._session = None

    async def generate(
        self, messages: Sequence[ChatMessage], *, options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str, None]:
        """Yield the reply as the server sends it; closing the generator closes the stream and ends the work there."""
        async with contextlib.aclosing(self._ask(self._make_body(messages, options), _Calls())) as pieces:
            async for text in pieces:
                yield text

    async def generate_with_tools(
        self, messages: Sequence[ChatMessage], *, tools: Sequence[ToolSpec], options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str | ToolCall, None]:
        """Yield the reply as the server sends it, then the calls that it asks for; raises EngineError."""
        body = self._make_body(messages, options)
        if tools:
            body["tools"] = [{"type": "function", "function": msgspec.to_builtins(tool)} for tool in tools]
        calls = _Calls()
        async with contextlib.aclosing(self._ask(body, calls)) as pieces:
            async for text in pieces:
                yield text
        for call in calls.whole():
            yield call

    async def _ask(self, body: dict[str, Any], calls: _Calls) -> AsyncGenerator[str, None]:
        try:
            async with self._client().post(
                f"{self._url}/chat/completions", json=body, headers=self._headers
            ) as response:
                if response.status != 200:
                    raise await self._explain(response)
                async with contextlib.aclosing(self._read_events(response)) as events:
                    async for event in events:
                        if text := calls.take(_read_delta(event)):
                            yield text
        except (aiohttp.ClientError, TimeoutError, OSError, SseError) as error:
            raise EngineError(self._describe(error)) from error

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Return an estimate: four characters of ASCII, or one other, a token, and four tokens a message."""
        total = 0
        for message in messages:
            ascii_characters = sum(character.isascii() for character in message.content)
            total += _TOKENS_PER_MESSAGE + len(message.content) - ascii_characters
            total += -(-ascii_characters // _CHARACTERS_PER_TOKEN)
        return total

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        return self._session

    def _make_body(self, messages: Sequence[ChatMessage], options: LlmOptions) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [_to_wire(message) for message in messages],
            "stream": True,
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
        }
        if options.stop:
            body["stop"] = list(options.stop)
        if options.repetition_penalty != 1.0:
            body["repetition_penalty"] = options.repetition_penalty  # not OpenAI's own; vLLM and others know it
        return body

    async def _read_events(self, response: aiohttp.ClientResponse) -> AsyncGenerator[str, None]:
        if response.content_type == "application/json":  # a server that does not stream
            yield await response.text()
            return
        parser = SseParser()
        async for chunk in response.content.iter_any():
            for event in parser.feed(chunk):
                if event == _END:
                    return
                yield event
        for event in parser.flush():
            if event != _END:
                yield event

    async def _explain(self, response: aiohttp.ClientResponse) -> EngineError:
        said = (await response.text(errors="replace"))[:2_000]
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            said = _error_text(_CHUNK.decode(said).error) or said
        hint = {401: "; check the API key", 403: "; check the API key", 404: "; check --llm-url and the model's name"}
        message = f"{self._url} answered {response.status}: {said[:300]}{hint.get(response.status, '')}"
        return EngineError(message, retryable=response.status in {408, 409, 429} or response.status >= 500)

    def _describe(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):
            return f"{self._url} did not answer in time"
        if isinstance(error, aiohttp.ClientConnectorError):
            return f"{self._url} is not reachable ({error.os_error.strerror or error.os_error})"
        return f"{self._url} broke off its answer ({error})"


class _Calls:
    """Puts together the calls whose pieces come with the deltas of one answer."""

    def __init__(self) -> None:
        self._calls: dict[int, list[str]] = {}

    def take(self, delta: _Delta | None) -> str:
        """Keep the pieces of calls in `delta` and return its text."""
        if delta is None:
            return ""
        for place, piece in enumerate(delta.tool_calls or ()):
            call = self._calls.setdefault(place if piece.index is None else piece.index, ["", "", ""])
            function = piece.function or _Function()
            call[0] = piece.id or call[0]
            call[1] = function.name or call[1]
            call[2] += function.arguments or ""
        return delta.content or ""

    def whole(self) -> list[ToolCall]:
        """Return the calls, in order."""
        return [
            ToolCall(id=number or f"call_{index}", name=name, arguments=arguments or "{}")
            for index, (number, name, arguments) in sorted(self._calls.items())
        ]


def _to_wire(message: ChatMessage) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def _read_delta(event: str) -> _Delta | None:
    """Return what one chunk of a completion adds; raises EngineError for one that reports an error."""
    try:
        chunk = _CHUNK.decode(event)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise EngineError(f"the server sent what is no chat completion: {event[:200]}") from error
    if chunk.error:
        raise EngineError(f"the server reports: {_error_text(chunk.error)}")
    return next((choice.delta or choice.message for choice in chunk.choices[:1]), None)


def _error_text(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or error)
    return str(error or "")
