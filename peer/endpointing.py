"""Where the caller's voice begins and ends, by sample position: a gate, a judge, a noise floor, and patience.

Two detectors look at the sound. The gate (WebRTC's, nearly free) decides whether the judge (Silero) is asked at all
while nobody speaks; the judge's probability, with hysteresis, decides. The level over an adaptive noise floor
(threshold = mean + alpha * sigma of the last silent seconds) settles what the judge leaves open and tells within 10 ms
where the voice ended, because the judge forgets a voice only slowly.

Time is the audio's own. Silence counts only while it is heard: concealed samples are neither voice nor silence, and
while a hole is open nothing arrives, so that loss on the network can never end a turn.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

import numpy as np

from jitter.frame import AudioFrame, FrameKind
from peer.engines.base import LISTEN_RATE_HZ, Samples, Vad
from peer.levels import SLOT_SAMPLES, LevelMeter, NoiseFloor, QuietGain

_MS: Final = LISTEN_RATE_HZ // 1000
_BACK_CLEAR_MS: Final = 250
_BACK_NOISY_MS: Final = 60
"""How long the judge takes at most to forget a voice, and how long it usually does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceOnset:
    """Something voice-like begins at `position_samples`; it may turn out to be nothing."""

    position_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceDropped:
    """The onset before came to nothing: a click, a knock, a breath."""

    position_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechStart:
    """The caller speaks: `onset_samples` is where the voice began, `position_samples` lies a pre-roll before it."""

    position_samples: int
    onset_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleEnd:
    """The voice has paused at `position_samples`: time to transcribe and to guess, not yet to answer."""

    position_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechResumed:
    """The voice goes on after a PossibleEnd: what was begun on it is worth nothing."""

    position_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechEnd:
    """The turn is over: the voice ended at `position_samples` and the wait after it has passed."""

    position_samples: int
    start_samples: int
    """SpeechStart's position."""
    voiced_ms: float
    """How much of the turn was voice."""


SpeechEvent = VoiceOnset | VoiceDropped | SpeechStart | PossibleEnd | SpeechResumed | SpeechEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """When a voice counts; times in milliseconds of audio."""

    wait_ms: float = 500.0
    """Silence after which a turn has ended, until `set_wait_ms` says otherwise."""
    possible_end_ms: float = 60.0
    """Silence after which a PossibleEnd is told."""
    pre_roll_ms: float = 240.0
    """How far before the onset a turn's audio begins, for soft first sounds."""
    on_probability: float = 0.5
    """The judge's answer from which a frame is voice."""
    off_probability: float = 0.25
    """Below `on_probability` a frame that follows voice is voice down to here, while it is louder than the floor."""
    confirm_ms: float = 60.0
    """So much voice makes an onset a SpeechStart."""
    drop_ms: float = 160.0
    """So much silence drops an onset that was not confirmed."""
    gate_hold_ms: float = 320.0
    """The judge is asked on for so long after the gate last heard anything."""
    listen_after_gap_ms: float = 120.0
    """After a concealed span a turn goes on at least so long, to hear whether the voice is still there."""
    clear_db: float = 30.0
    """A turn whose loudest slot is so far above the room is clear: its end is where its level falls. In more noise the
    last sounds drown, and the judge's verdict is believed."""
    below_peak_db: float = 42.0
    """A slot so far below the loudest of the turn is no voice, however still the room."""


class _State(enum.Enum):
    SILENCE = enum.auto()
    ONSET = enum.auto()
    SPEECH = enum.auto()
    PAUSE = enum.auto()


