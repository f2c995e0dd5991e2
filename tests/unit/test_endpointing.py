"""Speech events from sound: with the real detectors on made voices, and with scripted ones for the rules."""

from __future__ import annotations

import numpy as np
import pytest

from jitter.frame import AudioFrame, FrameKind
from peer.endpointing import (
    Endpointer,
    EndpointOptions,
    PossibleEnd,
    SpeechEnd,
    SpeechEvent,
    SpeechResumed,
    SpeechStart,
    VoiceDropped,
    VoiceOnset,
)
from peer.engines.base import Samples
from peer.engines.vad_silero import SileroVad
from peer.engines.vad_webrtc import WebRtcVad
from tests.speechlike import make_noise, make_voice

MS = 16


class LoudnessVad:
    """Says voice wherever the frame is loud: a detector without surprises."""

    frame_samples = 320

    def probability(self, frame: Samples) -> float:
        return float(np.abs(frame).max() > 1000)

    def reset(self) -> None:
        pass


def plain(wait_ms: float = 500, **options: float) -> Endpointer:
    return Endpointer(gate=LoudnessVad(), judge=LoudnessVad(), options=EndpointOptions(wait_ms=wait_ms, **options))


def loud(ms: int) -> Samples:
    return np.full(ms * MS, 5000, np.int16)


def quiet(ms: int) -> Samples:
    return np.zeros(ms * MS, np.int16)


def feed(
    endpointer: Endpointer, *parts: Samples, frame_ms: int = 20, kind: FrameKind | None = None
) -> list[tuple[int, SpeechEvent]]:
    """Return every event with the position at which it was told."""
    out: list[tuple[int, SpeechEvent]] = []
    samples = np.concatenate(parts)
    for at in range(0, len(samples), frame_ms * MS):
        piece = samples[at : at + frame_ms * MS]
        position = endpointer.position_samples
        frame = piece if kind is None else AudioFrame(samples=piece, position_samples=position, kind=kind, arrival=0.0)
        events = endpointer.handle_frame(frame, now=position / 16_000)
        out += [(endpointer.position_samples, event) for event in events]
    return out


def kinds(events: list[tuple[int, SpeechEvent]]) -> list[type]:
    return [type(event) for _, event in events]


def test_one_turn_from_onset_to_end() -> None:
    events = feed(plain(), quiet(1000), loud(600), quiet(1000))
    assert kinds(events) == [VoiceOnset, SpeechStart, PossibleEnd, SpeechEnd]
    start, end = events[1][1], events[3][1]
    assert isinstance(start, SpeechStart)
    assert start.onset_samples == 1000 * MS
    assert start.position_samples == 760 * MS, "a pre-roll of 240 ms"
    assert isinstance(end, SpeechEnd)
    assert (end.position_samples, end.start_samples) == (1600 * MS, start.position_samples)
    assert end.voiced_ms == 600
    assert events[2][0] == 1660 * MS, "the possible end is told after 60 ms of silence"
    assert events[3][0] == 2100 * MS, "the end exactly when the wait has passed"


def test_a_pause_shorter_than_the_wait_is_one_turn() -> None:
    events = feed(plain(), loud(400), quiet(300), loud(400), quiet(600))
    assert kinds(events) == [VoiceOnset, SpeechStart, PossibleEnd, SpeechResumed, PossibleEnd, SpeechEnd]


def test_a_click_is_dropped() -> None:
    events = feed(plain(), quiet(200), loud(20), quiet(600))
    assert kinds(events) == [VoiceOnset, VoiceDropped]


def test_the_wait_can_change_in_mid_pause() -> None:
    endpointer = plain(wait_ms=1000)
    feed(endpointer, loud(400), quiet(300))
    endpointer.set_wait_ms(200)
    assert kinds(feed(endpointer, quiet(20))) == [SpeechEnd]


def test_concealed_silence_never_ends_a_turn() -> None:
    endpointer = plain(wait_ms=300)
    feed(endpointer, loud(400), quiet(100))
    assert feed(endpointer, quiet(5000), kind=FrameKind.CONCEALED) == []
    assert endpointer.in_speech
    events = feed(endpointer, quiet(300), kind=FrameKind.DECODED)
    assert kinds(events) == [SpeechEnd]
    assert isinstance(events[0][1], SpeechEnd)
    assert events[0][1].position_samples == 400 * MS, "the voice ended before the gap"


def test_after_a_gap_the_turn_listens_before_it_ends() -> None:
    endpointer = plain(wait_ms=300)
    feed(endpointer, loud(400), quiet(280))
    feed(endpointer, quiet(200), kind=FrameKind.CONCEALED)
    assert feed(endpointer, quiet(100), kind=FrameKind.DECODED) == []
    assert kinds(feed(endpointer, loud(40), kind=FrameKind.DECODED)) == [SpeechResumed]


