"""What the softphone learns of its call from the server's messages, and what it reports of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from transport.messages import (
    CallEnded,
    CallError,
    CallMessage,
    CallRecorded,
    CallState,
    ReplyDelta,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
    UserTranscript,
)
from transport.spoken_text import join_spoken


@dataclass(slots=True, kw_only=True)
class TurnLog:
    """One turn: what was understood, what was answered, and how much of that was heard."""

    turn: int
    user_text: str = ""
    reply_text: str = ""
    heard_text: str = ""
    interrupted: bool = False
    failed: bool = False
    pending: bool = True
    """Its reply has not ended."""
    voice_to_voice_ms: float | None = None
    latency_ms: dict[str, float] = field(default_factory=dict)

    def report(self) -> dict[str, object]:
        """Return the turn as the JSON report has it."""
        return {
            "user_text": self.user_text,
            "reply_text": self.reply_text,
            "heard_text": self.heard_text,
            "interrupted": self.interrupted,
            "voice_to_voice_ms": self.voice_to_voice_ms,
            "latency_ms": self.latency_ms,
        }


class CallLog:
    """Follows the messages of one call."""

    def __init__(self) -> None:
        self.state = "connecting"
        self.ended: str | None = None
        """Why the server ended the call."""
        self.recorded = False
        """Whether the server has said that it keeps a recording."""
        self.errors: Final[list[CallError]] = []
        self._turns: Final[dict[int, TurnLog]] = {}

    @property
    def turns(self) -> list[TurnLog]:
        """The turns in which something was said, in order."""
        return [turn for turn in self._turns.values() if turn.user_text or turn.reply_text or turn.pending]

    @property
    def settled(self) -> bool:
        """Whether nothing is being said, thought about or waited for."""
        return self.state == "listening" and not any(turn.pending for turn in self._turns.values())

    def turns_since(self, count: int) -> list[TurnLog]:
        """Return the turns after the first `count` of them."""
        return self.turns[count:]

    def handle_message(self, message: CallMessage) -> None:
        """Take the next message."""
        if isinstance(message, CallState):
            self.state = message.state
        elif isinstance(message, SpeechStarted):
            self._turn(message.turn).pending = True
        elif isinstance(message, UserTranscript):
            turn = self._turn(message.turn)
            turn.user_text = message.text
            turn.pending = bool(message.text)
        elif isinstance(message, ReplyStarted):
            turn = self._turn(message.turn)
            turn.reply_text = turn.heard_text = ""
            turn.pending = True
        elif isinstance(message, ReplyDelta):
            turn = self._turn(message.turn)
            turn.reply_text = join_spoken([turn.reply_text, message.text])
        elif isinstance(message, ReplyDone):
            self._handle_done(message)
        elif isinstance(message, CallError):
            self.errors.append(message)
        elif isinstance(message, CallRecorded):
            self.recorded = True
        elif isinstance(message, CallEnded):
            self.ended = message.reason

    def _handle_done(self, message: ReplyDone) -> None:
        turn = self._turn(message.turn)
        turn.reply_text, turn.heard_text = message.reply_text, message.heard_text
        turn.interrupted = message.status == "interrupted"
        turn.failed = message.status == "failed"
        turn.latency_ms = message.latency_ms
        turn.pending = False

    def _turn(self, number: int) -> TurnLog:
        return self._turns.setdefault(number, TurnLog(turn=number))


def assign_voice_to_voice(
    turns: list[TurnLog], *, speech_ends: list[float], labelled: bool, onsets: list[float]
) -> None:
    """Set `voice_to_voice_ms` of the turns of one playing: end of speech to the first reply sound after it.

    `speech_ends` and `onsets` are in seconds on one clock. Labels belong to the turns one to one where there are as
    many of both; else only the last turn has an end that is known.
    """
    if not turns or not speech_ends:
        return
    ends = dict(zip(map(id, turns), speech_ends, strict=False)) if labelled and len(speech_ends) == len(turns) else {}
    ends[id(turns[-1])] = speech_ends[-1]
    for turn in turns:
        end = ends.get(id(turn))
        onset = next((onset for onset in onsets if end is not None and onset > end), None)
        if end is not None and onset is not None and turn.reply_text:
            turn.voice_to_voice_ms = round((onset - end) * 1000, 1)
