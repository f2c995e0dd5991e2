"""Messages of a call: JSON objects tagged by `type`, on the WebRTC data channel and on the control channel's streams.

Names are OpenAI Realtime's where the meaning is the same. Unknown types and unknown fields are ignored, so that either
side may be newer. Times in `_ms` are milliseconds since the call was connected, on the server's clock.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class CallState(msgspec.Struct, frozen=True, kw_only=True, tag="call.state"):
    """What the peer is doing now."""

    state: Literal["connecting", "listening", "thinking", "speaking", "ended"]
    at_ms: float = 0.0


class SpeechStarted(msgspec.Struct, frozen=True, kw_only=True, tag="input_audio_buffer.speech_started"):
    """The caller began to speak."""

    turn: int
    audio_start_ms: float = 0.0


class SpeechStopped(msgspec.Struct, frozen=True, kw_only=True, tag="input_audio_buffer.speech_stopped"):
    """The caller's turn has ended; `audio_end_ms` is where the voice ended, not where that was decided."""

    turn: int
    audio_end_ms: float = 0.0


class UserTranscriptDelta(
    msgspec.Struct, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.delta"
):
    """A partial transcript: `text` replaces the partial before it, its first `stable_chars` will not change."""

    turn: int
    text: str
    stable_chars: int = 0


class UserTranscript(
    msgspec.Struct, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.completed"
):
    """The caller's turn, whole."""

    turn: int
    text: str


class ReplyStarted(msgspec.Struct, frozen=True, kw_only=True, tag="response.created"):
    """The reply to `turn` begins."""

    turn: int


class ReplyDelta(msgspec.Struct, frozen=True, kw_only=True, tag="response.output_audio_transcript.delta"):
    """More text of the reply, as it is handed to the voice."""

    turn: int
    text: str


class ReplyDone(msgspec.Struct, frozen=True, kw_only=True, tag="response.done"):
    """The reply has ended: all of its sound was sent, or it was interrupted or failed."""

    turn: int
    status: Literal["completed", "interrupted", "failed"]
    reply_text: str
    heard_text: str
    """The part of `reply_text` whose sound was sent before it ended."""
    latency_ms: dict[str, float] = {}
    """Stages of the answer: endpointing, asr, llm_first_token, first_sentence, tts, send."""


class CallError(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """Something a person should know; the call goes on unless `fatal`."""

    code: str
    message: str
    fatal: bool = False


class CallRecorded(msgspec.Struct, frozen=True, kw_only=True, tag="call.recorded"):
    """The call is being recorded, for `longest_s` seconds at most."""

    longest_s: float


class CallEnded(msgspec.Struct, frozen=True, kw_only=True, tag="call.ended"):
    """The call is over and why, as the last message."""

    reason: str


class CallStats(msgspec.Struct, frozen=True, kw_only=True, tag="call.stats"):
    """The server's view of the media it receives, about once a second, in W3C terms."""

    rtt_ms: float | None = None
    packets_received: int = 0
    packets_lost: int = 0
    concealed_pct: float = 0.0
    jitter_ms: float = 0.0


CallMessage = (
    CallState
    | SpeechStarted
    | SpeechStopped
    | UserTranscriptDelta
    | UserTranscript
    | ReplyStarted
    | ReplyDelta
    | ReplyDone
    | CallError
    | CallRecorded
    | CallEnded
    | CallStats
)

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[CallMessage] = msgspec.json.Decoder(CallMessage)
MAX_MESSAGE_BYTES = 16_384


def encode(message: CallMessage) -> str:
    """Return `message` as one JSON object."""
    return _ENCODER.encode(message).decode()


def decode(data: str | bytes) -> CallMessage | None:
    """Return the message in `data`, or None for an unknown, malformed or oversized one."""
    if len(data) > MAX_MESSAGE_BYTES:
        return None
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
