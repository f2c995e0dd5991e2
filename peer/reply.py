"""One reply, as one cancellable task: LLM → tokens → sentences → TTS → playout queue.

A reply is prepared at once and heard only after `release`, so that it may be begun while the caller could still go on,
and thrown away unheard if he does. Cancelling the task closes the LLM's and the voice's generators, which stops their
work wherever it runs. Every queue between the stages is bounded: a slow stage slows the one before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import soxr

from peer.engines.base import ChatMessage, LlmEngine, LlmOptions, Samples, TtsEngine, TtsOptions
from peer.errors import EngineError
from peer.latency import ReplyClock
from peer.prompts import TOKEN_CHANNEL_CAPACITY, PromptEvent, PromptMachine, PromptState, RateMeter
from peer.sentences import ChunkerOptions, SentenceChunker
from peer.speakable import make_speakable
from transport.messages import CallError, CallMessage, ReplyDelta, ReplyStarted
from transport.playout_queue import SAMPLE_RATE_HZ, PlayoutQueue
from transport.spoken_text import join_spoken

_RETRY_S: Final = 0.2
SENTENCES_AHEAD: Final = 4
PREPARED_MS: Final = 4_000.0
"""Speech made ahead of what has been sent; also how much of an unreleased reply is made."""
_SLICE_S: Final = 0.25
"""Speech is resampled in slices, so that the 20 ms path never waits long for its turn on the loop."""
_Tokens = asyncio.Queue[tuple[str | None, float]]
"""Tokens with the time at which the model gave them, None behind the last."""
_CHUNKS: Final = ChunkerOptions(first_phrase_words=3, second_phrase_words=9)
"""The first phrase is spoken while the rest of its sentence is still being written."""
_SENTENCE_ENDS: Final = tuple(".!?…。！？\"'”’)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyOptions:
    """How replies are made."""

    max_tokens: int = 60
    token_timeout_s: float = 15.0
    """Longest wait for the LLM's next token."""
    language: str = "en"
    """Of the replies (ISO 639-1); "" lets the script of each piece decide."""
    repetition_penalty: float = 1.0
    """Above 1 a small model does not say the same over and over."""
    apology: str = ""
    """Spoken where the LLM fails before anything was said."""
    tts: TtsOptions = field(default_factory=TtsOptions)


