from __future__ import annotations

import numpy as np
import pytest

from jitter.arrival import PacketArrivalHistory
from jitter.controller import Controller, Decision
from jitter.planner import Listener, Situation, choose
from jitter.repair import (
    NO_REPAIR,
    Abilities,
    Delays,
    RepairPlan,
    ask_after_ms,
    candidates,
    needs_ms,
    repeat_after_ms,
)
from jitter.requests import RequestPlanner

INF = float("inf")
FEC, NACK, RED2 = RepairPlan(fec=True), RepairPlan(nack=True), RepairPlan(red_offsets=(2,))


def needs(delays: list[float], plan: RepairPlan, *, rtt_ms: float = 60.0, ask: float = 1.0) -> Delays:
    return needs_ms(np.array(delays), plan, ptime_ms=20.0, rtt_ms=rtt_ms, ask_after_ms=ask)


def test_without_repair_a_frame_needs_its_own_packet() -> None:
    assert list(needs([0, 30, INF], NO_REPAIR)) == [0, 30, INF]


def test_fec_comes_with_the_next_packet_and_not_for_every_frame() -> None:
    got = needs([0.0, INF] * 500 + [5.0], FEC)[1::2]
    assert set(got) <= {20.0, 25.0, INF}
    assert float(np.mean(np.isfinite(got))) == pytest.approx(0.77, abs=0.02)


def test_a_copy_comes_with_its_carrier_or_not_at_all() -> None:
    assert list(needs([0, INF, INF, 7, INF, INF], RED2)) == [0, 47, INF, 7, INF, INF]


def test_fec_also_fills_what_is_only_late() -> None:
    assert needs([0.0, 150.0, 3.0], FEC)[1] == 23.0


def test_an_answer_takes_a_round_trip_from_the_asking() -> None:
    delays = [0.0] * 400
    delays[100] = INF
    assert needs(delays, NACK)[100] == 61.0


def test_a_request_during_a_burst_is_lost_with_it_and_the_second_comes_later() -> None:
    delays = [0.0] * 400
    delays[100:104] = [INF] * 4
    got = needs(delays, NACK)
    assert got[100] == 1 + repeat_after_ms(60) + 60
    assert got[103] == 61.0


def test_when_a_missing_packet_is_more_likely_lost_than_late() -> None:
    arrived = np.arange(100.0)
    assert ask_after_ms(arrived, 0) == 99
    assert ask_after_ms(arrived, 5) == 94
    assert ask_after_ms(arrived, 1000) == 50
    assert ask_after_ms(np.zeros(0), 10) == 0


@pytest.mark.parametrize(("loss", "most_pct"), [(0.0, 5), (0.001, 5), (0.01, 15), (0.05, 121), (0.2, 350)])
def test_no_plan_costs_more_bits_than_its_loss_is_worth(loss: float, most_pct: float) -> None:
    plans = candidates(loss, NO_REPAIR)
    assert max(plan.overhead_pct(loss) for plan in plans) <= most_pct
    assert NO_REPAIR in plans


def test_only_what_the_far_end_can_do_is_proposed() -> None:
    plans = candidates(0.2, NO_REPAIR, abilities=Abilities(red_offsets=frozenset(), nack=False))
    assert set(plans) == {NO_REPAIR, FEC}


@pytest.mark.parametrize("loss", [0.03, 0.1, 0.3])
def test_a_browser_is_only_counted_on_for_the_copy_that_it_can_send(loss: float) -> None:
    plans = candidates(loss, NO_REPAIR, abilities=Abilities(red_offsets=frozenset({1})))
    assert {plan.red_offsets for plan in plans} == {(), (1,)}


def test_a_level_of_repair_is_left_later_than_it_is_entered() -> None:
    red = RepairPlan(red_offsets=(1,))
    assert red not in candidates(0.02, NO_REPAIR)
    assert red in candidates(0.02, red)


def situation(delays: Delays, rtt_ms: float = 60.0) -> Situation:
    return Situation(delays, ptime_ms=20.0, rtt_ms=rtt_ms, maximum_ms=500.0)


def gamma(mean_ms: float, count: int = 1536, seed: int = 1) -> Delays:
    return np.asarray(np.random.default_rng(seed).gamma(2, mean_ms / 2, count))


def test_jitter_sizes_the_delay_and_round_trips_do_not() -> None:
    near = choose(situation(gamma(30), rtt_ms=20), (NO_REPAIR,), Listener.PLAYOUT)
    far = choose(situation(gamma(30), rtt_ms=400), (NO_REPAIR,), Listener.PLAYOUT)
    assert near.delay_ms == far.delay_ms
    assert 90 < near.delay_ms < 150
    assert choose(situation(gamma(10)), (NO_REPAIR,), Listener.PLAYOUT).delay_ms < near.delay_ms / 2


