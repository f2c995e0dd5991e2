from __future__ import annotations

import pytest

from jitter.controller import Controller, parse_policy
from jitter.delay import DelayManager, FixedPolicy, FormulaPolicy, PathView, QuantilePolicy
from jitter.histogram import ForgettingHistogram
from jitter.repair import NO_REPAIR


def view(*, jitter_ms: float = 0.0, rtt_ms: float | None = None) -> PathView:
    return PathView(jitter_ms=jitter_ms, rtt_ms=rtt_ms)


@pytest.mark.parametrize(
    ("jitter_ms", "rtt_ms", "window_ms"),
    [
        (0, 60, 40),  # never under 40
        (40, 60, 60),  # 1.5 times the jitter
        (100, 20, 140),  # capped at 2 RTT + jitter
        (300, 200, 300),  # and at 300
        (100, None, 100),  # without an RTT only the jitter caps
        (10, 0, 40),
    ],
)
def test_the_formula(jitter_ms: float, rtt_ms: float | None, window_ms: float) -> None:
    assert FormulaPolicy().target_ms(view(jitter_ms=jitter_ms, rtt_ms=rtt_ms)) == pytest.approx(window_ms)


def test_the_quantile_policy_takes_the_worst_of_each_half_second() -> None:
    policy = QuantilePolicy()
    for index in range(3000):
        policy.handle_arrival(70.0 if index % 25 == 0 else 0.0, reordered=False, now=index * 0.02)
    assert policy.target_ms(view()) == 80  # (1 + bucket of 70) * 20


def test_the_quantile_policy_raises_its_target_for_frequent_reordering() -> None:
    policy = QuantilePolicy()
    for index in range(3000):
        late = index % 20 == 0
        policy.handle_arrival(130.0 if late else 0.0, reordered=late, now=index * 0.02)
    assert policy.target_ms(view()) >= 140


@pytest.mark.parametrize(
    ("name", "kind"), [("quantile", QuantilePolicy), ("formula", FormulaPolicy), ("fixed:70", FixedPolicy)]
)
def test_policies_by_name(name: str, kind: type) -> None:
    assert isinstance(parse_policy(name), kind)


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no policy 'best'"):
        parse_policy("best")
    assert parse_policy("auto") is None


def test_the_target_rises_at_once_and_falls_twenty_milliseconds_a_second() -> None:
    manager = DelayManager(start_ms=60)
    assert manager.update(150, now=0.0) == 150
    assert manager.update(50, now=1.0) == pytest.approx(130)
    assert manager.update(50, now=3.0) == pytest.approx(90)
    assert manager.update(50, now=100.0) == 50


def test_bounds_and_freezing() -> None:
    manager = DelayManager(start_ms=60)
    manager.minimum_ms, manager.maximum_ms = 40, 200
    assert manager.update(500, now=0.0) == 200
    manager.freeze(until=10.0)
    manager.target_delay_ms = 100
    assert manager.update(180, now=5.0) == 100
    assert manager.update(180, now=10.0) == 180
    assert manager.update(1, now=1000.0) == 40


def test_the_histogram_forgets() -> None:
    histogram = ForgettingHistogram(buckets=10, forget=0.9)
    assert histogram.quantile(0.5) == 0
    for _ in range(5):
        histogram.add(8)
    assert histogram.quantile(0.5) == 8
    for _ in range(10):
        histogram.add(2)
    assert histogram.quantile(0.5) == 2
    assert histogram.quantile(0.95) == 8
    assert float(histogram.shares.sum()) == pytest.approx(1)


def test_at_the_start_the_histogram_weighs_all_alike() -> None:
    histogram = ForgettingHistogram(buckets=10, forget=0.99, start_weight=1.0)
    for value in (1, 2, 3, 4):
        histogram.add(value)
    assert histogram.shares[1:5] == pytest.approx(histogram.shares[1])


def received(controller: Controller, *, stall: bool) -> float:
    """The target after half a minute, in which this host stood still for 400 ms every other second."""
    for index in range(1500):
        sent = index * 0.02
        held_up = sent % 2.0 >= 1.6
        arrival = sent - sent % 2.0 + 2.0 if held_up else sent
        if stall and held_up:
            controller.handle_stall(since=arrival, until=arrival + 0.02)
        controller.handle_arrival(index, index * 960, arrival)
        controller.update(now=arrival)
    return controller.decision.target_delay_ms


def test_what_this_host_held_up_itself_neither_counts_as_late_nor_raises_the_target() -> None:
    assert received(Controller(plan=NO_REPAIR), stall=False) > 100
    noted = Controller(plan=NO_REPAIR)
    assert received(noted, stall=True) < 65
    assert float(noted.history.delays_ms().max()) < 65


def test_lateness_after_a_stall_counts_again() -> None:
    controller = Controller(plan=NO_REPAIR)
    controller.handle_stall(since=0.0, until=0.5)
    for index in range(500):
        late_s = 0.15 if index > 100 and index % 3 == 0 else 0.0
        controller.handle_arrival(index, index * 960, index * 0.02 + late_s)
        controller.update(now=index * 0.02 + late_s)
    assert controller.decision.target_delay_ms > 140


def test_lateness_stamped_before_the_stall_is_the_networks() -> None:
    """Packets with the kernel's time of arrival are as late as they are, whenever they are read."""
    controller = Controller(plan=NO_REPAIR)
    controller.handle_arrival(0, 0, 0.0)
    controller.handle_stall(since=0.5, until=0.6)
    controller.handle_arrival(1, 960, 0.17)
    assert list(controller.history.delays_ms()) == pytest.approx([0, 150])