class Endpointer:
    """Turns a call's audio into speech events; one per call, fed every frame in order.

    `gate` and `judge` are the call's own detectors, since both carry state.
    """

    def __init__(self, *, gate: Vad, judge: Vad, options: EndpointOptions | None = None) -> None:
        self._options: Final = options or EndpointOptions()
        self._gate: Final = _Framed(gate)
        self._judge: Final = _Framed(judge)
        self._meter: Final = LevelMeter()
        self._floor: Final = NoiseFloor()
        self._gain: Final = QuietGain()
        self._wait_samples = int(self._options.wait_ms * _MS)
        self._position = 0
        self._gate_until = 0
        self._judge_asleep = True
        self._state = _State.SILENCE
        self._start = 0
        self._onset = 0
        self._voice_end = 0
        self._voiced = 0
        self._silence = 0
        """Samples of silence heard since `_voice_end`."""
        self._voice_goes_on = False
        self._active = False
        self._probability = 0.0
        self._peak_db = -90.0
        self._quiet_slots = 0

    @property
    def position_samples(self) -> int:
        """Position after the last sample heard."""
        return self._position

    @property
    def in_speech(self) -> bool:
        """True from a SpeechStart to its SpeechEnd."""
        return self._state in {_State.SPEECH, _State.PAUSE}

    @property
    def probability(self) -> float:
        """The judge's latest answer, 0..1; 0 while it is not asked."""
        return self._probability

    @property
    def silence_ms(self) -> float:
        """Silence heard since the voice last ended."""
        return self._silence / _MS

    @property
    def quiet_ms(self) -> float:
        """How long a turn has sounded no louder than silence; runs ahead of `silence_ms`, often for nothing."""
        return self._quiet_slots * 10.0

    @property
    def noise_floor_db(self) -> float:
        """Mean level of the room in dBFS."""
        return self._floor.mean_db

    @property
    def noise_spread_db(self) -> float:
        """Standard deviation of the room's level in dB."""
        return self._floor.sigma_db

    def set_wait_ms(self, wait_ms: float) -> None:
        """Change the silence that ends a turn, for this turn and those after; takes effect with the next frame."""
        self._wait_samples = int(wait_ms * _MS)

    def handle_frame(self, frame: AudioFrame | Samples, *, now: float) -> list[SpeechEvent]:  # noqa: ARG002 - the vocabulary
        """Take the next frame (int16, 16 kHz, any length) and return what it brings about, in order."""
        samples = frame.samples if isinstance(frame, AudioFrame) else frame
        heard = not (isinstance(frame, AudioFrame) and frame.kind is FrameKind.CONCEALED)
        before = self._meter.end_samples
        self._count_quiet(self._meter.feed(samples))
        self._position += len(samples)
        self._ask(self._gain.lift(samples, floor_db=self._floor.mean_db), heard=heard)
        if not heard:
            limit = self._wait_samples - int(self._options.listen_after_gap_ms * _MS)
            self._silence = max(0, min(self._silence, limit))
            return []
        if self._is_silence():
            for level in self._meter.last((self._meter.end_samples - before) // SLOT_SAMPLES):
                self._floor.add(level)
        return self._advance(len(samples))

    def end_turn(self, *, now: float) -> list[SpeechEvent]:  # noqa: ARG002 - the vocabulary
        """End the open turn now, without the wait, where other evidence says so; nothing where none is open."""
        if not self.in_speech:
            return []
        if self._state is _State.SPEECH:
            self._voice_end = self._position
        return [self._end()]

    def reset(self) -> None:
        """Forget the turn and both detectors, but neither the position nor the room's noise."""
        self._gate.reset()
        self._judge.reset()
        self._state, self._active, self._judge_asleep, self._probability = _State.SILENCE, False, True, 0.0

    def _count_quiet(self, slots: int) -> None:
        threshold = self._level_threshold_db()
        for level in self._meter.last(slots):
            self._gain.handle_level(level)
            self._quiet_slots = self._quiet_slots + 1 if level <= threshold and self.in_speech else 0

    def _ask(self, samples: Samples, *, heard: bool) -> None:
        """Bring both detectors up to the end of `samples` and decide whether the newest sound is voice."""
        opened = False
        for frame in self._gate.cut(samples):
            opened |= self._gate.vad.probability(frame) > 0
        if (opened and heard) or self._state is not _State.SILENCE:
            self._gate_until = self._position + int(self._options.gate_hold_ms * _MS)
        if self._position > self._gate_until:
            if not self._judge_asleep:
                self._judge.reset()
                self._judge_asleep, self._active, self._probability = True, False, 0.0
            self._judge.keep(samples)
            return
        if self._judge_asleep:
            self._judge_asleep = False
            for frame in self._judge.take_kept():
                self._judge.vad.probability(frame)
        for frame in self._judge.cut(samples):
            self._probability = self._judge.vad.probability(frame)
            if heard:
                self._active = self._is_voice(self._probability)

    def _is_voice(self, probability: float) -> bool:
        options = self._options
        if probability >= options.on_probability:
            return True
        if self._state is not _State.SPEECH or probability < options.off_probability:
            return False
        slots = self._judge.vad.frame_samples // SLOT_SAMPLES
        return max(self._meter.last(slots), default=-90.0) > self._level_threshold_db()

    def _is_silence(self) -> bool:
        """Return whether the newest sound tells what the room is like; in a pause the judge must be sure of it."""
        if self._active or self._state in {_State.ONSET, _State.SPEECH}:
            return False
        sure = self._options.off_probability * (0.5 if self._state is _State.PAUSE else 1.0)
        return self._probability < sure

    def _level_threshold_db(self) -> float:
        return max(self._floor.threshold_db, self._peak_db - self._options.below_peak_db)

    def _advance(self, count: int) -> list[SpeechEvent]:
        if self._active:
            return self._handle_voice(count)
        return self._handle_silence(count)

    def _handle_voice(self, count: int) -> list[SpeechEvent]:
        events: list[SpeechEvent] = []
        self._silence = 0
        self._voice_goes_on = True
        self._voiced += count
        self._peak_db = max(self._peak_db, *self._meter.last(2))
        if self._state is _State.SILENCE:
            self._state = _State.ONSET
            self._onset = max(0, self._position - max(count, self._judge.vad.frame_samples))
            self._voiced = self._position - self._onset
            events.append(VoiceOnset(position_samples=self._onset))
        elif self._state is _State.PAUSE:
            self._state = _State.SPEECH
            events.append(SpeechResumed(position_samples=max(self._voice_end, self._position - count)))
        if self._state is _State.ONSET and self._voiced >= self._options.confirm_ms * _MS:
            self._state = _State.SPEECH
            self._start = max(0, self._onset - int(self._options.pre_roll_ms * _MS))
            events.append(SpeechStart(position_samples=self._start, onset_samples=self._onset))
        return events

    def _handle_silence(self, count: int) -> list[SpeechEvent]:
        options = self._options
        if self._state is _State.SILENCE:
            self._peak_db = -90.0
            return []
        if self._voice_goes_on:
            self._voice_goes_on = False
            self._voice_end = self._find_voice_end(count)
            self._silence = self._position - self._voice_end
        else:
            self._silence += count
        if self._state is _State.ONSET:
            if self._silence < options.drop_ms * _MS:
                return []
            self._state = _State.SILENCE
            return [VoiceDropped(position_samples=self._onset)]
        events: list[SpeechEvent] = []
        if self._state is _State.SPEECH and self._silence >= options.possible_end_ms * _MS:
            self._state = _State.PAUSE
            events.append(PossibleEnd(position_samples=self._voice_end))
        if self._silence >= self._wait_samples:
            events.append(self._end())
        return events

    def _find_voice_end(self, count: int) -> int:
        """Return where the voice ended: the last slot above the threshold, searched back from the judge's verdict."""
        # Not past the judge's verdict: where the room has become louder than the floor knows, all is above it.
        latest = self._position - count
        clear = self._peak_db - self._floor.threshold_db > self._options.clear_db
        earliest = latest - (_BACK_CLEAR_MS if clear else _BACK_NOISY_MS) * _MS
        found = self._meter.last_above(self._level_threshold_db(), not_before=earliest, not_after=latest)
        if found is None:
            found = latest if clear else earliest
        return max(self._onset, found)

    def _end(self) -> SpeechEnd:
        self._state, self._active, self._peak_db = _State.SILENCE, False, -90.0
        return SpeechEnd(position_samples=self._voice_end, start_samples=self._start, voiced_ms=self._voiced / _MS)


class _Framed:
    """A detector together with the buffer that cuts any lengths of audio into its frames."""

    _KEPT: Final = 3
    """Frames replayed to a detector that wakes, so that it does not meet the voice unprepared."""

    def __init__(self, vad: Vad) -> None:
        self.vad: Final = vad
        self._buffer: Final[Samples] = np.zeros(vad.frame_samples, np.int16)
        self._filled = 0
        self._past: Final[Samples] = np.zeros(vad.frame_samples * self._KEPT, np.int16)

    def cut(self, samples: Samples) -> list[Samples]:
        """Return the whole frames that `samples` complete; they are valid until the next call."""
        size = len(self._buffer)
        if self._filled == 0 and len(samples) == size:
            return [samples]
        frames: list[Samples] = []
        at = 0
        while at < len(samples):
            count = min(size - self._filled, len(samples) - at)
            self._buffer[self._filled : self._filled + count] = samples[at : at + count]
            self._filled += count
            at += count
            if self._filled == size:
                frames.append(self._buffer.copy() if at < len(samples) else self._buffer)
                self._filled = 0
        return frames

    def keep(self, samples: Samples) -> None:
        """Remember the newest audio without judging it."""
        count = min(len(samples), len(self._past))
        self._past[:-count] = self._past[count:]
        self._past[-count:] = samples[len(samples) - count :]

    def take_kept(self) -> list[Samples]:
        """Return the frames remembered."""
        self._filled = 0
        return list(self._past.reshape(self._KEPT, -1))

    def reset(self) -> None:
        """Forget the detector's state and what is buffered."""
        self.vad.reset()
        self._filled = 0
        self._past.fill(0)
