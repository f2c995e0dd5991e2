"""What the sender does about the network, decision by decision."""

from __future__ import annotations

import random

import pytest

from bench.steps import count_turns
from jitter.repair import RepairPlan
from jitter.sender_control import FarEndReport, OutputChanged, SenderControl


class _Path:
    """A far end behind a lossy path: reports five times a second."""

    def __init__(self, control: SenderControl, *, seed: int = 1) -> None:
        self.control = control
        self.random = random.Random(seed)
        self.sent = self.received = self.resent = 0
        self.now = 0.0
        self.changes: list[OutputChanged] = []

    def run(
        self, seconds: float, *, loss: float, rtt_ms: float = 60.0, jitter_ms: float = 0.0, queue_ms: float = 0.0
    ) -> None:
        for _ in range(round(seconds * 5)):
            self.now += 0.2
            for _ in range(10):
                self.sent += 1
                arrived = self.random.random() >= loss
                if not arrived:
                    self.resent += 1
                    arrived = self.random.random() >= loss
                    self.received += arrived
                else:
                    self.received += 1
            self.control.handle_round_trip(p50_ms=rtt_ms, p90_ms=rtt_ms, queue_ms=queue_ms, now=self.now)
            self.control.handle_report(
                FarEndReport(
                    packets_received=self.received,
                    packets_missing=self.sent - self.received,
                    packets_resent=self.resent,
                    jitter_ms=jitter_ms,
                ),
                now=self.now,
            )
            while (event := self.control.next_event()) is not None:
                self.changes.append(event)


def test_a_clean_path_gets_fec_alone_and_leaves_the_far_end_to_itself() -> None:
    path = _Path(SenderControl())
    path.control.set_speaking(True, now=0.0)
    path.run(10, loss=0.0)
    assert not path.control.outputs.plan.red_offsets
    assert path.control.outputs.plan.overhead_pct(0.0) <= 5
    assert path.control.outputs.receiver_target_ms is None
    assert path.control.outputs.bitrate_bps == 28_000


@pytest.mark.parametrize(("loss", "copies"), [(0.01, 0), (0.05, 1), (0.10, 1), (0.20, 3)])
def test_copies_are_in_proportion_to_the_loss(loss: float, copies: int) -> None:
    path = _Path(SenderControl())
    path.run(30, loss=loss)
    assert path.control.loss_share == pytest.approx(loss, rel=0.4)
    assert len(path.control.outputs.plan.red_offsets) <= copies
    assert bool(path.control.outputs.plan.red_offsets) == bool(copies)


def test_answers_to_requests_do_not_hide_the_loss() -> None:
    """The far end counts them as received; only what was sent in all shows what the network loses."""
    path = _Path(SenderControl())
    path.run(20, loss=0.10)
    missing = path.sent - path.received
    assert missing / path.sent < 0.02
    assert path.control.loss_share == pytest.approx(0.10, abs=0.03)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("losses", "round_trips_ms"),
    [((0.0, 0.1, 0.0, 0.1, 0.0), (40, 40, 40, 40, 40)), ((0.05,) * 5, (40, 200, 40, 200, 40))],
)
def test_no_output_turns_back_more_than_once_a_step(
    losses: tuple[float, ...], round_trips_ms: tuple[float, ...], seed: int
) -> None:
    control, source = SenderControl(), random.Random(seed)
    control.set_speaking(True, now=0.0)
    sent = lost = 0
    for loss, rtt_ms in zip(losses, round_trips_ms, strict=True):
        seen: list[tuple[float, ...]] = []
        for _ in range(80):
            sent += 10
            lost += sum(source.random() < loss for _ in range(10))
            now = sent / 50
            control.handle_round_trip(p50_ms=rtt_ms, p90_ms=rtt_ms + 3, now=now)
            report = FarEndReport(packets_received=sent - lost, packets_missing=lost, network_lost=lost, jitter_ms=2.0)
            control.handle_report(report, now=now)
            out = control.outputs
            target_ms = out.receiver_target_ms or 0.0
            seen.append((len(out.plan.red_offsets), out.expected_loss_pct, target_ms, out.bitrate_bps / 1000))
        assert all(count_turns(values, grain=0.5) <= 1 for values in zip(*seen, strict=True))


