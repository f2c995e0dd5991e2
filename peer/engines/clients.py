"""Engines of another process, seen from this one: each client is a Protocol of peer.engines.base."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

from peer.engines import wire
from peer.engines.base import (
    ASR_DEFAULTS,
    LLM_DEFAULTS,
    TTS_DEFAULTS,
    AsrOptions,
    ChatMessage,
    LlmOptions,
    Samples,
    Transcript,
    TtsOptions,
)
from peer.errors import EngineError

Exchange = Callable[[Callable[[int], wire.Request]], AsyncGenerator[wire.Reply, None]]
"""Sends the request made for a request id and yields its replies."""


async def _ask(exchange: Exchange, make_request: Callable[[int], wire.Request]) -> wire.Reply:
    async with contextlib.aclosing(exchange(make_request)) as replies:
        async for reply in replies:
            return reply
    raise EngineError("the engine gave no answer")


class AsrClient:
    """Speech to text in the engine process."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def transcribe(self, samples: Samples, *, options: AsrOptions = ASR_DEFAULTS) -> Transcript:
        """Return what is said in `samples` (int16, 16 kHz); raises EngineError."""
        audio = wire.pack_audio(samples)
        reply = await _ask(
            self._exchange, lambda number: wire.Transcribe(request_id=number, audio=audio, options=options)
        )
        assert isinstance(reply, wire.TranscriptReply)
        return reply.transcript


class LlmClient:
    """A chat model in the engine process."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def generate(
        self, messages: Sequence[ChatMessage], *, options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str, None]:
        """Yield pieces of the reply as they are decoded; raises EngineError."""
        said = tuple(messages)
        replies = self._exchange(lambda number: wire.Generate(request_id=number, messages=said, options=options))
        async with contextlib.aclosing(replies):
            async for reply in replies:
                if isinstance(reply, wire.TextPiece):
                    yield reply.text

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Return how many prompt tokens `messages` come to."""
        said = tuple(messages)
        reply = await _ask(self._exchange, lambda number: wire.CountTokens(request_id=number, messages=said))
        assert isinstance(reply, wire.NumberReply)
        return int(reply.value)


class TtsClient:
    """A voice in the engine process."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.sample_rate_hz = 0
        """Sample rate of the voice; 0 until the engine process has been ready once."""

    async def synthesize(self, text: str, *, options: TtsOptions = TTS_DEFAULTS) -> AsyncGenerator[Samples, None]:
        """Yield the speech of `text` in order; raises EngineError."""
        replies = self._exchange(lambda number: wire.Synthesize(request_id=number, text=text, options=options))
        async with contextlib.aclosing(replies):
            async for reply in replies:
                if isinstance(reply, wire.AudioPiece):
                    yield wire.unpack_audio(reply.audio)


class TurnClient:
    """An end-of-turn model in the engine process."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def end_of_turn_probability(self, samples: Samples) -> float:
        """Return 0..1 for the last seconds of a turn (int16, 16 kHz); raises EngineError."""
        audio = wire.pack_audio(samples)
        reply = await _ask(self._exchange, lambda number: wire.JudgeTurn(request_id=number, audio=audio))
        assert isinstance(reply, wire.NumberReply)
        return reply.value