def test_the_round_trip_raises_the_delay_only_where_an_answer_is_worth_it() -> None:
    delays = np.where(np.random.default_rng(6).random(1536) < 0.01, INF, 0.0)
    plans = candidates(0.01, NO_REPAIR)
    near = choose(situation(delays, rtt_ms=60), plans, Listener.PLAYOUT)
    far = choose(situation(delays, rtt_ms=400), plans, Listener.PLAYOUT)
    assert near.plan.nack
    assert 61 <= near.delay_ms < 65
    assert far.delay_ms < 30


def test_heavy_independent_loss_gets_a_copy_and_hardly_any_delay() -> None:
    random = np.random.default_rng(4)
    delays = np.where(random.random(1536) < 0.05, INF, 0.0)
    best = choose(situation(delays), candidates(0.05, NO_REPAIR), Listener.PLAYOUT)
    assert best.plan.red_offsets
    assert best.delay_ms < 50


def test_bursts_get_a_copy_beyond_the_burst() -> None:
    delays = np.zeros(1536)
    for start in range(0, 1536, 60):
        delays[start : start + 3] = INF
    best = choose(situation(delays), candidates(0.05, NO_REPAIR), Listener.PLAYOUT)
    assert min(best.plan.red_offsets) >= 3


def test_a_rare_stall_is_not_covered_wholly() -> None:
    delays = np.zeros(1500)
    for start in range(100, 1500, 250):
        delays[start : start + 10] = 200.0 - 20 * np.arange(10)
    best = choose(situation(delays), (NO_REPAIR,), Listener.PLAYOUT)
    assert 40 < best.delay_ms < 120


def stalled_every(frames: int, *, count: int) -> Delays:
    """The newest stall began `frames` or less ago, so did each before the next."""
    delays = np.zeros(count)
    for start in range(frames, count - 10, frames):
        delays[start : start + 10] = 200.0 - 20 * np.arange(10)
    return delays


def test_the_delay_for_stalls_is_the_same_after_the_first_as_after_many_and_does_not_sag_before_the_next() -> None:
    found = [
        choose(situation(stalled_every(250, count=count)), (NO_REPAIR,), Listener.PLAYOUT).delay_ms
        for count in range(270, 1500, 60)
    ]
    assert max(found) - min(found) < 2


def test_stalls_that_ended_are_believed_to_be_rarer_the_longer_there_was_none() -> None:
    found = []
    for calm in (0, 200, 400, 800):
        delays = np.concatenate((stalled_every(250, count=520), np.zeros(calm)))
        found.append(choose(situation(delays), (NO_REPAIR,), Listener.PLAYOUT).delay_ms)
    assert found[0] == pytest.approx(found[1], abs=2), "the next is not due yet"
    assert found[1] > found[2] > found[3]


def test_a_stall_that_had_begun_before_what_is_remembered_is_none_to_size_for() -> None:
    delays = np.zeros(1500)
    delays[:10] = 200.0 - 20 * np.arange(10)
    assert choose(situation(delays), (NO_REPAIR,), Listener.PLAYOUT).delay_ms < 25


def test_two_stalls_at_once_after_a_calm_time_are_two_in_all_that_time() -> None:
    delays = np.zeros(1500)
    for start in (1440, 1460):
        delays[start : start + 10] = 200.0 - 20 * np.arange(10)
    together = choose(situation(delays), (NO_REPAIR,), Listener.PLAYOUT).delay_ms
    often = choose(situation(stalled_every(250, count=1500)), (NO_REPAIR,), Listener.PLAYOUT).delay_ms
    assert together < often


def test_a_listener_waits_long_for_what_still_comes_and_briefly_for_what_is_lost() -> None:
    jitter = choose(situation(gamma(30)), (NO_REPAIR,), Listener.LISTEN)
    assert jitter.delay_ms >= 130
    lost = np.zeros(1536)
    lost[::20] = INF
    assert choose(situation(lost), (NO_REPAIR,), Listener.LISTEN).delay_ms == 40


def test_a_hole_s_deadline_rises_at_once_and_falls_after_ten_seconds_or_with_the_round_trip() -> None:
    controller = Controller(listener=Listener.LISTEN)
    assert [controller._held_deadline_ms(wish, now) for now, wish in ((0, 70), (1, 130), (2, 70), (9, 100))] == [
        70, 130, 130, 130,
    ]  # fmt: skip
    assert controller._held_deadline_ms(70, 11.5) == 100
    controller.handle_round_trip(rtt_ms=300.0, now=12.0)
    assert controller._held_deadline_ms(40, 12.1) == 40


