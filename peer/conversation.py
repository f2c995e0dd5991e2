"""The conversation of one call: audio in, turns and replies out; it does what the turn table commands.

Everything runs on the loop's thread and every job is made by the `spawn` it is given, so that the call that owns them
can end them all. An engine that fails costs a turn, never the conversation.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from jitter.frame import AudioFrame
from peer.audio_history import AudioHistory
from peer.barge_in import Verdict, judge_words
from peer.barge_in_watch import watch_barge_in
from peer.conversation_parts import ConversationOptions, Engines, Jobs, Outlets, Turn
from peer.dialogue import Dialogue
from peer.endpointing import (
    PossibleEnd,
    SpeechEnd,
    SpeechEvent,
    SpeechResumed,
    SpeechStart,
    VoiceDropped,
    VoiceOnset,
)
from peer.engines.base import LISTEN_RATE_HZ, ChatMessage
from peer.initiative import Initiative, Said
from peer.listening import Listening
from peer.reply import Reply
from peer.turn import Command, Event, State, TurnMachine
from peer.unclaimed_voice import UnclaimedVoice
from transport.messages import (
    CallState,
    ReplyDone,
    SpeechStarted,
    SpeechStopped,
    UserTranscript,
)

_LOG = logging.getLogger(__name__)
_SHOWN: Final[dict[State, Literal["connecting", "listening", "thinking", "speaking", "ended"]]] = {
    State.IDLE: "connecting",
    State.LISTENING: "listening",
    State.HEARING: "listening",
    State.PAUSED: "listening",
    State.READY: "listening",
    State.TRANSCRIBING: "thinking",
    State.THINKING: "thinking",
    State.SPEAKING: "speaking",
    State.DUCKED: "speaking",
    State.DECIDING: "speaking",
    State.ENDED: "ended",
}


class Conversation:
    """Drives the turn machine of one call; feed it audio, tell it when the call stands and when it is over."""

    def __init__(self, *, engines: Engines, options: ConversationOptions, outlets: Outlets) -> None:
        self._engines: Final = engines
        self._options: Final = options
        self._out: Final = outlets
        self._machine: Final = TurnMachine()
        self._jobs: Final = Jobs()
        self._dialogue: Final = Dialogue(options.system_prompt)
        self._history: Final = AudioHistory()
        self._unclaimed: Final = UnclaimedVoice()
        self._ears: Final = Listening(
            engines=engines,
            options=options,
            outlets=outlets,
            history=self._history,
            jobs=self._jobs,
            dispatch=self._dispatch,
        )
        self._initiative: Final = Initiative(
            options=options.idle,
            outlets=outlets,
            jobs=self._jobs,
            is_free=lambda: self.state is State.LISTENING and not self._busy,
            speak=self._speak_unasked,
        )
        self._events: Final[deque[Event]] = deque()
        self._busy = False
        self._connected_at = 0.0
        self._heard_at = 0.0
        self._endpoint_at = 0.0
        self._candidate_start_samples = 0
        self._onset_samples = 0
        self._voice_end_samples = 0
        self._turn: Turn | None = None
        self._turns = 0
        self._reply: Reply | None = None
        self._heard_text = ""
        self._shown: str = ""
        outlets.playout.on_first_pull = self._handle_first_pull
        self._deeds: Final[dict[Command, Callable[[], None]]] = {
            Command.OPEN_TURN: self._open_turn,
            Command.REOPEN_TURN: self._reopen_turn,
            Command.DROP_TURN: self._drop_turn,
            Command.COMMIT_TURN: self._commit_turn,
            Command.START_WAIT: self._start_wait,
            Command.STOP_WAIT: lambda: self._jobs.stop("wait"),
            Command.START_ASR: self._start_asr,
            Command.STOP_ASR: lambda: self._jobs.stop("asr"),
            Command.START_REPLY: self._start_reply,
            Command.RELEASE_REPLY: self._release_reply,
            Command.WITHDRAW_REPLY: self._end_reply,
            Command.CUT_REPLY: self._end_reply,
            Command.DUCK: lambda: outlets.playout.duck(now=self._out.clock()),
            Command.RESTORE: self._restore_reply,
            Command.START_DECISION: self._start_decision,
            Command.STOP_DECISION: lambda: self._jobs.stop("decision"),
            Command.HANG_UP: self._hang_up,
        }

    @property
    def state(self) -> State:
        """Where the conversation stands."""
        return self._machine.state

    @property
    def dialogue(self) -> Dialogue:
        """What was said so far."""
        return self._dialogue

    @property
    def is_fresh(self) -> bool:
        """Whether nothing was said yet."""
        return self._turns == 0 and not self._dialogue.entries

    def handle_connected(self, *, now: float) -> None:
        """The call stands: listen, and greet if told to."""
        self._connected_at = now
        self._initiative.start(now=now)
        self._dispatch(Event.CONNECTED)
        if self._options.greeting:
            self.say(self._options.greeting)

    def say(self, text: str) -> None:
        """Say `text` unasked, as soon as nobody speaks or is being answered."""
        self._initiative.say(Said(text=text))

    def leave(self, reason: str) -> None:
        """Hang up once what is being said has been said; who speaks over it is listened to instead."""
        self._initiative.leave(reason)

    def handle_audio(self, frames: Iterable[AudioFrame], *, now: float) -> None:
        """Take the caller's audio in order (int16, 16 kHz)."""
        for frame in frames:
            self._history.append(frame.samples, position_samples=frame.position_samples)
            self._heard_at = now
            if self._out.noise is not None:
                self._out.noise.handle_frame(
                    frame.samples,
                    position_samples=frame.position_samples,
                    history=self._history,
                    floor_db=self._out.endpointer.noise_floor_db,
                    spread_db=self._out.endpointer.noise_spread_db,
                )
            for event in self._out.endpointer.handle_frame(frame, now=now):
                self._handle_speech(event)
            self._ears.handle_audio()

    def handle_hang_up(self) -> None:
        """The call is over: stop everything."""
        self._dispatch(Event.HUNG_UP)

    def _handle_speech(self, event: SpeechEvent) -> None:
        if isinstance(event, VoiceOnset):
            self._note_onset(event.position_samples, event.position_samples)
            self._dispatch(Event.VOICE_ONSET)
        elif isinstance(event, VoiceDropped):
            if self.state is not State.DECIDING:  # there a voice before it is being judged
                self._dispatch(Event.FALSE_ALARM)
        elif isinstance(event, SpeechStart):
            self._note_onset(event.position_samples, event.onset_samples)
            self._dispatch(Event.VOICE_STARTED)
        elif isinstance(event, SpeechResumed):
            self._note_onset(event.position_samples, event.position_samples)
            self._dispatch(Event.VOICE_STARTED)
        elif isinstance(event, PossibleEnd):
            self._voice_end_samples = event.position_samples
            self._dispatch(Event.VOICE_STOPPED)
        elif isinstance(event, SpeechEnd):
            self._end_turn()

    def _end_turn(self) -> None:
        self._endpoint_at = self._out.clock()
        self._dispatch(Event.TURN_ENDED)
        self._ears.handle_turn_end()

    def _note_onset(self, start_samples: int, onset_samples: int) -> None:
        if self.state in {State.DUCKED, State.DECIDING}:  # more of the voice that is being judged
            self._candidate_start_samples = min(self._candidate_start_samples, start_samples)
        else:
            self._candidate_start_samples, self._onset_samples = start_samples, onset_samples

    def _handle_first_pull(self, now: float) -> None:
        if self._reply is not None:
            self._reply.marks.note_first("first_sent_at", now)
            self._dispatch(Event.REPLY_AUDIBLE)

    def _dispatch(self, event: Event) -> None:
        """Feed the machine and do what it says; an event that a deed brings about waits for the deed to end."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                for command in self._machine.handle(self._events.popleft()):
                    self._deeds[command]()
        finally:
            self._busy = False
        self._initiative.handle_free()
        shown = _SHOWN[self.state]
        if shown != self._shown:
            self._shown = shown
            self._out.emit(CallState(state=shown, at_ms=self._call_ms(self._out.clock())))

    # Turns

    def _open_turn(self) -> None:
        self._initiative.stay()
        self._turns += 1
        start_samples = self._unclaimed.claim(self._candidate_start_samples)
        self._turn = Turn(number=self._turns, start_samples=start_samples, onset_samples=self._onset_samples)
        self._ears.open(self._turn)
        self._tell_speech_started()

    def _reopen_turn(self) -> None:
        if self._turn is None:  # the voice spoke of its own accord, there is no turn to go on with
            self._open_turn()
            return
        if self._turn.entered:
            self._dialogue.reopen_user()
        self._ears.open(self._turn)
        self._tell_speech_started()

    def _tell_speech_started(self) -> None:
        assert self._turn is not None
        at = self._audio_time(self._turn.onset_samples)
        self._out.emit(SpeechStarted(turn=self._turn.number, audio_start_ms=self._call_ms(at)))

    def _drop_turn(self) -> None:
        assert self._turn is not None
        self._ears.close()
        self._out.emit(UserTranscript(turn=self._turn.number, text=""))
        self._unclaimed.keep(self._turn.start_samples, self._history.end_samples)
        self._turn = None

    def _commit_turn(self) -> None:
        turn = self._turn
        assert turn is not None
        self._ears.close()
        self._initiative.handle_turn()
        ended_at = self._audio_time(self._voice_end_samples)
        self._out.emit(SpeechStopped(turn=turn.number, audio_end_ms=self._call_ms(ended_at)))
        self._out.emit(UserTranscript(turn=turn.number, text=turn.text))
        if self._reply is not None:
            marks = self._reply.marks
            marks.voice_ended_at, marks.turn_ended_at = ended_at, self._out.clock()
            marks.endpoint_at = self._endpoint_at
            marks.asr_started_at, marks.transcribed_at = turn.asr_started_at, turn.transcribed_at

    # Listening

    def _start_asr(self) -> None:
        if self.state is State.DECIDING or self._turn is None:
            self._ears.start_asr_aside(self._candidate_start_samples, lambda text: self._decide(judge_words(text)))
        else:
            self._ears.start_asr(self._turn, self._voice_end_samples)

    def _start_wait(self) -> None:
        assert self._turn is not None
        self._ears.start_wait(self._turn)

    # Answering

    def _speak_unasked(self) -> None:
        self._turn = None  # over long since; what is said now answers nothing
        self._dispatch(Event.PROMPTED)

    def _start_reply(self) -> None:
        turn = self._turn
        if turn is None:
            self._reply = self._make_reply(0, self._initiative.take().text)
        else:
            (self._dialogue.set_user if turn.entered else self._dialogue.add_user)(turn.text)
            turn.entered = True
            self._reply = self._make_reply(turn.number, self._dialogue.window(self._options.prompt_tokens))
        self._jobs.reply = self._out.spawn(self._run_reply(self._reply))

    def _make_reply(self, turn: int, prompt: Sequence[ChatMessage] | str) -> Reply:
        return Reply(
            turn=turn,
            prompt=prompt,
            llm=self._engines.llm,
            tts=self._engines.tts,
            playout=self._out.playout,
            options=self._options.reply,
            lead_ms=self._out.lead_ms,
            emit=self._out.emit,
            clock=self._out.clock,
        )

    async def _run_reply(self, reply: Reply) -> None:
        try:
            await reply.run()
        except Exception:
            _LOG.exception("reply %d broke", reply.turn)
            reply.fail("internal", "the reply broke off")
            await reply.wait_released()
        self._finish_reply(reply, reply.status, reply.text)
        self._dispatch(Event.REPLY_FINISHED)

    def _release_reply(self) -> None:
        assert self._reply is not None
        self._reply.release()

    def _end_reply(self) -> None:
        """Stop the reply where it is; the history keeps what was heard of it."""
        reply = self._reply
        assert reply is not None
        self._initiative.stay()
        self._jobs.stop("reply")
        heard = self._out.playout.clear_buffer(now=self._out.clock()).heard_text or self._heard_text
        if reply.released:
            self._finish_reply(reply, "interrupted", heard)
        self._reply = None
        self._heard_text = ""

    def _finish_reply(self, reply: Reply, status: Literal["completed", "interrupted", "failed"], heard: str) -> None:
        self._out.playout.clear_buffer(now=self._out.clock())
        self._dialogue.add_assistant(heard)
        self._initiative.handle_reply_end(unasked=reply.turn == 0)
        if self._out.log_transcripts:
            _LOG.info("turn %d: peer (%s): %s", reply.turn, status, heard)
        stages = reply.marks.stages_ms()
        _LOG.info("reply", extra={"turn": reply.turn, "status": status, "latency_ms": stages})
        self._out.emit(
            ReplyDone(turn=reply.turn, status=status, reply_text=reply.text, heard_text=heard, latency_ms=stages)
        )
        self._reply = None

    # Barge-in

    def _start_decision(self) -> None:
        self._jobs.decision = self._out.spawn(self._watch_barge_in(self._onset_samples))

    async def _watch_barge_in(self, onset_samples: int) -> None:
        verdict = await watch_barge_in(
            options=self._options.barge_in,
            endpointer=self._out.endpointer,
            history=self._history,
            hear=lambda: self._ears.hear_aside(self._candidate_start_samples),
            onset_samples=onset_samples,
        )
        self._decide(verdict)

    def _decide(self, verdict: Verdict) -> None:
        """Act on a verdict; both jobs that may bring one run only while the voice is ducked."""
        if verdict is Verdict.FALSE_ALARM:
            self._dispatch(Event.FALSE_ALARM)
            return
        self._heard_text = self._out.playout.clear_buffer(now=self._out.clock()).heard_text
        meant = bool(self._heard_text) and not self._goes_on()
        self._dispatch(Event.INTERRUPTED if meant else Event.OVERTAKEN)
        if self.state is State.PAUSED and not self._out.endpointer.in_speech:
            self._end_turn()

    def _restore_reply(self) -> None:
        self._out.playout.restore(now=self._out.clock())
        self._unclaimed.keep(self._candidate_start_samples, self._history.end_samples)

    def _goes_on(self) -> bool:
        """Return whether the caller goes on with his own turn: nobody answers what has only begun to sound."""
        sounded_at = self._reply.marks.first_sent_at if self._reply is not None and self._turn is not None else None
        going_on_s = self._options.barge_in.going_on_ms / 1000
        return sounded_at is not None and self._audio_time(self._onset_samples) - sounded_at < going_on_s

    # The end

    def _hang_up(self) -> None:
        self._ears.close()
        for name in ("asr", "wait", "decision", "idle"):
            self._jobs.stop(name)
        if self._reply is not None:
            self._end_reply()

    def _audio_time(self, position_samples: int) -> float:
        """Return when the sample at a position arrived, seconds."""
        return self._heard_at - (self._history.end_samples - position_samples) / LISTEN_RATE_HZ

    def _call_ms(self, at: float) -> float:
        return round((at - self._connected_at) * 1000, 1)
