"""Turn taking as a transition table: `(state, event) → (state, commands)`, pure.

Everything that decides what happens next in a conversation is in `TRANSITIONS`; `peer.session` only turns the world
into events and commands into deeds. What runs while the machine rests in a state is fixed (`RUNNING`), and a test
checks that every transition's commands start and stop exactly the difference, so that no path through the table can
leave a second voice, a forgotten timer or a lost transcript behind.

    IDLE          not connected yet                         LISTENING    nobody speaks
    HEARING       the caller speaks                         PAUSED       the caller paused; transcript awaited
    READY         paused, transcript here, a reply is       TRANSCRIBING the turn has ended, its transcript is late
                  being prepared unheard                    THINKING     the reply may sound but does not yet
    SPEAKING      the reply sounds                          DUCKED       the caller speaks over it; it is held back
    DECIDING      ducked, and the caller paused again       ENDED        hung up

An event that a state does not list is the echo of something already cancelled, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """Where the conversation stands."""

    IDLE = "idle"
    LISTENING = "listening"
    HEARING = "hearing"
    PAUSED = "paused"
    READY = "ready"
    TRANSCRIBING = "transcribing"
    THINKING = "thinking"
    SPEAKING = "speaking"
    DUCKED = "ducked"
    DECIDING = "deciding"
    ENDED = "ended"


class Event(Enum):
    """What can happen to a conversation."""

    CONNECTED = "connected"
    PROMPTED = "prompted"
    """The peer is to speak of its own accord: a greeting."""
    VOICE_ONSET = "voice onset"
    """Something voice-like begins; FALSE_ALARM follows if it comes to nothing."""
    VOICE_STARTED = "voice started"
    VOICE_STOPPED = "voice stopped"
    TURN_ENDED = "turn ended"
    """The silence has lasted long enough."""
    TRANSCRIBED = "transcribed"
    NOTHING_SAID = "nothing said"
    """The transcript is empty: a cough, a door."""
    ASR_FAILED = "asr failed"
    REPLY_AUDIBLE = "reply audible"
    """Its first sound was sent."""
    REPLY_FINISHED = "reply finished"
    """All of it was sent, or it failed; either way it is over and has been reported."""
    INTERRUPTED = "interrupted"
    """The voice over the reply means it, and something of the reply was heard."""
    OVERTAKEN = "overtaken"
    """The voice over the reply means it, but goes on with its own turn: of the reply hardly a word was heard."""
    FALSE_ALARM = "false alarm"
    """The voice over the reply was a cough, an echo or a 'mhm'."""
    HUNG_UP = "hung up"


class Command(Enum):
    """What the session is to do, in the order given."""

    OPEN_TURN = "open turn"
    REOPEN_TURN = "reopen turn"
    """The voice goes on with the turn before, whose reply nobody heard; its entry leaves the history."""
    DROP_TURN = "drop turn"
    COMMIT_TURN = "commit turn"
    """The turn is over: its text enters the history."""
    START_WAIT = "start wait"
    """Judge how long the silence must last before the turn is over."""
    STOP_WAIT = "stop wait"
    START_ASR = "start asr"
    STOP_ASR = "stop asr"
    START_REPLY = "start reply"
    """Prepare the reply; not a sound of it leaves before RELEASE_REPLY."""
    RELEASE_REPLY = "release reply"
    WITHDRAW_REPLY = "withdraw reply"
    """Throw away a reply of which no word was heard."""
    CUT_REPLY = "cut reply"
    """End a reply in mid-word; the history keeps what was heard."""
    DUCK = "duck"
    RESTORE = "restore"
    START_DECISION = "start decision"
    STOP_DECISION = "stop decision"
    HANG_UP = "hang up"
    """Stop whatever runs and close."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The state after an event, and what to do on the way."""

    state: State
    commands: tuple[Command, ...] = ()


_S, _E, _C = State, Event, Command

