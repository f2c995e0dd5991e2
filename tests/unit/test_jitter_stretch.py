from __future__ import annotations

import numpy as np
import pytest

from jitter.decoder import Samples
from jitter.noise import ComfortNoise
from jitter.stretch import cross_fade, cut, find_pitch, hold_out, repeat

RATE = 48_000


def tone(hertz: float, ms: int = 30, rate: int = RATE) -> Samples:
    at = np.arange(rate * ms // 1000) / rate
    return np.asarray(8000 * np.sin(2 * np.pi * hertz * at) + 3000 * np.sin(4 * np.pi * hertz * at), np.int16)


@pytest.mark.parametrize("hertz", [80, 110, 150, 220, 390])
@pytest.mark.parametrize("rate", [16_000, 48_000])
def test_the_pitch_of_a_voice_is_found_to_the_sample(hertz: int, rate: int) -> None:
    pitch = find_pitch(tone(hertz, rate=rate), rate)
    assert pitch is not None
    periods = pitch.lag_samples * hertz / rate
    assert abs(periods - round(periods)) < 0.02
    assert round(periods) >= 1
    assert pitch.correlation > 0.99


def test_noise_has_no_pitch_and_shorter_than_two_periods_none_at_all() -> None:
    noise = np.random.default_rng(1).integers(-8000, 8000, 1440).astype(np.int16)
    pitch = find_pitch(noise, RATE)
    assert pitch is not None
    assert pitch.correlation < 0.5
    assert find_pitch(noise[:200], RATE) is None
    assert find_pitch(noise[:0], RATE) is None


def largest_jump(samples: Samples) -> int:
    return int(np.abs(np.diff(samples.astype(np.int32))).max())


@pytest.mark.parametrize("hertz", [100, 150, 390])
def test_a_period_is_cut_or_repeated_without_a_click(hertz: int) -> None:
    sound = tone(hertz)
    pitch = find_pitch(sound, RATE)
    assert pitch is not None
    smooth = largest_jump(sound)
    shorter, longer = cut(sound, pitch.lag_samples), repeat(sound, pitch.lag_samples)
    twice = repeat(sound, pitch.lag_samples, times=2)
    assert len(shorter) == len(sound) - pitch.lag_samples
    assert len(longer) == len(sound) + pitch.lag_samples
    assert len(twice) == len(sound) + 2 * pitch.lag_samples
    for changed in (shorter, longer, twice):
        assert largest_jump(changed) <= 1.3 * smooth
        assert changed.dtype == np.int16
    assert shorter[-1] == longer[-1] == sound[-1]


def test_a_cross_fade_goes_from_the_one_to_the_other() -> None:
    faded = cross_fade(np.full(100, 1000, np.int16), np.full(100, -1000, np.int16))
    assert abs(int(faded[0]) - 1000) < 30
    assert abs(int(faded[-1]) + 1000) < 30
    assert bool((np.diff(faded) <= 0).all())


def test_speech_is_told_from_the_room_and_the_noise_is_as_loud_as_the_room() -> None:
    noise = ComfortNoise(RATE)
    random = np.random.default_rng(2)
    for _ in range(50):
        noise.learn(random.normal(0, 12, 960).astype(np.int16))
    passive = [noise.is_passive]
    noise.learn(tone(150, 20))
    assert [*passive, noise.is_passive] == [True, False]
    made = np.concatenate([noise.make(480) for _ in range(20)])
    assert 4 < float(np.std(made)) < 30


@pytest.mark.parametrize("hertz", [150, 220, 390])
def test_sound_whose_beginning_is_out_is_held_out_without_a_click(hertz: int) -> None:
    sound = tone(hertz, ms=40)
    past, following = sound[: RATE // 100], sound[RATE // 100 :]
    longer = hold_out(past, following, RATE, periods=3)
    assert 3.3 * len(following) < len(longer) <= 4 * len(following)
    assert largest_jump(np.concatenate((past, longer))) <= 1.2 * largest_jump(sound)
    assert np.array_equal(longer[-100:], following[-100:])


def test_what_has_no_period_behind_it_is_left_as_it_is() -> None:
    sound = tone(150)
    assert hold_out(sound[:0], sound, RATE, periods=3) is sound
    assert len(hold_out(sound[:20], sound[20:], RATE, periods=3)) == len(sound) - 20


def test_fast_mode_cuts_whole_periods_up_to_fifteen_milliseconds() -> None:
    pitch = find_pitch(tone(390, ms=40), RATE)
    assert pitch is not None
    assert pitch.periods_at_once(40 * RATE // 1000, RATE) == 15 * RATE // 1000 // pitch.lag_samples
    assert pitch.periods_at_once(2 * pitch.lag_samples, RATE) == 1