def test_concealed_voice_starts_nothing() -> None:
    assert feed(plain(), loud(500), kind=FrameKind.CONCEALED) == []


def test_comfort_noise_is_silence_that_was_sent() -> None:
    endpointer = plain(wait_ms=300)
    feed(endpointer, loud(400))
    assert SpeechEnd in kinds(feed(endpointer, quiet(400), kind=FrameKind.COMFORT_NOISE))


def test_end_turn_ends_only_an_open_turn() -> None:
    endpointer = plain()
    assert endpointer.end_turn(now=0.0) == []
    feed(endpointer, loud(400))
    assert [type(event) for event in endpointer.end_turn(now=0.4)] == [SpeechEnd]
    assert not endpointer.in_speech
    assert SpeechStart in kinds(feed(endpointer, quiet(400), loud(400))), "the next turn works"


@pytest.mark.parametrize("frame_ms", [10, 20, 30])
@pytest.mark.parametrize("noise_db", [-75.0, -55.0])
def test_real_detectors_place_both_ends_of_a_voice(frame_ms: int, noise_db: float) -> None:
    sound = np.concatenate([np.zeros(8000, np.int16), make_voice(2.0), np.zeros(16000, np.int16)])
    sound += make_noise(len(sound) / 16_000, level_db=noise_db)
    endpointer = Endpointer(gate=WebRtcVad(), judge=SileroVad(), options=EndpointOptions(wait_ms=400))
    events = [event for _, event in feed(endpointer, sound, frame_ms=frame_ms)]
    assert [type(event) for event in events if not isinstance(event, PossibleEnd | SpeechResumed)] == [
        VoiceOnset, SpeechStart, SpeechEnd,
    ]  # fmt: skip
    start = next(event for event in events if isinstance(event, SpeechStart))
    end = next(event for event in events if isinstance(event, SpeechEnd))
    assert abs(start.onset_samples - 500 * MS) <= 80 * MS
    assert abs(end.position_samples - 2500 * MS) <= 40 * MS


def test_real_detectors_hear_no_speech_in_noise_of_any_loudness() -> None:
    endpointer = Endpointer(gate=WebRtcVad(), judge=SileroVad())
    sound = np.concatenate([make_noise(2.0, level_db=level, seed=2) for level in (-80.0, -50.0, -35.0, -20.0, -60.0)])
    assert SpeechStart not in kinds(feed(endpointer, sound))


def test_a_sleeping_judge_wakes_for_the_first_word() -> None:
    endpointer = Endpointer(gate=WebRtcVad(), judge=SileroVad())
    feed(endpointer, np.zeros(16_000 * 5, np.int16))
    assert endpointer.probability == 0
    events = feed(endpointer, make_voice(1.0))
    starts = [event for _, event in events if isinstance(event, SpeechStart)]
    assert len(starts) == 1
    assert starts[0].onset_samples - 5000 * MS <= 100 * MS


def test_a_room_that_becomes_louder_during_the_turn_does_not_hold_it_open() -> None:
    class Judge(LoudnessVad):
        def probability(self, frame: Samples) -> float:
            return 0.9 if np.abs(frame).max() > 3000 else 0.05

    endpointer = Endpointer(gate=LoudnessVad(), judge=Judge(), options=EndpointOptions(wait_ms=500))
    hum = np.full(1000 * MS, 1500, np.int16)
    events = feed(endpointer, quiet(2000), loud(500), hum)
    assert SpeechEnd in kinds(events)
    assert endpointer.noise_floor_db > -75, "and the floor has followed"


@pytest.mark.parametrize("peak_db", [-10.0, -35.0, -55.0])
def test_quiet_microphones_are_heard(peak_db: float) -> None:
    endpointer = Endpointer(gate=WebRtcVad(), judge=SileroVad(), options=EndpointOptions(wait_ms=400))
    sound = np.concatenate([np.zeros(16_000, np.int16), make_voice(1.5, peak_db=peak_db), np.zeros(16_000, np.int16)])
    sound += make_noise(len(sound) / 16_000, level_db=-85.0)
    events = [event for _, event in feed(endpointer, sound)]
    start = next(event for event in events if isinstance(event, SpeechStart))
    end = next(event for event in events if isinstance(event, SpeechEnd))
    assert abs(start.onset_samples - 1000 * MS) <= 120 * MS
    assert abs(end.position_samples - 2500 * MS) <= (40 if peak_db > -50 else 120) * MS


def test_quiet_is_known_before_silence_is_believed() -> None:
    endpointer = plain()
    feed(endpointer, quiet(500), loud(400))
    assert endpointer.quiet_ms == 0
    feed(endpointer, quiet(40))
    assert endpointer.quiet_ms == 40
    feed(endpointer, quiet(1000))
    assert not endpointer.in_speech
    feed(endpointer, quiet(40))
    assert endpointer.quiet_ms == 0, "outside of a turn nothing is waited for"
