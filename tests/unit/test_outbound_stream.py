"""Pacing on a clock of our own: deadlines, missed slots, silence, and speech that wakes it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sounds import speech_like
from transport.opus import OpusDecoder, OpusEncoder, is_dtx
from transport.outbound_stream import OutboundPacket, OutboundStream
from transport.playout_queue import PlayoutQueue

VOICE = speech_like(5.0)


def make(voice: np.ndarray | None = None) -> OutboundStream:
    queue = PlayoutQueue()
    if voice is not None:
        queue.capture_frame(voice, text="words")
        queue.flush()
    stream = OutboundStream(queue, OpusEncoder())
    stream.start(now=100.0)
    return stream


def run(stream: OutboundStream, until: float, *, lateness: float = 0.0) -> list[tuple[float, OutboundPacket]]:
    sent = []
    while (due := stream.get_timer()) is not None and due < until - 1e-9:
        packet = stream.handle_timer(now=due + lateness)
        assert packet is not None
        sent.append((due + lateness, packet))
    return sent


def test_speech_goes_out_in_slots_of_20_ms_with_960_samples_each() -> None:
    sent = run(make(VOICE), 105.0)
    assert len(sent) == 250
    assert [packet.timestamp for _, packet in sent] == [960 * n for n in range(250)]
    assert np.allclose(np.diff([at for at, _ in sent]), 0.02, atol=1e-6)
    assert all(OpusDecoder(48_000).duration_samples(packet.payload) == 960 for _, packet in sent)
    assert all(packet.is_speech for _, packet in sent)


def test_nothing_is_due_before_its_time() -> None:
    stream = make(VOICE)
    assert stream.handle_timer(now=100.0) is not None
    assert stream.handle_timer(now=100.0) is None
    assert stream.handle_timer(now=100.019) is None
    assert stream.handle_timer(now=100.02) is not None


def test_a_timer_that_is_always_late_never_slows_the_clock() -> None:
    sent = run(make(VOICE), 105.0, lateness=0.009)
    assert len(sent) == 250
    assert all(packet.timestamp == round((at - 0.009 - 100.0) * 48_000) for at, packet in sent)


def test_a_short_stall_is_made_up_for_at_once_and_leaves_no_gap() -> None:
    stream = make(VOICE)
    run(stream, 101.0)
    now = 101.0 + 0.07  # 70 ms late: three slots are overdue, and the one that is due
    burst = []
    while (packet := stream.handle_timer(now=now)) is not None:
        burst.append(packet.timestamp)
    assert burst == [960 * n for n in (50, 51, 52, 53)]
    assert stream.missed_slots == 0
    assert stream.get_timer() == pytest.approx(101.08)


def test_missed_silence_is_not_made_up_for() -> None:
    stream = make()
    run(stream, 100.06)
    packet = stream.handle_timer(now=100.125)
    assert packet is not None
    assert packet.timestamp == 6 * 960
    assert stream.handle_timer(now=100.125) is None
    assert stream.missed_slots == 3


def test_missed_slots_advance_rtp_time_and_lose_no_sound() -> None:
    stream = make(VOICE)
    first = run(stream, 101.0)
    packet = stream.handle_timer(now=101.0 + 0.13)  # 130 ms late: six slots are gone, the seventh is due
    assert packet is not None
    assert stream.missed_slots == 6
    assert packet.timestamp == (50 + 6) * 960
    rest = run(stream, 106.0)
    speech = [p for _, p in [*first, (101.13, packet), *rest] if p.is_speech]
    assert len(speech) == 250
    assert rest[0][0] == pytest.approx(101.14)
    assert rest[0][1].timestamp == 57 * 960
    decoder = OpusDecoder(48_000)
    heard = np.concatenate([decoder.decode(p.payload) for p in speech])
    lag = int(np.argmax([np.dot(heard[n : n + 96_000].astype(float), VOICE[:96_000]) for n in range(0, 960, 8)])) * 8
    assert np.corrcoef(heard[lag : lag + 200_000], VOICE[:200_000])[0, 1] > 0.8


def test_silence_falls_to_a_tiny_packet_every_400_ms() -> None:
    sent = run(make(VOICE[:48_000]), 111.0)
    tail = [(at, packet) for at, packet in sent if at > 102.0]
    assert all(is_dtx(packet.payload) for _, packet in tail)
    assert np.allclose(np.diff([at for at, _ in tail]), 0.4, atol=1e-6)
    assert all(packet.timestamp == round((at - 100.0) * 48_000) for at, packet in sent)
    assert sum(len(packet.payload) for _, packet in tail) <= 2 * 23


def test_a_pause_is_entered_within_half_a_second_and_through_a_tiny_packet() -> None:
    sent = run(make(VOICE[:48_000]), 103.0)
    first_tiny = next(at for at, packet in sent if is_dtx(packet.payload))
    assert 101.0 < first_tiny < 101.5


def test_speech_after_silence_starts_at_once_and_on_true_time() -> None:
    stream = make()
    run(stream, 105.0)
    due = stream.get_timer()
    assert due is not None
    now = due - 0.123
    stream.queue.capture_frame(VOICE[:9600])
    stream.wake(now=now)
    packet = stream.handle_timer(now=now)
    assert packet is not None
    assert packet.is_speech
    assert packet.timestamp == round((now - 100.0) * 48_000)
    following = run(stream, now + 0.2)
    assert [p.timestamp - packet.timestamp for _, p in following[:9]] == [960 * n for n in range(1, 10)]


def test_speech_just_after_a_tiny_packet_waits_until_that_packets_time_is_over() -> None:
    stream = make()
    run(stream, 105.0)
    due = stream.get_timer()
    assert due is not None
    last = due - 0.4
    stream.queue.capture_frame(VOICE[:9600])
    stream.wake(now=last + 0.004)
    assert stream.handle_timer(now=last + 0.004) is None
    assert stream.get_timer() == pytest.approx(last + 0.02)
    packet = stream.handle_timer(now=last + 0.02)
    assert packet is not None
    assert packet.timestamp == round((last + 0.02 - 100.0) * 48_000)


def test_wake_during_speech_changes_no_deadline() -> None:
    stream = make(VOICE)
    run(stream, 101.0)
    before = stream.get_timer()
    stream.wake(now=100.985)
    assert stream.get_timer() == before


def test_a_thousand_pauses_leave_no_clock_error() -> None:
    stream = make()
    now = 100.0
    rng = np.random.default_rng(4)
    for _ in range(300):
        now += float(rng.uniform(0.5, 1.5))
        run(stream, now)
        stream.queue.capture_frame(VOICE[9600:11_520])
        stream.wake(now=now)
    due = stream.get_timer()
    assert due is not None
    packet = stream.handle_timer(now=due)
    assert packet is not None
    assert abs(packet.timestamp - (due - 100.0) * 48_000) < 48


def test_each_packet_is_told_as_it_leaves() -> None:
    stream = make(VOICE[:4800])
    told: list[tuple[int, float]] = []
    stream.on_packet = lambda packet, now: told.append((packet.timestamp, now))
    sent = run(stream, 100.1)
    assert told == [(packet.timestamp, at) for at, packet in sent]
    assert stream.packets_sent == len(sent)


def test_a_wake_before_start_is_harmless() -> None:
    stream = OutboundStream(PlayoutQueue(), OpusEncoder())
    stream.wake(now=1.0)
    assert stream.get_timer() is None
    assert stream.handle_timer(now=1.0) is None
