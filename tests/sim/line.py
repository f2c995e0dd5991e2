"""A whole call in virtual time: a session, scripted engines, and a caller who speaks when the script says."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from jitter.frame import AudioFrame, FrameKind
from peer.agent import Agent
from peer.conversation_parts import ConversationOptions
from peer.dialogue import Entry
from peer.endpointing import Endpointer
from peer.engines.base import LlmEngine, Samples
from peer.engines.factory import EngineSet
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts
from peer.reply import ReplyOptions
from peer.session import CallSession, ConnectionState, SessionOptions
from peer.turn import State
from tests.sim.virtual_time import run_virtual
from transport.messages import CallMessage, ReplyDone, ReplyStarted, UserTranscript, decode
from transport.playout_queue import PlayoutQueue
from transport.transport_stats import TransportStats

FRAME_S = 0.02
_FRAME_SAMPLES = 320
_Message = TypeVar("_Message", bound=CallMessage)


class LevelVad:
    """Voice is what is loud."""

    frame_samples = _FRAME_SAMPLES

    def probability(self, frame: Samples) -> float:
        return float(np.abs(frame).max() > 500)

    def reset(self) -> None:
        pass


class Line:
    """A connection without a network: 20 ms at a time, speech where `voice` has it, and a record of what was sent."""

    def __init__(self, voice: Sequence[tuple[float, float]] = ()) -> None:
        self.on_audio: Callable[[list[AudioFrame], float], None] | None = None
        self.on_message: Callable[[str], None] | None = None
        self.on_state: Callable[[ConnectionState, str], None] | None = None
        self.playout = PlayoutQueue()
        self.voice = list(voice)
        self.messages: list[tuple[float, CallMessage]] = []
        self.sound_at: list[float] = []
        self.closed: list[str] = []
        self.frames = 0

    async def answer(self, offer_sdp: str) -> str:
        return f"answer to {offer_sdp}"

    async def add_candidate(self, candidate: str | None, sdp_mid: str | None, sdp_m_line_index: int | None) -> None:
        pass

    def send_message(self, text: str) -> None:
        message = decode(text)
        assert message is not None
        self.messages.append((asyncio.get_running_loop().time(), message))

    def stats(self) -> TransportStats:
        return TransportStats(packets_received=self.frames)

    async def close(self, reason: str) -> None:
        self.closed.append(reason)

    async def carry(self, seconds: float) -> None:
        """Connect and carry audio both ways for so long."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        assert self.on_state is not None
        self.on_state("connected", "")
        for _ in range(round(seconds / FRAME_S)):
            await asyncio.sleep(FRAME_S)
            self._exchange(loop.time())

    def capture(self, start: float) -> Samples:
        """Return the frame at the microphone at a time of the call."""
        speaking = any(begin <= start < end for begin, end in self.voice)
        random = np.random.default_rng(self.frames)
        return random.normal(0, 3000 if speaking else 3, _FRAME_SAMPLES).astype(np.int16)

    def _exchange(self, now: float) -> None:
        assert self.on_audio is not None
        frame = AudioFrame(
            samples=self.capture(self.frames * FRAME_S),
            position_samples=self.frames * _FRAME_SAMPLES,
            kind=FrameKind.DECODED,
            arrival=now,
        )
        self.frames += 1
        self.on_audio([frame], now)
        sound = self.playout.pull(now=now)
        if sound is not None and np.abs(sound).max() > 50:
            self.sound_at.append(now)


@dataclass(kw_only=True)
class Heard:
    """What came of a call."""

    messages: list[tuple[float, CallMessage]]
    sound_at: list[float]
    entries: list[Entry]
    state: State
    closed: list[str] = field(default_factory=list)

    def of(self, kind: type[_Message]) -> list[_Message]:
        return [message for _, message in self.messages if isinstance(message, kind)]

    def at(self, kind: type[_Message]) -> list[float]:
        return [at for at, message in self.messages if isinstance(message, kind)]

    def said(self) -> list[tuple[str, str]]:
        return [(entry.role, entry.text) for entry in self.entries]

    def silences(self, start: float, end: float, *, longest: float) -> list[tuple[float, float]]:
        """Return the stretches without sound longer than `longest` between two times."""
        times = [start, *(at for at in self.sound_at if start <= at <= end), end]
        return [(a, b) for a, b in itertools.pairwise(times) if b - a > longest]

    def check_one_voice(self) -> None:
        """Replies are told as begun and done in turn, and no sound leaves outside of one."""
        open_turn: int | None = None
        for _, message in self.messages:
            if isinstance(message, ReplyStarted):
                assert open_turn is None
                open_turn = message.turn
            elif isinstance(message, ReplyDone):
                assert message.turn == open_turn
                open_turn = None
        transcripts = {message.turn for message in self.of(UserTranscript)}
        assert all(message.turn in transcripts or message.turn == 0 for message in self.of(ReplyStarted))
        spans = list(zip(self.at(ReplyStarted), [*self.at(ReplyDone), math.inf], strict=False))
        outside = [at for at in self.sound_at if not any(a <= at <= b + FRAME_S for a, b in spans)]
        assert not outside, f"sound without a reply at {outside}"


def call(
    *,
    voice: Sequence[tuple[float, float]] = (),
    line: Line | None = None,
    seconds: float = 15.0,
    asr: ScriptedAsr | None = None,
    llm: LlmEngine | None = None,
    tts: ScriptedTts | None = None,
    options: ConversationOptions | None = None,
    agent: Agent | None = None,
    hang_up_at: float | None = None,
) -> Heard:
    """Hold a call of so many seconds in which the caller speaks at the times in `voice`, or as `line` does."""
    line = line or Line(voice)

    async def hold() -> Heard:
        engines = EngineSet(asr=asr or ScriptedAsr(), llm=llm or ScriptedLlm(), tts=tts or ScriptedTts(), turn=None)
        session = CallSession(
            call_id="sim",
            connection=line,
            engines=engines,
            endpointer=Endpointer(gate=LevelVad(), judge=LevelVad()),
            options=SessionOptions(conversation=options or talk_options()),
            agent=agent,
        )
        running = asyncio.create_task(session.run())
        await line.carry(seconds if hang_up_at is None else hang_up_at)
        entries = [dataclasses.replace(entry) for entry in session.conversation.dialogue.entries]
        state = session.conversation.state
        session.hang_up("over")
        await running
        heard = Heard(messages=line.messages, sound_at=line.sound_at, entries=entries, state=state, closed=line.closed)
        heard.check_one_voice()
        return heard

    return run_virtual(hold())


def talk_options() -> ConversationOptions:
    reply = ReplyOptions(apology="Sorry, that went wrong.", token_timeout_s=3.0)
    return ConversationOptions(reply=reply, follow_speech=False)
