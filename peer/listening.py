"""How a conversation listens: the turn's transcript as it grows, the transcript at a pause, and how long to wait then.

The conversation says which turn is open and when it pauses; this brings the events TRANSCRIBED, NOTHING_SAID and
ASR_FAILED, sets the endpointer's wait by what was said, and shows the partial transcripts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from peer.agreement import Partial
from peer.audio_history import AudioHistory
from peer.conversation_parts import ConversationOptions, Engines, Jobs, Outlets, Turn
from peer.end_of_turn import Completeness, choose_wait_ms, judge_words, weigh_looks
from peer.engines.base import AsrOptions, Transcript, TurnEngine
from peer.errors import EngineError
from peer.hallucinations import clean_transcript
from peer.transcriber import TranscriberOptions, TurnTranscriber
from peer.turn import Event
from transport.messages import CallError, UserTranscriptDelta

_LOG = logging.getLogger(__name__)
_RETRY_ASR_S: Final = 0.3
_GAP_MS: Final = 60.0
"""Silence within a word lasts less; in longer silence nothing new is said, and nothing is transcribed."""
_QUIET_MS: Final = 40.0
"""Sound this long below the floor may be the end: a hypothesis begun now is ready when the endpointer is sure."""
_SECOND_LOOK_MS: Final = 200.0
"""Silence with which the end-of-turn model is surer (it was trained on 200 ms)."""


class Listening:
    """The ears of one conversation; all its jobs are the conversation's."""

    def __init__(
        self,
        *,
        engines: Engines,
        options: ConversationOptions,
        outlets: Outlets,
        history: AudioHistory,
        jobs: Jobs,
        dispatch: Callable[[Event], None],
    ) -> None:
        self._engines: Final = engines
        self._options: Final = options
        self._waits: Final = options.end_of_turn
        self._out: Final = outlets
        self._history: Final = history
        self._jobs: Final = jobs
        self._dispatch: Final = dispatch
        self._turn_ended: Final = asyncio.Event()
        self._turn: Turn | None = None
        self._was_quiet = False
        self._completeness: Completeness | None = None
        self._end_probability: float | None = None

    def open(self, turn: Turn) -> None:
        """Follow `turn`, new or reopened, until `close`."""
        self._turn = turn
        if turn.transcriber is None:
            turn.transcriber = TurnTranscriber(
                engine=self._engines.asr,
                history=self._history,
                start_samples=turn.start_samples,
                options=TranscriberOptions(language=self._options.language, hotwords=self._options.hotwords),
                on_partial=lambda partial: self._show(turn, partial),
                clock=self._out.clock,
            )
        self._jobs.stop("follow")
        if self._options.follow_speech:
            self._jobs.follow = self._out.spawn(self._follow(turn.transcriber))

    def close(self) -> None:
        """The turn is over, or dropped."""
        self._jobs.stop("follow")
        self._turn = None

    def handle_audio(self) -> None:
        """Note that the history has grown."""
        endpointer = self._out.endpointer
        if self._turn is None or self._turn.transcriber is None or endpointer.silence_ms >= _GAP_MS:
            return
        quiet = endpointer.quiet_ms >= _QUIET_MS
        self._turn.transcriber.handle_audio(at_pause=quiet and not self._was_quiet)
        self._was_quiet = quiet

    def start_wait(self, turn: Turn) -> None:
        """The voice has paused: until its words are known wait long, since nobody answers unknown words anyway."""
        self._completeness = self._end_probability = None
        self._turn_ended.clear()
        self._out.endpointer.set_wait_ms(self._waits.incomplete_ms)
        if self._engines.turn is not None:
            self._jobs.wait = self._out.spawn(self._judge_sound(turn, self._engines.turn))

    def start_asr(self, turn: Turn, voice_end_samples: int) -> None:
        """Transcribe `turn` up to the pause, and tell how that went."""
        self._jobs.asr = self._out.spawn(self._transcribe(turn, voice_end_samples))

    def start_asr_aside(self, start_samples: int, on_text: Callable[[str], None]) -> None:
        """Transcribe what is said over the reply from `start_samples` on, which belongs to no turn yet."""
        self._jobs.asr = self._out.spawn(self._transcribe_aside(start_samples, on_text))

    def handle_turn_end(self) -> None:
        """The wait has passed: whatever was said, it was all."""
        self._turn_ended.set()

    async def _follow(self, transcriber: TurnTranscriber) -> None:
        while True:
            try:
                await transcriber.follow()
            except EngineError as error:
                _LOG.info("a partial transcript failed: %s", error)
                await asyncio.sleep(_RETRY_ASR_S)

    def _show(self, turn: Turn, partial: Partial) -> None:
        self._out.emit(UserTranscriptDelta(turn=turn.number, text=partial.text, stable_chars=partial.stable_chars))

    async def _transcribe(self, turn: Turn, voice_end_samples: int) -> None:
        turn.asr_started_at = self._out.clock()
        transcriber = turn.transcriber
        assert transcriber is not None
        try:
            transcript = await self._retried(lambda: transcriber.finish(voice_end_samples))
        except EngineError as error:
            self._report_failure(error)
            return
        turn.transcribed_at = self._out.clock()
        turn.text = transcript.text.strip() or turn.text
        if not turn.text:
            self._dispatch(Event.NOTHING_SAID)
            return
        if self._out.log_transcripts:
            _LOG.info("turn %d: caller: %s", turn.number, turn.text)
        self._show(turn, transcriber.partial)
        self._completeness = judge_words(turn.text)
        self._set_wait()
        if not self._options.answer_early or self._completeness in {Completeness.INCOMPLETE, Completeness.DICTATION}:
            # A reply to half a sentence is not worth preparing; it is begun if the turn does end here.
            await self._turn_ended.wait()
        self._dispatch(Event.TRANSCRIBED)

    async def hear_aside(self, start_samples: int) -> str:
        """Return what is said since `start_samples`; raises EngineError."""
        audio = self._history.span(start_samples, self._history.end_samples)
        options = AsrOptions(language=self._options.language, hotwords=self._options.hotwords)
        transcript = await self._retried(lambda: self._engines.asr.transcribe(audio, options=options))
        return clean_transcript(transcript, audio_ms=len(audio) / 16)

    async def _transcribe_aside(self, start_samples: int, on_text: Callable[[str], None]) -> None:
        try:
            text = await self.hear_aside(start_samples)
        except EngineError as error:
            self._report_failure(error)
            return
        on_text(text)

    async def _retried(self, ask: Callable[[], Awaitable[Transcript]]) -> Transcript:
        try:
            return await ask()
        except EngineError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(_RETRY_ASR_S)
            return await ask()

    def _report_failure(self, error: EngineError) -> None:
        _LOG.warning("asr failed: %s", error)
        self._out.emit(CallError(code="asr_failed", message="I could not make out the last words."))
        self._dispatch(Event.ASR_FAILED)

    async def _judge_sound(self, turn: Turn, engine: TurnEngine) -> None:
        """Ask at once, and where the answer is not yes again when more of the pause can be heard."""
        try:
            first = self._end_probability = await self._look(turn, engine)
            self._set_wait()
            if first >= self._waits.likely or self._out.endpointer.silence_ms >= _SECOND_LOOK_MS:
                return
            await asyncio.sleep((_SECOND_LOOK_MS - self._out.endpointer.silence_ms) / 1000)
            self._end_probability = weigh_looks(first, await self._look(turn, engine), options=self._waits)
            self._set_wait()
        except EngineError as error:
            _LOG.info("end-of-turn model failed, the words decide: %s", error)

    async def _look(self, turn: Turn, engine: TurnEngine) -> float:
        return await engine.end_of_turn_probability(self._history.span(turn.start_samples, self._history.end_samples))

    def _set_wait(self) -> None:
        """Wait as long as the words and the sound together ask for, once the words are known."""
        if self._completeness is not None:
            wait_ms = choose_wait_ms(self._completeness, self._end_probability, options=self._waits)
            self._out.endpointer.set_wait_ms(wait_ms)