def test_requests_for_late_packets_are_no_loss() -> None:
    """Jitter of 30 ms, nothing lost: a browser asks for every fifth packet, and SRTP drops the answers it gets."""
    control = SenderControl()
    for second in range(1, 200):
        sent = 10 * second
        control.handle_report(
            FarEndReport(packets_received=sent, packets_missing=0, packets_resent=sent // 5, jitter_ms=22.0),
            now=second / 5,
        )
    assert control.loss_share < 0.01
    assert not control.outputs.plan.red_offsets


def test_a_far_end_that_knows_its_loss_is_believed() -> None:
    control = SenderControl()
    for second in range(1, 100):
        sent = 10 * second
        control.handle_report(
            FarEndReport(packets_received=sent, packets_missing=0, packets_resent=sent // 5, network_lost=sent // 20),
            now=second / 5,
        )
    assert control.loss_share == pytest.approx(0.05, abs=0.02)


def test_loss_brings_a_copy_and_its_end_takes_it_away_within_fifteen_seconds() -> None:
    path = _Path(SenderControl())
    path.control.set_speaking(True, now=0.0)
    path.run(10, loss=0.0)
    path.run(20, loss=0.10)
    assert path.control.outputs.plan.red_offsets
    assert path.control.outputs.bitrate_bps == 24_000
    assert path.control.outputs.receiver_target_ms is not None
    path.run(15, loss=0.0)
    assert not path.control.outputs.plan.red_offsets
    assert path.control.outputs.receiver_target_ms is None


def test_no_output_changes_direction_on_one_step() -> None:
    path = _Path(SenderControl(), seed=3)
    path.run(15, loss=0.0)
    path.changes.clear()
    path.run(3, loss=0.10)
    plans = [event.after for event in path.changes if event.output == "plan"]
    assert 1 <= len(plans) <= 2
    path.run(12, loss=0.10)
    path.changes.clear()
    path.run(20, loss=0.0)
    falling = [int(event.after) for event in path.changes if event.output == "expected_loss_pct"]
    assert falling == sorted(falling, reverse=True)


def test_every_change_has_a_reason() -> None:
    path = _Path(SenderControl())
    path.run(10, loss=0.0)
    path.run(10, loss=0.10)
    assert path.changes
    for event in path.changes:
        assert "loss" in event.reason
        assert event.before != event.after


def test_the_far_end_holds_speech_back_only_while_we_speak() -> None:
    path = _Path(SenderControl())
    path.run(20, loss=0.10)
    targets_ms = []
    for speaking in (False, True, False):
        path.control.set_speaking(speaking, now=path.now)
        targets_ms.append(path.control.outputs.receiver_target_ms)
    assert targets_ms[0] is None
    assert targets_ms[1] is not None
    assert targets_ms[2] is None


def test_a_far_end_without_red_or_requests_gets_what_it_takes() -> None:
    path = _Path(SenderControl(can_red=False, can_nack=False))
    path.run(20, loss=0.10)
    assert path.control.outputs.plan == RepairPlan(fec=True)


def test_a_full_queue_is_not_fed_copies() -> None:
    path = _Path(SenderControl())
    path.run(20, loss=0.10, queue_ms=400.0)
    assert not path.control.outputs.plan.red_offsets
    assert path.control.outputs.bitrate_bps == 24_000


def test_requests_tell_the_length_of_losses() -> None:
    control = SenderControl()
    for start in range(0, 500, 10):
        control.handle_requests([start, start + 1])
        control.handle_requests([start + 1, start])
    assert control._mean_burst() == 2.0


def test_answers_are_worth_more_time_on_a_longer_path() -> None:
    path = _Path(SenderControl())
    path.run(3, loss=0.0, rtt_ms=40.0)
    near = path.control.outputs
    path.run(3, loss=0.0, rtt_ms=250.0)
    far = path.control.outputs
    assert near.answer_within_ms == 400.0
    assert far.answer_within_ms == 875.0
    assert far.answer_gap_ms > near.answer_gap_ms


def test_speech_is_prepared_ahead_by_chunk_round_trip_and_jitter() -> None:
    path = _Path(SenderControl())
    path.run(3, loss=0.0, rtt_ms=150.0, jitter_ms=20.0)
    assert path.control.outputs.lead_ms(100.0) == 400.0
    assert path.control.outputs.lead_ms(1000.0) == pytest.approx(1800 + 150 + 40)
