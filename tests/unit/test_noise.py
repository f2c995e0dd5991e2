"""Noise suppression: on the same sample positions, only where it is wanted, and less noise for the recogniser."""

from __future__ import annotations

import numpy as np

from peer.audio_history import AudioHistory
from peer.engines.base import Samples
from peer.noise import DELAY_SAMPLES, NoiseReducer
from tests.speechlike import make_voice


def _hum(seconds: float, *, rms: float) -> Samples:
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    rng = np.random.default_rng(1)
    sound = sum(np.sin(2 * np.pi * hz * time_s + hz) for hz in (100, 200, 300)) + rng.normal(0, 0.1, len(time_s))
    return np.asarray(sound * rms / np.std(sound), np.int16)


def _through(sound: Samples, reducer: NoiseReducer, *, floor_db: float, spread_db: float, step: int = 320) -> Samples:
    history = AudioHistory(capacity_s=30.0)
    for start in range(0, len(sound), step):
        frame = sound[start : start + step]
        history.append(frame, position_samples=start)
        reducer.handle_frame(frame, position_samples=start, history=history, floor_db=floor_db, spread_db=spread_db)
        assert history.end_samples == start + len(frame), "nothing is held back"
    return history.span(0, len(sound))


def test_cleaned_sound_stands_where_the_noisy_one_stood() -> None:
    voice = make_voice(3.0)
    for step in (320, 100, 480):
        cleaned = _through(voice, NoiseReducer(automatic=False), floor_db=-90, spread_db=0, step=step)
        middle = slice(16_000, 40_000)
        scores = {
            shift: float(np.dot(voice[middle].astype(float), np.roll(cleaned, -shift)[middle].astype(float)))
            for shift in range(-DELAY_SAMPLES, DELAY_SAMPLES + 1, 4)
        }
        assert max(scores, key=lambda shift: scores[shift]) == 0


def test_a_hum_is_taken_away_and_the_voice_stays() -> None:
    noise = _hum(8.0, rms=600)
    sound = noise.copy()
    sound[64_000:112_000] += make_voice(3.0) // 2
    cleaned = _through(sound, NoiseReducer(automatic=False), floor_db=-35, spread_db=1)
    assert np.std(cleaned[32_000:60_000]) < 0.4 * np.std(noise[32_000:60_000])
    assert np.std(cleaned[64_000:112_000]) > 0.6 * np.std(sound[64_000:112_000])


def _level_db(sound: Samples) -> float:
    return 20 * float(np.log10(np.std(sound.astype(float)) / 32768))


def test_it_acts_by_itself_only_in_a_loud_and_steady_hum() -> None:
    hum = _hum(6.0, rms=600)
    white = np.asarray(np.random.default_rng(2).normal(0, 600, len(hum)), np.int16)
    cases = (
        (hum, _level_db(hum), 0.5, True),
        (hum // 40, _level_db(hum // 40), 0.5, False),
        (hum, _level_db(hum), 4.0, False),
        (white, _level_db(white), 0.5, False),
        (hum, _level_db(hum) - 12, 0.5, False),  # a voice, or whatever else is louder than the room
    )
    for sound, floor_db, spread_db, wanted in cases:
        reducer = NoiseReducer(automatic=True)
        cleaned = _through(sound, reducer, floor_db=floor_db, spread_db=spread_db)
        assert reducer.active is wanted
        assert np.array_equal(cleaned, sound) is not wanted


def test_it_does_not_waver_at_its_limit() -> None:
    hum = _hum(10.0, rms=100)
    reducer, history = NoiseReducer(automatic=True), AudioHistory()
    states = []
    for index in range(len(hum) // 320):
        floor_db = (-47.0, -49.0, -50.5, -52.0, -49.0)[min(4, index // 100)]
        frame = hum[320 * index : 320 * (index + 1)]
        history.append(frame, position_samples=320 * index)
        reducer.handle_frame(frame, position_samples=320 * index, history=history, floor_db=floor_db, spread_db=1.0)
        states.append(reducer.active)
    assert [states[at] for at in (99, 190, 290, 320, 490)] == [True, True, True, False, False]


def test_a_history_is_changed_only_where_it_still_reaches() -> None:
    history = AudioHistory(capacity_s=0.02)
    history.append(np.arange(640, dtype=np.int16), position_samples=0)
    history.overwrite(np.full(640, -1, np.int16), position_samples=160)
    assert history.span(0, 640).tolist() == [-1] * 320
    history.overwrite(np.full(500, 7, np.int16), position_samples=600)
    assert history.span(0, 2_000).tolist() == [-1] * 280 + [7] * 40
    history.overwrite(np.full(10, 9, np.int16), position_samples=0)
    assert 9 not in history.span(0, 640)
