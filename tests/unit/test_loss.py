"""Loss, bursts and jitter of one direction of the media."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable

import pytest

from transport.loss import LossObserver


def _feed(observer: LossObserver, *, count: int, lost: Collection[int] = (), first: int = 0) -> float:
    for number in range(count):
        if number not in lost:
            observer.handle_packet((first + number) & 0xFFFF, now=number * 0.02, media_time_s=number * 0.02)
    return count * 0.02


def test_bursts_are_counted_by_length_across_the_wrap() -> None:
    observer = LossObserver()
    now = _feed(observer, count=200, lost={10, 20, 21, 30, 31, 32, *range(40, 60)}, first=65_500)
    statistics = observer.statistics(now=now + 1)
    assert statistics.bursts == (1, 1, 1, 0, 0, 0, 0, 1)
    assert statistics.packets_lost == 26
    assert statistics.packets_received == 174


def test_rates_follow_and_forget() -> None:
    observer = LossObserver()
    source = random.Random(1)
    for number in range(2000):
        if number >= 1000 or source.random() >= 0.1:
            observer.handle_packet(number, now=number * 0.02)
        if number == 999:
            assert observer.statistics(now=number * 0.02).loss_pct == pytest.approx(10, abs=4)
            assert observer.statistics(now=number * 0.02).recent_loss_pct > 0
        if number == 1070:
            assert observer.statistics(now=number * 0.02).recent_loss_pct == 0
    assert observer.statistics(now=40.0).loss_pct == 0
    assert observer.statistics(now=40.0).packets_lost > 80


def test_a_slower_route_is_no_loss_though_every_packet_was_asked_for() -> None:
    observer = LossObserver()
    observer.rtt_s = 0.05
    now = _feed(observer, count=50)
    for number in range(50, 100):
        observer.handle_requested(number, now=number * 0.02 + 0.01)
        observer.handle_packet(number, now=number * 0.02 + 0.08)
    statistics = observer.statistics(now=now + 3)
    assert (statistics.packets_received, statistics.packets_lost) == (100, 0)


@pytest.mark.parametrize(("burst", "mean"), [(1, 1.0), (2, 2.0), (3, 3.0)])
def test_burst_length_is_measured(burst: int, mean: float) -> None:
    observer = LossObserver()
    lost = {start + index for start in range(10, 200, 20) for index in range(burst)}
    now = _feed(observer, count=220, lost=lost)
    statistics = observer.statistics(now=now)
    assert statistics.mean_burst == pytest.approx(mean)
    assert statistics.p90_burst == burst


def _jittered(source: random.Random, count: int, jitter_s: float) -> Iterable[tuple[float, int]]:
    return sorted((number * 0.02 + source.random() * jitter_s, number) for number in range(count))


def test_reordering_is_no_loss_and_jitter_is_that_of_the_rfc() -> None:
    observer = LossObserver()
    now = 0.0
    for arrival, number in _jittered(random.Random(5), 500, 0.06):
        now = arrival
        observer.handle_packet(number, now=now, media_time_s=number * 0.02)
    statistics = observer.statistics(now=now)
    assert statistics.packets_lost == 0
    assert 8 < statistics.jitter_ms < 25


def test_a_repaired_packet_was_still_lost() -> None:
    observer = LossObserver()
    for number in (0, 1, 3):
        observer.handle_packet(number, now=number * 0.02)
    observer.handle_requested(2, now=0.06)
    observer.handle_packet(2, now=0.09)
    observer.handle_packet(5, now=0.1)
    observer.handle_repaired(4)
    statistics = observer.statistics(now=1.0)
    assert statistics.packets_lost == 2
    assert statistics.packets_repaired == 2


def test_an_answer_asked_for_before_anything_later_came_is_a_loss_and_a_late_packet_is_not() -> None:
    observer = LossObserver()
    observer.rtt_s = 0.03
    observer.handle_packet(0, now=0.0)
    observer.handle_requested(1, now=0.03)
    observer.handle_requested(2, now=0.05)
    observer.handle_packet(2, now=0.06)
    observer.handle_packet(1, now=0.07)
    observer.handle_requested(3, now=0.08)
    observer.handle_packet(3, now=0.12)
    observer.handle_packet(4, now=0.125)
    statistics = observer.statistics(now=1.0)
    assert (statistics.packets_received, statistics.packets_lost) == (3, 2)
    assert statistics.packets_retransmitted == statistics.packets_repaired == 2
    assert statistics.bursts[0] == 2


def test_duplicates_count_once() -> None:
    observer = LossObserver()
    for number in (0, 1, 1, 0, 2, 2):
        observer.handle_packet(number, now=0.0)
    assert observer.statistics(now=1.0).packets_received == 3


def test_a_new_stream_is_no_loss() -> None:
    observer = LossObserver()
    _feed(observer, count=50)
    observer.handle_packet(30_000, now=2.0)
    observer.handle_packet(30_001, now=2.02)
    assert observer.statistics(now=5.0).packets_lost == 0


def test_memory_stays_bounded_under_random_numbers() -> None:
    observer = LossObserver()
    source = random.Random(9)
    for index in range(20_000):
        observer.handle_packet(source.randrange(65_536), now=index * 0.001)
    assert observer.statistics(now=30.0).loss_pct <= 100
    assert len(observer._missing.since) <= 1000


def test_a_packet_asked_for_again_long_after_the_first_time_is_a_request_like_any() -> None:
    observer = LossObserver()
    _feed(observer, count=3)
    for now in (1.0, 3.5, 7.0):
        observer.handle_requested(5, now=now)
    assert len(observer._missing.requested) <= 1
