from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from jitter.arrival import HISTORY_PACKETS, PacketArrivalHistory
from jitter.packet import Unwrapper, sequence_newer


def feed(history: PacketArrivalHistory, delays_ms: Sequence[float | None], *, first: int = 0, ppm: float = 0.0) -> None:
    for index, delay_ms in enumerate(delays_ms, start=first):
        if delay_ms is not None:
            history.add(index, index * 960, index * 0.02 * (1 + ppm * 1e-6) + delay_ms / 1000)


def test_delays_are_against_the_fastest_and_lost_packets_keep_their_place() -> None:
    history = PacketArrivalHistory()
    feed(history, [50.0, 60.0, None, 80.0, 50.0])
    assert history.delays_ms() == pytest.approx([0, 10, np.inf, 30, 0])
    assert history.packets_sent == 5
    assert history.base_ms == pytest.approx(50)


def test_a_reordered_packet_takes_its_own_place() -> None:
    history = PacketArrivalHistory()
    feed(history, [50.0, None, 50.0])
    assert history.add(1, 960, 0.02 + 0.085) == pytest.approx(35)
    assert history.delays_ms() == pytest.approx([0, 35, 0])
    assert history.newest_excess_ms == pytest.approx(0, abs=1e-6)


def test_only_the_newest_half_minute_is_kept() -> None:
    history = PacketArrivalHistory()
    feed(history, [0.0] * 2000 + [5.0] * HISTORY_PACKETS)
    delays = history.delays_ms()
    assert len(delays) == HISTORY_PACKETS
    assert delays[-1] == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("ppm", [200.0, -200.0])
def test_an_hour_of_clock_drift_is_no_jitter(ppm: float) -> None:
    history = PacketArrivalHistory()
    feed(history, [20.0] * 180_000, ppm=ppm)
    assert float(history.delays_ms().max()) < 1.0


def test_a_step_up_is_taken_out_of_the_spread_within_a_second() -> None:
    history = PacketArrivalHistory()
    feed(history, [50.0] * 500 + [130.0] * 50)
    assert history.base_ms == pytest.approx(130)
    delays = history.delays_ms()
    assert float(delays[500:].max()) < 1e-6
    assert history.newest_excess_ms == pytest.approx(0, abs=1e-6)


def test_a_step_down_is_followed_by_the_first_packet() -> None:
    history = PacketArrivalHistory()
    feed(history, [130.0] * 500 + [50.0])
    assert history.base_ms == pytest.approx(50)


def test_jitter_is_no_step() -> None:
    history = PacketArrivalHistory()
    random = np.random.default_rng(3)
    delays = [float(delay) for delay in random.gamma(2, 20, 20_000)]
    feed(history, delays)
    assert float(np.mean(history.delays_ms())) == pytest.approx(40, abs=5)


def test_a_spike_is_no_step() -> None:
    history = PacketArrivalHistory()
    feed(history, [50.0] * 100 + [250.0 - 20 * i for i in range(10)] + [50.0] * 20)
    assert history.base_ms == pytest.approx(50)
    assert float(history.delays_ms().max()) == pytest.approx(200)


def test_delay_and_due_are_inverse() -> None:
    history = PacketArrivalHistory()
    feed(history, [50.0] * 10)
    due = history.due(20_000, 35.0)
    assert history.delay_ms(20_000, now=due) == pytest.approx(35.0)


def test_sequence_numbers_compare_on_the_circle() -> None:
    assert sequence_newer(1, 65_535)
    assert not sequence_newer(65_535, 1)
    assert not sequence_newer(5, 5)


@pytest.mark.parametrize("bits", [16, 32])
def test_unwrapping_follows_both_ways(bits: int) -> None:
    unwrapper = Unwrapper(bits)
    top = (1 << bits) - 1
    assert [unwrapper.unwrap(value) for value in (top, 0, 1, top, 3)] == [top, top + 1, top + 2, top, top + 4]
    assert unwrapper.peek(top) == top
