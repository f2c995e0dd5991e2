"""Engines that do what a script says: for tests in virtual time and for load without models.

Each engine takes a script, a sequence of steps or a function of its input. Step n answers request n and the last step
answers every later one, so that one script serves a whole conversation. Delays are `asyncio.sleep`, so they cost
nothing on a virtual loop. Every engine keeps what it was asked in `requests`, unless made with `record=False`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from peer.engines.base import (
    ASR_DEFAULTS,
    LISTEN_RATE_HZ,
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

_Request = TypeVar("_Request")
_TOKEN = re.compile(r"\s*\S+|\s+")
_TONE_HZ = 220.0
_TONE_PEAK = 8_000.0
_FADE_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One scripted answer: what is said, how long it takes, and how it fails."""

    text: str = ""
    delay_s: float = 0.0
    """Until the first piece of the answer."""
    piece_delay_s: float = 0.0
    """Between later pieces (tokens of an LLM, pieces of speech)."""
    error: EngineError | None = None
    """Raised once `pieces_before_error` pieces have been given."""
    pieces_before_error: int = 0
    hang: bool = False
    """Never answer where `error` would be raised: only a cancellation ends the request."""
    probability: float = 1.0
    """What a scripted end-of-turn model answers."""


class _Script(Generic[_Request]):
    """The steps or the function behind one engine, and the requests that it has had."""

    def __init__(self, steps: Sequence[Step | str] | Callable[[_Request], Step | str], *, record: bool) -> None:
        self._steps = steps
        self._taken = 0
        self._record = record
        self.requests: list[_Request] = []

    def take_step(self, request: _Request) -> Step:
        index = self._taken
        self._taken += 1
        if self._record:
            self.requests.append(request)
        answer = self._steps(request) if callable(self._steps) else self._steps[min(index, len(self._steps) - 1)]
        return Step(text=answer) if isinstance(answer, str) else answer


async def _fail_if_due(step: Step, pieces: int) -> None:
    if pieces < step.pieces_before_error or (step.error is None and not step.hang):
        return
    if step.hang:
        await asyncio.Event().wait()
    assert step.error is not None
    raise step.error


def describe_audio(samples: Samples) -> Step:
    """Return the default transcript: a sentence that depends on the length of the audio alone."""
    return Step(text=f"I spoke for {round(len(samples) / LISTEN_RATE_HZ * 10)} tenths of a second.")


def answer_last_message(messages: tuple[ChatMessage, ...]) -> Step:
    """Return the default reply: it repeats the last thing said to it, in whole sentences."""
    said = messages[-1].content.strip() if messages else ""
    return Step(text=f"You said: {said.rstrip('.!?')}. That is all I can say about it.")


class ScriptedAsr:
    """An ASR engine that hears what its script says; `requests` holds the audio it was given."""

    def __init__(
        self, script: Sequence[Step | str] | Callable[[Samples], Step | str] = describe_audio, *, record: bool = True
    ) -> None:
        self._script: _Script[Samples] = _Script(script, record=record)

    @property
    def requests(self) -> list[Samples]:
        """The audio of every request so far, int16 at 16 kHz."""
        return self._script.requests

    async def transcribe(self, samples: Samples, *, options: AsrOptions = ASR_DEFAULTS) -> Transcript:
        """Return the step's text after its delay; raises the step's error."""
        step = self._script.take_step(samples)
        await asyncio.sleep(step.delay_s)
        await _fail_if_due(step, step.pieces_before_error)
        return Transcript(
            text=step.text, language=options.language or "en", no_speech_probability=0.0 if step.text else 1.0
        )


class ScriptedLlm:
    """A chat model that says what its script says, a word at a time; `requests` holds the dialogues it was given."""

    def __init__(
        self,
        script: Sequence[Step | str] | Callable[[tuple[ChatMessage, ...]], Step | str] = answer_last_message,
        *,
        record: bool = True,
    ) -> None:
        self._script: _Script[tuple[ChatMessage, ...]] = _Script(script, record=record)

    @property
    def requests(self) -> list[tuple[ChatMessage, ...]]:
        """The messages of every request so far."""
        return self._script.requests

    async def generate(
        self, messages: Sequence[ChatMessage], *, options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str, None]:
        """Yield the step's words, each with the blanks before it; raises the step's error after its pieces."""
        step = self._script.take_step(tuple(messages))
        await asyncio.sleep(step.delay_s)
        tokens = _TOKEN.findall(step.text)[: options.max_tokens]
        for index, token in enumerate(tokens):
            await _fail_if_due(step, index)
            if index:
                await asyncio.sleep(step.piece_delay_s)
            yield token
        await _fail_if_due(step, max(step.pieces_before_error, len(tokens)))

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Return the number of words plus four a message, which is about what chat templates add."""
        return sum(4 + len(message.content.split()) for message in messages)


class ScriptedTts:
    """A voice of plain tones, one a word; `requests` holds the texts it was given.

    Its script gives delays and faults; the speech always follows from the text, so that equal texts sound equal.
    """

    def __init__(
        self,
        script: Sequence[Step | str] | Callable[[str], Step | str] = ("",),
        *,
        sample_rate_hz: int = 22_050,
        word_s: float = 0.25,
        piece_s: float = 0.5,
        record: bool = True,
    ) -> None:
        self._script: _Script[str] = _Script(script, record=record)
        self._sample_rate_hz = sample_rate_hz
        self._word_s = word_s
        self._piece_samples = round(piece_s * sample_rate_hz)

    @property
    def sample_rate_hz(self) -> int:
        """Sample rate of the tones."""
        return self._sample_rate_hz

    @property
    def requests(self) -> list[str]:
        """The text of every request so far."""
        return self._script.requests

    async def synthesize(self, text: str, *, options: TtsOptions = TTS_DEFAULTS) -> AsyncGenerator[Samples, None]:
        """Yield a tone a word in pieces of `piece_s`; raises the step's error after its pieces."""
        step = self._script.take_step(text)
        await asyncio.sleep(step.delay_s)
        speech = self._render(text, options)
        pieces = range(0, len(speech), self._piece_samples)
        for index, start in enumerate(pieces):
            await _fail_if_due(step, index)
            if index:
                await asyncio.sleep(step.piece_delay_s)
            yield speech[start : start + self._piece_samples]
        await _fail_if_due(step, max(step.pieces_before_error, len(pieces)))

    def _render(self, text: str, options: TtsOptions) -> Samples:
        word_samples = round(self._word_s / options.speed * self._sample_rate_hz)
        time_s = np.arange(word_samples) / self._sample_rate_hz
        envelope = np.minimum(1.0, np.minimum(time_s, time_s[::-1]) / _FADE_S)
        tone = _TONE_PEAK * options.volume * envelope * np.sin(2 * np.pi * _TONE_HZ * time_s)
        word = np.clip(tone, -32_768, 32_767).astype(np.int16)
        return np.tile(word, len(text.split()))


class ScriptedTurn:
    """An end-of-turn model that believes what its script says; `requests` holds the audio it was given."""

    def __init__(self, script: Sequence[Step] | Callable[[Samples], Step] = (Step(),), *, record: bool = True) -> None:
        self._script: _Script[Samples] = _Script(script, record=record)

    @property
    def requests(self) -> list[Samples]:
        """The audio of every request so far, int16 at 16 kHz."""
        return self._script.requests

    async def end_of_turn_probability(self, samples: Samples) -> float:
        """Return the step's probability after its delay; raises the step's error."""
        step = self._script.take_step(samples)
        await asyncio.sleep(step.delay_s)
        await _fail_if_due(step, step.pieces_before_error)
        return step.probability
