"""What crosses between the server and an engine process: length-prefixed msgpack frames over a socket pair."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from peer.engines.base import AsrOptions, ChatMessage, LlmOptions, Samples, Transcript, TtsOptions

_LENGTH_BYTES = 4
_Incoming = TypeVar("_Incoming")


class PartSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One engine to load: `factory` is module:function, called with `options` and a progress callback."""

    factory: str
    options: dict[str, Any] = {}


class Configure(msgspec.Struct, frozen=True, kw_only=True, tag="configure"):
    """The first frame: the engines to load, by part (asr, llm, tts, turn)."""

    parts: dict[str, PartSpec]


class Transcribe(msgspec.Struct, frozen=True, kw_only=True, tag="transcribe"):
    """Asks for a TranscriptReply."""

    request_id: int
    audio: bytes
    options: AsrOptions


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Asks for TextPieces, then Done."""

    request_id: int
    messages: tuple[ChatMessage, ...]
    options: LlmOptions


class CountTokens(msgspec.Struct, frozen=True, kw_only=True, tag="count_tokens"):
    """Asks for a NumberReply."""

    request_id: int
    messages: tuple[ChatMessage, ...]


class Synthesize(msgspec.Struct, frozen=True, kw_only=True, tag="synthesize"):
    """Asks for AudioPieces, then Done."""

    request_id: int
    text: str
    options: TtsOptions


class JudgeTurn(msgspec.Struct, frozen=True, kw_only=True, tag="judge_turn"):
    """Asks for a NumberReply, the probability that the turn has ended."""

    request_id: int
    audio: bytes


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Ends a request; nothing more is sent for it."""

    request_id: int


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """A part on its way to readiness."""

    part: str
    fraction: float | None
    message: str


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """Every part is loaded and warm."""

    sample_rate_hz: int | None = None
    """Of the voice, where there is one."""


class NotLoaded(msgspec.Struct, frozen=True, kw_only=True, tag="not_loaded"):
    """A part that cannot be loaded; the process ends after this."""

    part: str
    message: str
    retryable: bool


class TranscriptReply(msgspec.Struct, frozen=True, kw_only=True, tag="transcript"):
    """The answer to Transcribe."""

    request_id: int
    transcript: Transcript


class TextPiece(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """A piece of a reply."""

    request_id: int
    text: str


class AudioPiece(msgspec.Struct, frozen=True, kw_only=True, tag="audio"):
    """A piece of speech, int16."""

    request_id: int
    audio: bytes


class NumberReply(msgspec.Struct, frozen=True, kw_only=True, tag="number"):
    """The answer to CountTokens and JudgeTurn."""

    request_id: int
    value: float


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The end of a stream."""

    request_id: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """A request that raised."""

    request_id: int
    message: str
    retryable: bool


Request = Transcribe | Generate | CountTokens | Synthesize | JudgeTurn
ToHost = Configure | Request | Cancel
Reply = TranscriptReply | TextPiece | AudioPiece | NumberReply | Done | Failed
FromHost = Progress | Ready | NotLoaded | Reply

TO_HOST: msgspec.msgpack.Decoder[ToHost] = msgspec.msgpack.Decoder(ToHost)
FROM_HOST: msgspec.msgpack.Decoder[FromHost] = msgspec.msgpack.Decoder(FromHost)
_ENCODER = msgspec.msgpack.Encoder()


class FrameStream(Generic[_Incoming]):
    """Frames over a stream socket; one reader, any number of writers on the same loop."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        decoder: msgspec.msgpack.Decoder[_Incoming],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = decoder

    async def read(self) -> _Incoming | None:
        """Return the next frame, or None when the other side is gone."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
            return self._decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def write(self, frame: ToHost | FromHost) -> None:
        """Hand a frame to the socket at once; a dead other side is noticed by `read` alone."""
        if not self._writer.is_closing():
            body = _ENCODER.encode(frame)
            self._writer.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)

    async def drain(self) -> None:
        """Wait until the socket has taken most of what was written; a dead other side is noticed by `read` alone."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def close(self) -> None:
        """Close the socket; the other side reads the end of the stream."""
        self._writer.close()


def pack_audio(samples: Samples) -> bytes:
    """Return int16 samples as bytes."""
    return np.ascontiguousarray(samples, dtype=np.int16).tobytes()


def unpack_audio(audio: bytes) -> Samples:
    """Return the samples of `pack_audio`, read-only."""
    return np.frombuffer(audio, dtype=np.int16)