class Reply:
    """The reply to one turn; `run` it in a task, `release` it when the turn is over, cancel the task to stop it."""

    def __init__(
        self,
        *,
        turn: int,
        prompt: Sequence[ChatMessage] | str,
        llm: LlmEngine,
        tts: TtsEngine,
        playout: PlayoutQueue,
        options: ReplyOptions,
        emit: Callable[[CallMessage], None],
        clock: Callable[[], float],
        lead_ms: Callable[[float], float] | None = None,
    ) -> None:
        """`prompt` is the dialogue so far, or the words to say as they are; `clock` gives seconds."""
        self.turn: Final = turn
        self.marks: Final = ReplyClock(started_at=clock())
        self.status: Literal["completed", "failed"] = "completed"
        self._prompt: Final = prompt
        self._llm: Final = llm
        self._tts: Final = tts
        self._playout: Final = playout
        self._options: Final = options
        self._emit: Final = emit
        self._clock: Final = clock
        self._lead_ms: Final = lead_ms or (lambda _: PREPARED_MS)
        self._piece_ms = 0.0
        self._released: Final = asyncio.Event()
        self._held: list[tuple[Samples, str]] = []
        self._held_samples = 0
        self._said: list[str] = []
        self._errors: list[CallError] = []
        self._tokens = 0
        self._machine: Final = PromptMachine()
        self._meter: Final = RateMeter()
        self._taken: Final = asyncio.Event()
        self._resampler: Final = soxr.ResampleStream(tts.sample_rate_hz, SAMPLE_RATE_HZ, 1, dtype="int16")

    @property
    def text(self) -> str:
        """What has been handed to the voice so far."""
        return join_spoken(self._said)

    @property
    def prompt_state(self) -> PromptState:
        """Where the prompt is on its way to the language model and back."""
        return self._machine.state

    @property
    def released(self) -> bool:
        """Whether it may be heard."""
        return self._released.is_set()

    def release(self) -> None:
        """Let the reply be heard: what is prepared goes to the queue now, the rest as it is made."""
        if self.released:
            return
        self.marks.released_at = self._clock()
        self._released.set()
        self._emit(ReplyStarted(turn=self.turn))
        for error in self._errors:
            self._emit(error)
        for samples, text in self._held:
            self._capture(samples, text)
        self._held.clear()

    async def wait_released(self) -> None:
        """Return once the reply may be heard."""
        await self._released.wait()

    async def run(self) -> None:
        """Make the reply and return when all of it has been sent; failures end in `status`, not in an exception."""
        tokens: _Tokens = asyncio.Queue(TOKEN_CHANNEL_CAPACITY)
        sentences: asyncio.Queue[str | None] = asyncio.Queue(SENTENCES_AHEAD)
        async with asyncio.TaskGroup() as group:
            thinking = group.create_task(self._think(tokens))
            cutting = group.create_task(self._cut(tokens, sentences))
            try:
                await self._speak(sentences)
            except EngineError as error:
                self.fail("tts_failed", f"the voice failed: {error}")
            thinking.cancel()
            cutting.cancel()
        await self._finish()

    async def _think(self, tokens: _Tokens) -> None:
        if isinstance(self._prompt, str):
            await tokens.put((self._prompt, self._clock()))
        else:
            self._machine.handle(PromptEvent.SUBMITTED)
            self._machine.handle(PromptEvent.PARSED)
            asked = any(message.role == "user" and message.content.strip() for message in self._prompt)
            self._machine.handle(PromptEvent.VALID if asked else PromptEvent.EMPTY)
            if asked:
                await self._ask(self._prompt, tokens)
        await tokens.put((None, self._clock()))

    async def _ask(self, prompt: Sequence[ChatMessage], tokens: _Tokens) -> None:
        """Stream the answer into `tokens`; a failure before its first token is tried once more."""
        while self._machine.state is PromptState.DISPATCH:
            try:
                await self._generate(prompt, tokens)
                self._machine.handle(PromptEvent.FINISHED)
            except asyncio.CancelledError:
                self._machine.handle(PromptEvent.INTERRUPTION)
                self._machine.handle(PromptEvent.CANCELLED)  # the model's generator is closed by now
                raise
            except TimeoutError:
                self._machine.handle(PromptEvent.FAILED)
                self._machine.handle(PromptEvent.GIVEN_UP)
                self.fail("llm_timeout", f"the language model said nothing for {self._options.token_timeout_s:g} s")
            except EngineError as error:
                self._machine.handle(PromptEvent.FAILED)
                if self._machine.may_retry and error.retryable:
                    await asyncio.sleep(_RETRY_S)
                    self._machine.handle(PromptEvent.RETRY)
                else:
                    self._machine.handle(PromptEvent.GIVEN_UP)
                    self.fail("llm_failed", f"the language model failed: {error}")

    async def _generate(self, prompt: Sequence[ChatMessage], tokens: _Tokens) -> None:
        how = LlmOptions(max_tokens=self._options.max_tokens, repetition_penalty=self._options.repetition_penalty)
        generator = self._llm.generate(prompt, options=how)
        async with contextlib.aclosing(generator):
            while True:
                async with asyncio.timeout(self._options.token_timeout_s):
                    token = await anext(generator, None)
                if token is None:
                    return
                self.marks.note_first("first_token_at", self._clock())
                self._tokens += 1
                self._machine.handle(PromptEvent.TOKEN)
                now = self._clock()
                self._meter.handle_token(now=now)
                await tokens.put((token, now))
                while tokens.qsize() >= self._meter.window:  # the model is held back, and its share of a core freed
                    self._taken.clear()
                    await self._taken.wait()

    async def _cut(self, tokens: _Tokens, sentences: asyncio.Queue[str | None]) -> None:
        chunker = SentenceChunker(_CHUNKS)
        given = 0
        while True:
            token: str | None = ""
            try:
                async with asyncio.timeout_at(chunker.get_timer()):
                    token, given_at = await tokens.get()
                self._taken.set()
                self._meter.handle_taken(given_at=given_at, now=self._clock())
            except TimeoutError:
                pieces = chunker.handle_timer(now=self._clock())
            else:
                pieces = chunker.flush() if token is None else chunker.feed(token, now=self._clock())
            if token is None and given:
                pieces = self._without_torn_end(pieces)
            for piece in pieces:
                await sentences.put(piece)
                given += 1
            if token is None:
                await sentences.put(None)
                return

    def _without_torn_end(self, pieces: list[str]) -> list[str]:
        """A model stopped at its token limit in mid-sentence: the torn rest is better not said."""
        torn = self._tokens >= self._options.max_tokens and pieces and not pieces[-1].rstrip().endswith(_SENTENCE_ENDS)
        return pieces[:-1] if torn else pieces

    async def _speak(self, sentences: asyncio.Queue[str | None]) -> None:
        while (sentence := await sentences.get()) is not None:
            speakable = make_speakable(sentence, self._options.language)
            if speakable:
                self.marks.note_first("first_sentence_at", self._clock())
                await self._room()
                await self._voice(sentence.strip(), speakable)
        if not self._said:
            if self.status == "completed":
                self.fail("llm_empty", "the language model had no answer")
            apology = make_speakable(self._options.apology, self._options.language)
            if apology:
                await self._voice(self._options.apology, apology)

    async def _voice(self, sentence: str, speakable: str) -> None:
        text = sentence
        self._piece_ms = 0.0
        async with contextlib.aclosing(self._tts.synthesize(speakable, options=self._options.tts)) as speech:
            async for piece in speech:
                self._piece_ms += len(piece) * 1000 / self._tts.sample_rate_hz
                step = round(self._tts.sample_rate_hz * _SLICE_S)
                for start in range(0, len(piece), step):
                    samples = self._resampler.resample_chunk(piece[start : start + step])
                    self.marks.note_first("first_audio_at", self._clock())
                    self._take(samples, text)
                    text = ""
                    await asyncio.sleep(0)

    def _take(self, samples: Samples, text: str) -> None:
        if text:
            self._said.append(text)
        if self.released:
            self._capture(samples, text)
        else:
            self._held.append((samples, text))
            self._held_samples += len(samples)

    def _capture(self, samples: Samples, text: str) -> None:
        if text:
            self._emit(ReplyDelta(turn=self.turn, text=text))
        self._playout.capture_frame(samples, text=text)

    async def _room(self) -> None:
        """Wait until little enough speech stands ready for more of it to be made."""
        if not self.released and self._held_samples * 1000 / SAMPLE_RATE_HZ > PREPARED_MS:
            await self._released.wait()
        refill_ms = self._lead_ms(self._piece_ms)
        while self.released and (ahead_ms := self._playout.queued_ms - refill_ms) > 0:  # noqa: ASYNC110 - a pure queue
            await asyncio.sleep(max(ahead_ms / 1000, 0.02))

    async def _finish(self) -> None:
        await self._released.wait()
        tail = self._resampler.resample_chunk(np.zeros(0, np.int16), last=True)
        if self._said:
            self._capture(tail, "")
            self._playout.flush()
        while self._playout.queued_ms > 0:  # noqa: ASYNC110 - a pure queue
            await asyncio.sleep(max(self._playout.queued_ms / 1000, 0.02))

    def fail(self, code: str, message: str) -> None:
        """Note that the reply failed and tell why, once it may be told."""
        self.status = "failed"
        error = CallError(code=code, message=message)
        if self.released:
            self._emit(error)
        else:
            self._errors.append(error)
