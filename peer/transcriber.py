"""Transcribes a turn while it is being spoken, so that its end finds the work done.

Hypotheses of the whole turn are asked for as fast as `step_ms` and the engine allow; two that agree make a stable
prefix. The encoder's window is as short as the audio and four seconds of silence: measured, that costs no accuracy once
loops are cut off, and takes a fifth of the full window's time. A turn that outgrows `window_ms` is cut at one of its
pauses, or at a word where it has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from peer.agreement import LocalAgreement, Partial
from peer.audio_history import AudioHistory
from peer.engines.base import LISTEN_RATE_HZ, AsrEngine, AsrOptions, Transcript, Word
from peer.hallucinations import clean_transcript
from transport.spoken_text import join_spoken

_MS: Final = LISTEN_RATE_HZ // 1000
_PAD_MS: Final = 4000
"""Silence behind the audio in the encoder's window; with less the decoder loops (uncut: WER 15 % at 2 s)."""
_WHOLE_WINDOW_MS: Final = 30_000
_TAIL_MS: Final = 120
"""Of the silence after the voice, so much is transcribed with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriberOptions:
    """How turns are transcribed; times in milliseconds of audio."""

    language: str | None = None
    hotwords: str | None = None
    step_ms: float = 200.0
    """New audio that makes another hypothesis worth its work."""
    first_ms: float = 400.0
    """Audio before the first hypothesis."""
    window_ms: float = 12_000.0
    """Longest audio that is transcribed again and again; older speech is settled."""
    short_windows: bool = True
    """Let the encoder see only what there is; False asks for the model's own window each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pause:
    position_samples: int
    text: str
    """Transcript from the segment's start to here."""


class TurnTranscriber:
    """One turn's transcript as it grows; `follow` works while the caller speaks, `finish` gives the text at a pause.

    `history` holds the call's audio and `on_partial` is told every new partial. Both jobs may be cancelled at any point
    and begun again, as when a caller pauses and goes on. With a `clock`, in seconds, a slow engine is asked less often.
    """

    def __init__(
        self,
        *,
        engine: AsrEngine,
        history: AudioHistory,
        start_samples: int,
        options: TranscriberOptions | None = None,
        on_partial: Callable[[Partial], None] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._engine: Final = engine
        self._history: Final = history
        self._options: Final = options or TranscriberOptions()
        self._on_partial: Final = on_partial
        self._clock: Final = clock
        self._cost_ms = 0.0
        self._urgent = False
        self._segment_start = start_samples
        self._settled = ""
        self._agreement: Final = LocalAgreement()
        self._pauses: list[_Pause] = []
        self._latest: tuple[int, Transcript, str] | None = None
        """End position, transcript and clean text of the newest hypothesis of this segment."""
        self._partial = Partial()
        self._language = self._options.language
        self._language_before: str | None = None
        self._grown: Final = asyncio.Event()
        self._at_work: Final = asyncio.Lock()

    @property
    def partial(self) -> Partial:
        """The newest partial transcript of the turn."""
        return self._partial

    def handle_audio(self, *, at_pause: bool = False) -> None:
        """Note that `history` has grown; `at_pause` asks for a hypothesis now, since the turn may end here."""
        self._urgent |= at_pause
        if self._urgent or self._history.end_samples >= self._due_samples():
            self._grown.set()

    async def follow(self) -> None:
        """Transcribe the growing turn until cancelled; raises EngineError."""
        while True:
            self._grown.clear()
            self.handle_audio()
            await self._grown.wait()
            async with self._at_work:
                if self._urgent or self._history.end_samples >= self._due_samples():
                    self._urgent = False
                    await self._hypothesize(self._history.end_samples)
            self._tell()

    async def finish(self, voice_end_samples: int) -> Transcript:
        """Return the transcript of the turn up to `voice_end_samples`, where the voice has paused; raises EngineError.

        A hypothesis that already covers the voice is the answer; else one more is made, or the one at work awaited.
        """
        async with self._at_work:
            if self._latest is None or self._latest[0] < voice_end_samples:
                end = min(self._history.end_samples, voice_end_samples + _TAIL_MS * _MS)
                await self._hypothesize(max(end, voice_end_samples))
        assert self._latest is not None
        _, transcript, text = self._latest
        self._pauses.append(_Pause(position_samples=voice_end_samples, text=text))
        return Transcript(
            text=join_spoken((self._settled, text)),
            language=transcript.language,
            no_speech_probability=transcript.no_speech_probability,
            average_log_probability=transcript.average_log_probability,
            words=transcript.words,
        )

    def _due_samples(self) -> int:
        if self._latest is None:
            return self._segment_start + int(self._options.first_ms * _MS)
        # An engine that is slow, or shared, is given as much rest as work, so that it is free at the turn's end.
        return self._latest[0] + int(max(self._options.step_ms, 2 * self._cost_ms) * _MS)

    async def _hypothesize(self, end_samples: int) -> None:
        if end_samples - self._segment_start > self._options.window_ms * _MS:
            await self._settle(end_samples)
        began_at = self._clock() if self._clock is not None else 0.0
        transcript = await self._transcribe(self._segment_start, end_samples)
        self._cost_ms = (self._clock() - began_at) * 1000 if self._clock is not None else 0.0
        audio_ms = (end_samples - self._segment_start) / _MS
        text = clean_transcript(transcript, audio_ms=audio_ms)
        self._latest = (end_samples, transcript, text)
        self._note_language(transcript.language)
        partial = self._agreement.push(text, end_samples=end_samples)
        whole = join_spoken((self._settled, partial.text))
        settled_chars = len(whole) - len(partial.text)
        self._partial = Partial(text=whole, stable_chars=settled_chars + partial.stable_chars, end_samples=end_samples)

    async def _transcribe(self, start_samples: int, end_samples: int, *, word_times: bool = False) -> Transcript:
        audio = self._history.span(start_samples, end_samples)
        window_ms = len(audio) // _MS + _PAD_MS
        short = self._options.short_windows and window_ms < _WHOLE_WINDOW_MS
        options = AsrOptions(
            language=self._language,
            hotwords=self._options.hotwords,
            word_times=word_times,
            window_ms=window_ms if short else None,
        )
        return await self._engine.transcribe(audio, options=options)

    async def _settle(self, end_samples: int) -> None:
        """Move the segment's start past speech that needs no second look."""
        newest_start = end_samples - int(self._options.window_ms * _MS / 3)
        usable = [pause for pause in self._pauses if self._segment_start < pause.position_samples <= newest_start]
        if usable:
            self._begin_segment(usable[-1].position_samples, usable[-1].text)
        elif end_samples - self._segment_start > 2 * self._options.window_ms * _MS:
            transcript = await self._transcribe(self._segment_start, end_samples, word_times=True)
            words = [word for word in transcript.words if self._segment_start + word.end_ms * _MS <= newest_start]
            if words:
                self._begin_segment(self._segment_start + int(words[-1].end_ms * _MS), _text_of(words))

    def _begin_segment(self, start_samples: int, text_before: str) -> None:
        self._settled = join_spoken((self._settled, text_before))
        self._segment_start = start_samples
        self._pauses.clear()
        self._agreement.settle(text_before)
        self._latest = None

    def _note_language(self, language: str | None) -> None:
        """Hold on to a language that was detected twice in a row, so that it does not waver within a turn."""
        if self._language is None and language is not None and language == self._language_before:
            self._language = language
        self._language_before = language

    def _tell(self) -> None:
        if self._on_partial is not None and self._partial.text:
            self._on_partial(self._partial)


def _text_of(words: list[Word]) -> str:
    return join_spoken([word.text for word in words])