def test_where_there_were_stalls_a_late_packet_is_taken_for_one_sooner() -> None:
    jitter = gamma(5)
    stalled = jitter.copy()
    for start in range(100, 1500, 250):
        stalled[start : start + 10] = 200 - 20 * np.arange(10)
    without, with_stalls = (
        Controller()._stall_after_ms(made, made.spread_ms) for made in (situation(jitter), situation(stalled))
    )
    assert with_stalls < without - 5
    assert with_stalls > float(np.median(jitter))


# requests


def planner(*, nack: bool = True, ask: float = 0.0, rtt_ms: float = 60.0) -> tuple[RequestPlanner, Decision]:
    history = PacketArrivalHistory()
    for index in range(10):
        history.add(index, index * 960, index * 0.02)
    controller = Controller(plan=RepairPlan(nack=nack))
    controller.handle_round_trip(rtt_ms=rtt_ms, now=0.0)
    decision = Decision(
        target_delay_ms=100,
        hole_deadline_ms=100,
        spread_ms=0,
        stall_after_ms=50,
        ask_after_ms=ask,
        rtt_ms=rtt_ms,
        fastest_rtt_ms=rtt_ms,
        plan=RepairPlan(nack=nack),
        reason="",
    )
    made = RequestPlanner(history)
    give(made, decision, 9)
    return made, decision


def give(made: RequestPlanner, decision: Decision, index: int, now: float | None = None) -> bool:
    now = index * 0.02 if now is None else now
    answered = made.is_answer(index, decision=decision, now=now)
    made.handle_packet(index, index * 960, 960, decision=decision, now=now, pause_follows=False)
    return answered


def poll(
    made: RequestPlanner, decision: Decision, now: float, *, deadline_ms: float = 200.0, repaired: bool = False
) -> list[int]:
    return made.poll(decision=decision, deadline_ms=deadline_ms, filled_until=0, repaired=lambda _: repaired, now=now)


def test_a_packet_is_asked_for_by_timer_before_a_later_one_shows_the_hole() -> None:
    made, decision = planner()
    timer = made.get_timer()
    assert timer is not None
    assert timer == pytest.approx(0.201)
    assert poll(made, decision, 0.2) == []
    assert poll(made, decision, timer) == [10]


def test_a_hole_is_asked_for_when_reordering_no_longer_explains_it() -> None:
    made, decision = planner(ask=30.0)
    give(made, decision, 12, now=0.225)
    assert poll(made, decision, 0.229) == []
    assert poll(made, decision, 0.231) == [10]
    assert poll(made, decision, 0.251) == [11]


def test_it_is_asked_again_after_the_answer_is_overdue_and_given_up_at_the_deadline() -> None:
    made, decision = planner()
    give(made, decision, 11)
    assert poll(made, decision, 0.221) == [10]
    assert 10 not in poll(made, decision, 0.25)
    assert 10 in poll(made, decision, 0.2965)
    assert 10 not in poll(made, decision, 0.38)


def test_what_cannot_come_in_time_or_is_there_otherwise_is_not_asked_for() -> None:
    made, decision = planner()
    give(made, decision, 11)
    assert poll(made, decision, 0.221, deadline_ms=70.0) == []
    made, decision = planner()
    give(made, decision, 11)
    assert poll(made, decision, 0.221, repaired=True) == []


def test_nothing_is_asked_of_a_far_end_that_does_not_answer() -> None:
    made, decision = planner(nack=False)
    give(made, decision, 12)
    assert poll(made, decision, 0.3) == []


def test_an_answer_is_told_from_a_packet_that_was_only_late() -> None:
    made, decision = planner()
    give(made, decision, 12)
    assert poll(made, decision, 0.24) == [10, 11]
    assert give(made, decision, 10, now=0.245) is False
    assert give(made, decision, 11, now=0.3) is True


def test_when_the_route_grows_longer_packets_in_order_are_late_though_each_was_asked_for() -> None:
    made, decision = planner()
    for index in range(10, 30):
        assert index in poll(made, decision, index * 0.02 + 0.002)
        assert give(made, decision, index, now=index * 0.02 + 0.08) is False


def test_the_list_of_missing_packets_is_bounded() -> None:
    made, decision = planner()
    give(made, decision, 10_000)
    assert len(made._missing) <= 250
