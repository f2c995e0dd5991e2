"""What a conversation is made of: its engines, its manners, and what it acts through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from peer.barge_in import BargeInOptions
from peer.end_of_turn import EndOfTurnOptions
from peer.endpointing import Endpointer
from peer.engines.base import AsrEngine, LlmEngine, TtsEngine, TurnEngine
from peer.idle import IdleOptions
from peer.noise import NoiseReducer
from peer.reply import ReplyOptions
from peer.transcriber import TurnTranscriber
from transport.messages import CallMessage
from transport.playout_queue import PlayoutQueue


class Engines(Protocol):
    """The engines that all calls share."""

    @property
    def asr(self) -> AsrEngine:
        """Speech to text."""
        ...

    @property
    def llm(self) -> LlmEngine:
        """The chat model."""
        ...

    @property
    def tts(self) -> TtsEngine:
        """The voice."""
        ...

    @property
    def turn(self) -> TurnEngine | None:
        """The end-of-turn judge, where there is one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOptions:
    """How the peer converses."""

    system_prompt: str = ""
    greeting: str = ""
    idle: IdleOptions = field(default_factory=IdleOptions)
    answer_early: bool = True
    """Prepare the reply in a pause that may be the end; False waits for the turn's end, where a reply has effects."""
    language: str | None = None
    prompt_tokens: int = 160
    """Window of the dialogue that the LLM is shown."""
    hotwords: str | None = None
    """Words of the domain that the recogniser should expect."""
    end_of_turn: EndOfTurnOptions = field(default_factory=EndOfTurnOptions)
    follow_speech: bool = True
    """Transcribe while the caller speaks; False transcribes at pauses alone, for a recogniser that is dear."""
    reply: ReplyOptions = field(default_factory=ReplyOptions)
    barge_in: BargeInOptions = field(default_factory=BargeInOptions)


Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@dataclass(slots=True, kw_only=True)
class Outlets:
    """What a conversation acts through: the voice's queue, messages to the caller, jobs, and a clock in seconds."""

    playout: PlayoutQueue
    emit: Callable[[CallMessage], None]
    spawn: Spawn
    clock: Callable[[], float]
    endpointer: Endpointer
    hang_up: Callable[[str], None] = lambda _reason: None
    """Ends the call, for the reason given."""
    noise: NoiseReducer | None = None
    """Cleans what the recogniser hears."""
    log_transcripts: bool = False
    lead_ms: Callable[[float], float] | None = None
    """How far ahead of its sound speech is made, by the duration of the piece before, ms; None: a fixed while."""


@dataclass(slots=True, kw_only=True)
class Turn:
    """One turn of the caller: a span of the audio history and what it says."""

    number: int
    start_samples: int
    onset_samples: int
    text: str = ""
    entered: bool = False
    """Whether the dialogue holds an entry for it."""
    transcriber: TurnTranscriber | None = None
    asr_started_at: float | None = None
    transcribed_at: float | None = None


@dataclass(slots=True)
class Jobs:
    """The jobs that commands start and stop."""

    follow: asyncio.Task[None] | None = None
    """The transcript that grows; runs as long as a turn is open."""
    asr: asyncio.Task[None] | None = None
    wait: asyncio.Task[None] | None = None
    decision: asyncio.Task[None] | None = None
    reply: asyncio.Task[None] | None = None
    idle: asyncio.Task[None] | None = None

    def stop(self, name: str) -> None:
        """Cancel a job, if it runs."""
        task: asyncio.Task[None] | None = getattr(self, name)
        setattr(self, name, None)
        # A job whose own result brought the command is over anyway, and must live to see the command through.
        if task is not None and task is not asyncio.current_task():
            task.cancel()
