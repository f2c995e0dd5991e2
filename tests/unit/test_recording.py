"""Recordings: both directions where they belong in time, bounded, and never in a call's way."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import numpy as np
import soundfile

from jitter.frame import AudioFrame, FrameKind
from peer.recording import CallTrack, Recording, StereoFile

_HEARD, _SAID = 16_000, 48_000


def _frame(value: int, position: int, count: int = 320) -> AudioFrame:
    samples = np.full(count, value, np.int16)
    return AudioFrame(samples=samples, position_samples=position, kind=FrameKind.DECODED, arrival=0.0)


def test_both_directions_stand_where_they_were_heard() -> None:
    track = CallTrack(began_at=100.0)
    for index in range(50):  # one second of the caller, from 0.5 s on
        track.handle_heard(_frame(1000, index * 320), now=100.5 + (index + 1) * 0.02)
    for index in range(25):  # half a second of the peer, from 1.2 s on, unevenly pulled
        track.handle_said(np.full(960, 2000, np.int16), now=101.2 + index * 0.02 + 0.004 * (index % 3))
    heard, said = track.take(now=103.0)
    assert (len(heard), len(said)) == (1.0 * _HEARD, 1.0 * _SAID), "what is younger than two seconds may still change"
    rest = track.take(now=103.0, all_of_it=True)
    heard, said = np.concatenate([heard, rest[0]]), np.concatenate([said, rest[1]])
    assert (len(heard), len(said)) == (3 * _HEARD, 3 * _SAID)
    assert np.flatnonzero(heard)[[0, -1]].tolist() == [8_000, 24_000 - 1]
    assert np.flatnonzero(said)[[0, -1]].tolist() == [57_600, 57_600 + 24_000 - 1], "joined without a seam"


def test_a_caller_who_is_away_for_a_while_comes_back_in_the_right_place() -> None:
    track = CallTrack(began_at=0.0)
    track.handle_heard(_frame(1000, 0), now=0.02)
    track.handle_heard(_frame(1000, 320), now=5.02)  # its positions know nothing of the silence between
    heard, _ = track.take(now=6.0, all_of_it=True)
    assert np.flatnonzero(heard)[[0, 320, -1]].tolist() == [0, 80_000, 80_319]


def test_what_comes_too_late_or_far_too_early_is_left_out() -> None:
    track = CallTrack(began_at=0.0)
    track.handle_heard(_frame(1000, 0), now=0.02)
    track.take(now=10.0)
    track.handle_heard(_frame(1000, 320), now=0.04)
    track.handle_said(np.full(960, 9, np.int16), now=500.0)
    heard, said = track.take(now=11.0, all_of_it=True)
    assert not heard.any()
    assert not said.any()


def test_the_file_is_stereo_right_after_each_block_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    file = StereoFile(path)
    time_s = np.arange(_SAID) / _SAID
    tone = np.asarray(8000 * np.sin(2 * np.pi * 440 * time_s), np.int16)
    file.write(np.full(_HEARD, 500, np.int16), tone)
    file.write(np.full(_HEARD, 500, np.int16), tone * 0, last=True)
    file.close()
    samples, rate = soundfile.read(path, dtype="int16")
    assert (samples.shape, rate) == ((2 * _HEARD, 2), _HEARD)
    assert (samples[:, 0] == 500).all()
    rms = [float(np.sqrt(np.mean(samples[a:b, 1].astype(float) ** 2))) for a, b in ((1000, 15_000), (17_000, 31_000))]
    assert abs(rms[0] - 8000 / np.sqrt(2)) < 60
    assert rms[1] < 20
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_recording_ends_where_it_may_last_no_longer(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    recording = Recording(tmp_path / "a.wav", longest_s=0.5, now=loop.time())
    recording.handle_heard([_frame(700, 0)], loop.time())
    assert await recording.run() == "it may last 0.5 seconds"
    recording.handle_heard([_frame(700, 320)], loop.time())
    await recording.finish(now=loop.time())
    samples, _ = soundfile.read(tmp_path / "a.wav", dtype="int16")
    assert len(samples) == 8_000
    assert samples[:, 0].max() == 700


async def test_a_recording_that_cannot_be_written_is_only_that(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    recording = Recording(tmp_path / "none" / "a.wav", longest_s=5, now=loop.time())
    assert await recording.run() == "it cannot be written"
    recording.handle_heard([_frame(700, 0)], loop.time())
    await recording.finish(now=loop.time())


async def test_a_cancelled_recording_keeps_what_it_had(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    recording = Recording(tmp_path / "a.wav", longest_s=60, now=loop.time())
    task = asyncio.create_task(recording.run())
    await asyncio.sleep(0.1)
    recording.handle_heard([_frame(700, 0)], loop.time())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await recording.finish(now=loop.time())
    samples, _ = soundfile.read(tmp_path / "a.wav", dtype="int16")
    assert (samples[:, 0] == 700).sum() == 320
