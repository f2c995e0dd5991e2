"""The echo estimator against paths whose truth is known."""

from __future__ import annotations

import random

import pytest

from transport.rtt import EchoEstimator


def _feed(
    estimator: EchoEstimator,
    *,
    start: float,
    seconds: float,
    out_ms: float,
    back_ms: float,
    hold_ms: float = 0.0,
    offset_s: float = 0.0,
    drift_ppm: float = 0.0,
    jitter_ms: float = 0.0,
    seed: int = 0,
) -> float:
    source = random.Random(seed)
    for index in range(round(seconds * 10)):
        sent = start + index / 10
        received = sent + (out_ms + source.random() * jitter_ms) / 1000
        replied = received + hold_ms / 1000
        back = replied + back_ms / 1000

        def remote(at: float) -> float:
            return at * (1 + drift_ppm / 1e6) + offset_s

        assert estimator.handle_echo(
            sent_at=sent, remote_received_at=remote(received), remote_replied_at=remote(replied), received_at=back
        )
    return start + seconds


def test_the_remote_hold_time_is_not_part_of_the_round_trip() -> None:
    estimator = EchoEstimator()
    now = _feed(estimator, start=0, seconds=2, out_ms=10, back_ms=30, hold_ms=70)
    statistics = estimator.statistics(now=now)
    assert statistics.p50_ms == pytest.approx(40)
    assert statistics.min_ms == pytest.approx(40)
    assert statistics.variance_ms2 == pytest.approx(0, abs=1e-6)


def test_quantiles_and_variance_of_a_jittered_path() -> None:
    estimator = EchoEstimator()
    now = _feed(estimator, start=0, seconds=2, out_ms=10, back_ms=10, jitter_ms=100, seed=3)
    statistics = estimator.statistics(now=now)
    assert statistics.min_ms is not None
    assert statistics.p50_ms is not None
    assert statistics.p90_ms is not None
    assert 20 <= statistics.min_ms < 45
    assert 45 < statistics.p50_ms < 95
    assert 95 < statistics.p90_ms <= 120
    assert statistics.variance_ms2**0.5 == pytest.approx(29, abs=8)


def test_each_way_s_variation_is_seen_apart() -> None:
    estimator = EchoEstimator()
    now = _feed(estimator, start=0, seconds=5, out_ms=10, back_ms=10, jitter_ms=40, seed=5)
    statistics = estimator.statistics(now=now)
    assert statistics.outbound_variation_ms == pytest.approx(38, abs=5)
    assert statistics.inbound_variation_ms == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize(("before", "after"), [(20.0, 100.0), (100.0, 20.0)])
def test_a_step_is_followed_within_a_second_by_the_median(before: float, after: float) -> None:
    estimator = EchoEstimator()
    now = _feed(estimator, start=0, seconds=5, out_ms=before, back_ms=before)
    now = _feed(estimator, start=now, seconds=1.2, out_ms=after, back_ms=after)
    assert estimator.statistics(now=now).p50_ms == pytest.approx(2 * after)


def test_a_rise_shows_in_the_ninetieth_percentile_within_half_a_second() -> None:
    estimator = EchoEstimator()
    now = _feed(estimator, start=0, seconds=5, out_ms=20, back_ms=20)
    now = _feed(estimator, start=now, seconds=0.4, out_ms=100, back_ms=100)
    assert estimator.statistics(now=now).p90_ms == pytest.approx(200)


def test_a_fall_is_through_in_two_seconds() -> None:
    estimator = EchoEstimator()
    now = _feed(estimator, start=0, seconds=5, out_ms=100, back_ms=100)
    now = _feed(estimator, start=now, seconds=2.1, out_ms=20, back_ms=20)
    assert estimator.statistics(now=now).p90_ms == pytest.approx(40)


def test_offset_and_drift_of_the_remote_clock() -> None:
    estimator = EchoEstimator()
    now = _feed(
        estimator, start=0, seconds=60, out_ms=20, back_ms=20, offset_s=5000.0, drift_ppm=100, jitter_ms=20, seed=2
    )
    statistics = estimator.statistics(now=now)
    assert statistics.clock_drift_ppm == pytest.approx(100, abs=15)
    assert statistics.clock_offset_ms == pytest.approx(5_000_000 + 6, abs=2)


def test_the_drift_is_not_guessed_early() -> None:
    estimator = EchoEstimator()
    now = _feed(estimator, start=0, seconds=10, out_ms=20, back_ms=20, drift_ppm=100)
    assert estimator.statistics(now=now).clock_drift_ppm is None


@pytest.mark.parametrize(
    ("received", "replied", "back"),
    [(0.1, 0.05, 0.2), (0.0, 5.0, 0.2), (0.0, 0.0, 40.0)],
    ids=["left before it came", "held longer than it was away", "too old"],
)
def test_impossible_stamps_are_refused(received: float, replied: float, back: float) -> None:
    estimator = EchoEstimator()
    assert not estimator.handle_echo(
        sent_at=0.0, remote_received_at=received, remote_replied_at=replied, received_at=back
    )
    assert estimator.statistics(now=back).latest_ms is None


def test_silence_keeps_the_last_known_path_and_reset_forgets_it() -> None:
    estimator = EchoEstimator()
    now = _feed(estimator, start=0, seconds=2, out_ms=20, back_ms=20)
    assert estimator.statistics(now=now + 60).p50_ms == pytest.approx(40)
    estimator.reset()
    assert estimator.statistics(now=now).p50_ms is None