TRANSITIONS: Mapping[tuple[State, Event], Transition] = {
    (_S.IDLE, _E.CONNECTED): Transition(_S.LISTENING),
    # Nobody speaks.
    (_S.LISTENING, _E.VOICE_STARTED): Transition(_S.HEARING, (_C.OPEN_TURN,)),
    (_S.LISTENING, _E.PROMPTED): Transition(_S.THINKING, (_C.START_REPLY, _C.RELEASE_REPLY)),
    # The caller speaks, pauses, goes on.
    (_S.HEARING, _E.VOICE_STOPPED): Transition(_S.PAUSED, (_C.START_ASR, _C.START_WAIT)),
    (_S.PAUSED, _E.VOICE_STARTED): Transition(_S.HEARING, (_C.STOP_WAIT, _C.STOP_ASR)),
    (_S.PAUSED, _E.TRANSCRIBED): Transition(_S.READY, (_C.STOP_ASR, _C.START_REPLY)),
    (_S.PAUSED, _E.NOTHING_SAID): Transition(_S.LISTENING, (_C.STOP_WAIT, _C.STOP_ASR, _C.DROP_TURN)),
    (_S.PAUSED, _E.ASR_FAILED): Transition(_S.LISTENING, (_C.STOP_WAIT, _C.STOP_ASR, _C.DROP_TURN)),
    (_S.PAUSED, _E.TURN_ENDED): Transition(_S.TRANSCRIBING, (_C.STOP_WAIT,)),
    (_S.READY, _E.VOICE_STARTED): Transition(_S.HEARING, (_C.STOP_WAIT, _C.WITHDRAW_REPLY)),
    (_S.READY, _E.TURN_ENDED): Transition(_S.THINKING, (_C.STOP_WAIT, _C.COMMIT_TURN, _C.RELEASE_REPLY)),
    # The turn has ended and its transcript is late.
    (_S.TRANSCRIBING, _E.TRANSCRIBED): Transition(
        _S.THINKING, (_C.STOP_ASR, _C.START_REPLY, _C.COMMIT_TURN, _C.RELEASE_REPLY)
    ),
    (_S.TRANSCRIBING, _E.NOTHING_SAID): Transition(_S.LISTENING, (_C.STOP_ASR, _C.DROP_TURN)),
    (_S.TRANSCRIBING, _E.ASR_FAILED): Transition(_S.LISTENING, (_C.STOP_ASR, _C.DROP_TURN)),
    (_S.TRANSCRIBING, _E.VOICE_STARTED): Transition(_S.HEARING, (_C.STOP_ASR,)),
    # The reply is on its way; nobody has heard any of it.
    (_S.THINKING, _E.VOICE_STARTED): Transition(_S.HEARING, (_C.WITHDRAW_REPLY, _C.REOPEN_TURN)),
    (_S.THINKING, _E.REPLY_AUDIBLE): Transition(_S.SPEAKING),
    (_S.THINKING, _E.REPLY_FINISHED): Transition(_S.LISTENING),
    # The reply sounds.
    (_S.SPEAKING, _E.VOICE_ONSET): Transition(_S.DUCKED, (_C.DUCK, _C.START_DECISION)),
    (_S.SPEAKING, _E.VOICE_STARTED): Transition(_S.DUCKED, (_C.DUCK, _C.START_DECISION)),
    (_S.SPEAKING, _E.REPLY_FINISHED): Transition(_S.LISTENING),
    # The caller speaks over it.
    (_S.DUCKED, _E.VOICE_STOPPED): Transition(_S.DECIDING, (_C.START_ASR,)),
    (_S.DUCKED, _E.INTERRUPTED): Transition(_S.HEARING, (_C.STOP_DECISION, _C.CUT_REPLY, _C.OPEN_TURN)),
    (_S.DUCKED, _E.OVERTAKEN): Transition(_S.HEARING, (_C.STOP_DECISION, _C.WITHDRAW_REPLY, _C.REOPEN_TURN)),
    (_S.DUCKED, _E.FALSE_ALARM): Transition(_S.SPEAKING, (_C.STOP_DECISION, _C.RESTORE)),
    (_S.DUCKED, _E.REPLY_FINISHED): Transition(_S.HEARING, (_C.STOP_DECISION, _C.OPEN_TURN)),
    (_S.DECIDING, _E.VOICE_STARTED): Transition(_S.DUCKED, (_C.STOP_ASR,)),
    (_S.DECIDING, _E.INTERRUPTED): Transition(
        _S.PAUSED, (_C.STOP_DECISION, _C.CUT_REPLY, _C.OPEN_TURN, _C.STOP_ASR, _C.START_ASR, _C.START_WAIT)
    ),
    (_S.DECIDING, _E.OVERTAKEN): Transition(
        _S.PAUSED, (_C.STOP_DECISION, _C.WITHDRAW_REPLY, _C.REOPEN_TURN, _C.STOP_ASR, _C.START_ASR, _C.START_WAIT)
    ),
    (_S.DECIDING, _E.FALSE_ALARM): Transition(_S.SPEAKING, (_C.STOP_DECISION, _C.STOP_ASR, _C.RESTORE)),
    (_S.DECIDING, _E.NOTHING_SAID): Transition(_S.SPEAKING, (_C.STOP_DECISION, _C.STOP_ASR, _C.RESTORE)),
    (_S.DECIDING, _E.ASR_FAILED): Transition(_S.SPEAKING, (_C.STOP_DECISION, _C.STOP_ASR, _C.RESTORE)),
    (_S.DECIDING, _E.REPLY_FINISHED): Transition(
        _S.PAUSED, (_C.STOP_DECISION, _C.OPEN_TURN, _C.STOP_ASR, _C.START_ASR, _C.START_WAIT)
    ),
    **{(state, _E.HUNG_UP): Transition(_S.ENDED, (_C.HANG_UP,)) for state in State if state is not _S.ENDED},
}

RUNNING: Mapping[State, frozenset[str]] = {
    _S.IDLE: frozenset(),
    _S.LISTENING: frozenset(),
    _S.HEARING: frozenset({"turn"}),
    _S.PAUSED: frozenset({"turn", "asr", "wait"}),
    _S.READY: frozenset({"turn", "wait", "reply"}),
    _S.TRANSCRIBING: frozenset({"turn", "asr"}),
    _S.THINKING: frozenset({"reply"}),
    _S.SPEAKING: frozenset({"reply"}),
    _S.DUCKED: frozenset({"reply", "decision"}),
    _S.DECIDING: frozenset({"reply", "decision", "asr"}),
    _S.ENDED: frozenset(),
}
"""What is open or running while the machine rests in a state."""


class TurnMachine:
    """The table with a memory of where it stands."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = State.IDLE

    @property
    def state(self) -> State:
        """Where the conversation stands."""
        return self._state

    def handle(self, event: Event) -> tuple[Command, ...]:
        """Take one event and return what to do, in order; an event the state does not list does nothing."""
        transition = TRANSITIONS.get((self._state, event))
        if transition is None:
            return ()
        self._state = transition.state
        return transition.commands


def diagram() -> str:
    """Return the table as a Mermaid state diagram, hang-up left out."""
    lines = ["stateDiagram-v2", "    [*] --> idle"]
    for (state, event), transition in TRANSITIONS.items():
        if event is not Event.HUNG_UP:
            lines.append(f"    {state.value} --> {transition.state.value}: {event.value}")
    return "\n".join(lines)
