"""The softphone's pure parts: where speech ends, what a call's messages add up to, and the record's timeline."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from peer.errors import ConfigError
from peer.softphone import main
from peer.softphone_audio import LineRecorder, read_audio, read_labels, speech_end_ms
from peer.softphone_log import CallLog, TurnLog, assign_voice_to_voice
from transport.messages import CallState, ReplyDelta, ReplyDone, ReplyStarted, SpeechStarted, UserTranscript


def _tone(seconds: float, rate: int, peak: float) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    wave = peak * np.sin(2 * np.pi * 300 * np.arange(round(seconds * rate)) / rate)
    return np.asarray(wave + np.random.default_rng(1).normal(0, 3, len(wave)), np.int16)


@pytest.mark.parametrize("rate", [16_000, 48_000])
def test_speech_ends_with_its_last_sound_above_the_floor(rate: int) -> None:
    samples = np.concatenate([_tone(0.5, rate, 0), _tone(1.0, rate, 10_000), _tone(0.5, rate, 0)])
    assert speech_end_ms(samples, rate) == pytest.approx(1500, abs=10)


def test_a_noisy_recording_ends_where_the_voice_leaves_the_noise() -> None:
    noise = np.random.default_rng(2).normal(0, 300, 32_000)
    noise[8000:16_000] += _tone(0.5, 16_000, 10_000)
    assert speech_end_ms(noise.astype(np.int16), 16_000) == pytest.approx(1000, abs=20)


def test_a_recording_that_ends_in_speech_ends_at_its_end() -> None:
    assert speech_end_ms(_tone(1.0, 16_000, 9000), 16_000) == pytest.approx(1000, abs=10)


def test_a_file_comes_out_as_48_khz_mono_and_its_label_is_found(tmp_path: Path) -> None:
    path = tmp_path / "in.flac"
    soundfile.write(path, np.stack([_tone(1.0, 44_100, 8000)] * 2, axis=1), 44_100, subtype="PCM_24")
    samples = read_audio(path)
    assert samples.dtype == np.int16
    assert len(samples) == pytest.approx(48_000, abs=2)
    assert np.abs(samples).max() == pytest.approx(8000, rel=0.02)
    assert read_labels(path) is None
    (tmp_path / "in.json").write_text('{"speech_ends_ms": [900]}')
    assert read_labels(path) == [900.0]
    (tmp_path / "in.json").write_text("[]")
    with pytest.raises(ConfigError, match="not a label file"):
        read_labels(path)


def test_a_file_that_cannot_be_read_is_one_line_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.wav"
    for content in (None, b"RIFF", b"no sound at all"):
        if content is not None:
            path.write_bytes(content)
        assert main(["http://127.0.0.1:9", "--play", str(path)]) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert "in.wav" in error


@pytest.mark.parametrize("url", ["http://[::1", "127.0.0.1:8080", "ftp://host", "http://", "http://host:99999", ""])
def test_what_is_no_url_is_told_what_one_looks_like(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main([url, "--play", "in.wav"])
    assert raised.value.code == 2
    assert "it should look like http://127.0.0.1:8080" in capsys.readouterr().err


def test_a_record_that_cannot_be_written_is_found_before_the_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in.wav"
    soundfile.write(path, _tone(1.0, 16_000, 8000), 16_000)
    for record in (tmp_path, tmp_path / "nowhere" / "out.wav", path / "out.wav"):
        assert main(["http://127.0.0.1:9", "--play", str(path), "--record", str(record)]) == 2
        assert "cannot be written" in capsys.readouterr().err
    kept = tmp_path / "kept.wav"
    kept.write_bytes(b"mine")
    new = tmp_path / "new.wav"
    for record in (kept, new):
        assert main(["http://127.0.0.1:9", "--play", str(path), "--record", str(record)]) == 3
    assert kept.read_bytes() == b"mine"
    assert not new.exists()


def _is_settled(log: CallLog) -> bool:
    return log.settled


def test_the_log_follows_a_turn_that_was_withdrawn_and_answered_later() -> None:
    log = CallLog()
    for message in (
        CallState(state="listening"),
        SpeechStarted(turn=1),
        UserTranscript(turn=1, text="Tell me,"),
        ReplyStarted(turn=1),
        ReplyDelta(turn=1, text="What?"),
        ReplyDone(turn=1, status="interrupted", reply_text="What?", heard_text=""),
        SpeechStarted(turn=1),
    ):
        log.handle_message(message)
    assert not log.settled
    log.handle_message(UserTranscript(turn=1, text="Tell me, what is it?"))
    log.handle_message(ReplyStarted(turn=1))
    log.handle_message(
        ReplyDone(turn=1, status="completed", reply_text="A test.", heard_text="A test.", latency_ms={"asr": 5.0})
    )
    assert _is_settled(log)
    assert json.loads(json.dumps(log.turns[0].report())) == {
        "user_text": "Tell me, what is it?",
        "reply_text": "A test.",
        "heard_text": "A test.",
        "interrupted": False,
        "voice_to_voice_ms": None,
        "latency_ms": {"asr": 5.0},
    }


def test_a_noise_that_was_no_turn_is_no_turn() -> None:
    log = CallLog()
    log.handle_message(CallState(state="listening"))
    log.handle_message(SpeechStarted(turn=1))
    log.handle_message(UserTranscript(turn=1, text=""))
    assert log.settled
    assert log.turns == []


def _turns(count: int) -> list[TurnLog]:
    return [TurnLog(turn=number, reply_text="yes") for number in range(1, count + 1)]


def test_without_a_label_for_each_only_the_last_turn_has_a_time() -> None:
    turns = _turns(3)
    assign_voice_to_voice(turns, speech_ends=[9.0], labelled=True, onsets=[2.0, 5.0, 9.4])
    assert [turn.voice_to_voice_ms for turn in turns] == [None, None, 400.0]


def test_as_many_labels_as_turns_give_each_its_time() -> None:
    turns = _turns(2)
    assign_voice_to_voice(turns, speech_ends=[1.0, 5.0], labelled=True, onsets=[1.5, 5.3])
    assert [turn.voice_to_voice_ms for turn in turns] == [500.0, 300.0]


def test_the_record_keeps_time_over_silence_and_bursts() -> None:
    recorder = LineRecorder()
    loud, quiet = np.full(320, 5000, np.int16), np.zeros(320, np.int16)
    recorder.add(loud, arrival=9.0)  # before the record begins
    recorder.begin(10.0)
    for index in range(10):
        recorder.add(quiet, arrival=10.0 + 0.02 * index)
    for _ in range(3):  # after a silence in which nothing was sent, three frames at once
        recorder.add(loud, arrival=11.0)
    record = recorder.recording()
    assert len(record) == 16_000 + 3 * 320
    assert np.flatnonzero(record)[0] == 16_000
    assert recorder.onsets == [9.0, 11.0]
