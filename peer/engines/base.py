"""The Protocols every engine stands behind, and the values that cross them.

Audio is always mono int16, shape (samples,). Everything here is plain data, so that an engine may live in this
process, in the engine process, or behind a network API without its caller knowing. An engine raises
`peer.errors.EngineError` and nothing else; cancelling the awaiting task cancels the work.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]
"""Mono PCM, shape (samples,)."""

LISTEN_RATE_HZ = 16_000
"""Sample rate of everything that listens: VAD, ASR and end-of-turn models."""


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """One recognised word and where it stands in the audio given."""

    text: str
    start_ms: float
    end_ms: float
    probability: float = 1.0


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What an ASR engine heard in one piece of audio."""

    text: str
    language: str | None = None
    no_speech_probability: float = 0.0
    """0..1; the model's own belief that the audio holds no speech."""
    average_log_probability: float = 0.0
    """Mean log probability per token; near 0 is sure, below -1 is a guess."""
    words: tuple[Word, ...] = ()
    """Filled only when word times were asked for."""


class AsrOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to transcribe one piece of audio."""

    language: str | None = None
    """ISO 639-1 code; None lets a multilingual model detect it."""
    hotwords: str | None = None
    prompt: str | None = None
    """Text that came before, for context."""
    word_times: bool = False
    window_ms: int | None = None
    """Length of the encoder's window, as for a partial transcript; None lets the engine choose."""
    max_tokens: int | None = None
    """Upper bound of tokens; None derives one from the length of the audio."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A function that a model may ask to have called."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of an object: its arguments."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a model asks for."""

    id: str
    name: str
    arguments: str
    """A JSON object, as the model wrote it."""


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a dialogue."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """What an assistant's entry asks to have called."""
    tool_call_id: str = ""
    """Which call a tool's entry answers."""


class LlmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to generate one reply."""

    max_tokens: int = 128
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()


class TtsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to speak one piece of text."""

    speed: float = 1.0
    volume: float = 1.0


ASR_DEFAULTS = AsrOptions()
LLM_DEFAULTS = LlmOptions()
TTS_DEFAULTS = TtsOptions()


class AsrEngine(Protocol):
    """Speech to text, one piece of audio at a time."""

    async def transcribe(self, samples: Samples, *, options: AsrOptions = ...) -> Transcript:
        """Return what is said in `samples` (int16, 16 kHz); raises EngineError."""
        ...


class LlmEngine(Protocol):
    """A chat model that streams."""

    def generate(self, messages: Sequence[ChatMessage], *, options: LlmOptions = ...) -> AsyncGenerator[str, None]:
        """Yield pieces of the reply as they are decoded; closing the generator stops the work; raises EngineError."""
        ...

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Return how many prompt tokens `messages` come to; an estimate where the engine has no tokenizer."""
        ...


@runtime_checkable
class ToolLlmEngine(LlmEngine, Protocol):
    """A chat model that can ask for functions to be called."""

    def generate_with_tools(
        self, messages: Sequence[ChatMessage], *, tools: Sequence[ToolSpec], options: LlmOptions = ...
    ) -> AsyncGenerator[str | ToolCall, None]:
        """Yield pieces of the reply, and each call once it is whole; raises EngineError."""
        ...


class TtsEngine(Protocol):
    """Text to speech."""

    @property
    def sample_rate_hz(self) -> int:
        """Sample rate of what `synthesize` yields."""
        ...

    def synthesize(self, text: str, *, options: TtsOptions = ...) -> AsyncGenerator[Samples, None]:
        """Yield the speech of `text` in order, in pieces of any length; raises EngineError."""
        ...


class TurnEngine(Protocol):
    """Judges from the sound of a pause whether the speaker is done (Smart Turn)."""

    async def end_of_turn_probability(self, samples: Samples) -> float:
        """Return 0..1 for the last seconds of a turn (int16, 16 kHz, 8 s at most used); raises EngineError."""
        ...


class Vad(Protocol):
    """Voice activity of one fixed-size frame; synchronous, stateful, cheap enough for the media loop."""

    @property
    def frame_samples(self) -> int:
        """Samples per frame at 16 kHz."""
        ...

    def probability(self, frame: Samples) -> float:
        """Return 0..1 that `frame` (exactly `frame_samples`) holds voice."""
        ...

    def reset(self) -> None:
        """Forget all state, as between calls."""
        ...
