from __future__ import annotations

import numpy as np
import pytest

from jitter.controller import Controller
from jitter.frame import AudioFrame, FrameKind
from jitter.packet import RtpPacket
from jitter.playout import PlayoutReader
from jitter.red import build_red
from jitter.replay_speech import ClipDecoder, ClipSpeech
from tests.unit.jitter_fakes import FakeDecoder, packet


def fixed(delay_ms: float) -> Controller:
    return Controller(policy=f"fixed:{delay_ms}")


def play(reader: PlayoutReader, packets: list[RtpPacket], seconds: float, *, phase: float = 0.0) -> list[AudioFrame]:
    frames = []
    waiting = sorted(packets, key=lambda each: each.arrival)
    for tick in range(round(seconds / 0.01)):
        now = tick * 0.01 + phase
        while waiting and waiting[0].arrival <= now:
            each = waiting.pop(0)
            reader.handle_packet(each, now=each.arrival)
        frames.append(reader.get_audio(now=now))
    return frames


def first_values(frames: list[AudioFrame]) -> list[int]:
    return [int(frame.samples[0]) for frame in frames]


def test_before_the_first_packet_there_is_silence() -> None:
    frame = PlayoutReader(FakeDecoder()).get_audio(now=0.0)
    assert len(frame.samples) == 160
    assert not frame.samples.any()


@pytest.mark.parametrize("frame_ms", [10, 20])
def test_an_undisturbed_stream_comes_out_whole(frame_ms: int) -> None:
    reader = PlayoutReader(FakeDecoder(), frame_ms=frame_ms, controller=fixed(10))
    heard = []
    for tick in range(1000 // frame_ms):
        now = tick * frame_ms / 1000
        if now * 1000 % 20 == 0:
            index = round(now / 0.02)
            reader.handle_packet(packet(index, arrival=now), now=now)
        heard.append(reader.get_audio(now=now))
    samples = np.concatenate([frame.samples for frame in heard])
    assert reader.stats.concealed_samples == 0
    assert set(samples[160:].tolist()) >= set(range(1, 45))
    assert bool((np.diff(samples[1600:]) >= 0).all())


def test_a_lost_frame_is_concealed_for_its_own_time_and_the_delay_stays() -> None:
    reader = PlayoutReader(FakeDecoder(), controller=fixed(45))
    frames = play(reader, [packet(i) for i in range(100) if i != 60], 2.0, phase=0.003)
    concealed = [i for i, frame in enumerate(frames) if frame.kind is FrameKind.CONCEALED]
    assert 1 <= len(concealed) <= 2
    assert reader.stats.concealment_events == 1
    assert reader.stats.concealed_samples <= 320


def test_fec_fills_the_hole_when_the_next_packet_is_there() -> None:
    reader = PlayoutReader(FakeDecoder(), controller=fixed(45))
    frames = play(reader, [packet(i, fec=True) for i in range(100) if i != 60], 2.0, phase=0.003)
    assert reader.stats.fec_packets_received == 1
    assert reader.stats.concealed_samples == 0
    assert FrameKind.FEC in {frame.kind for frame in frames}


def test_a_copy_fills_the_hole_by_its_timestamp() -> None:
    def red(index: int) -> RtpPacket:
        plain = packet(index)
        copies = [(offset * 960, packet(index - offset).payload) for offset in (1, 3) if index >= offset]
        body = build_red(payload_type=111, primary=plain.payload, copies=copies)
        return RtpPacket(plain.sequence_number, plain.timestamp, 63, plain.ssrc, body, plain.arrival)

    reader = PlayoutReader(FakeDecoder(), controller=fixed(75), red_payload_type=63)
    frames = play(reader, [red(i) for i in range(100) if i not in {60, 61, 62}], 2.0, phase=0.003)
    assert reader.stats.red_packets_recovered == 3
    assert reader.stats.concealed_samples == 0
    heard = first_values(frames)
    assert {60, 61, 62} <= set(heard)


def test_a_packet_that_comes_during_its_own_time_is_still_played() -> None:
    reader = PlayoutReader(FakeDecoder(), controller=fixed(25))
    packets = [packet(i, arrival=i * 0.02 + (0.045 if i == 60 else 0.0)) for i in range(100)]
    play(reader, packets, 2.0, phase=0.003)
    assert reader.stats.concealed_samples < 320
    assert reader.stats.packets_late == 0


def test_the_delay_is_brought_up_and_down_by_pitch_periods_alone() -> None:
    controller = fixed(40)
    reader = PlayoutReader(ClipDecoder(48_000), controller=controller)
    speech = ClipSpeech([20] * 1500, seed=1)
    stream = [RtpPacket(i, i * 960, 111, 1, speech.payload(i, fec=False), i * 0.02) for i in range(1500)]
    delays = []
    for tick in range(2900):
        now = tick * 0.01 + 0.003
        if tick == 500:
            controller.bound(minimum_ms=140)
        elif tick == 1500:
            controller.bound(minimum_ms=0)
        for each in stream[tick // 2 : tick // 2 + 1] if tick % 2 == 0 else []:
            reader.handle_packet(each, now=each.arrival)
        reader.get_audio(now=now)
        delays.append(controller.history.delay_ms(reader._intake.buffer.next_timestamp, now=now))
    assert 20 < np.median(delays[300:500]) < 50
    assert 120 < np.median(delays[1200:1500]) < 150
    assert 20 < np.median(delays[2600:]) < 50
    assert reader.stats.concealed_samples == 0
    assert reader.stats.inserted_samples_for_deceleration > 48 * 80
    assert reader.stats.removed_samples_for_acceleration > 48 * 80


def test_a_step_of_the_path_moves_the_playout_and_loses_nothing() -> None:
    reader = PlayoutReader(FakeDecoder(), controller=fixed(20))
    packets = [packet(i, arrival=i * 0.02 + (0.08 if i >= 100 else 0.0)) for i in range(300)]
    play(reader, packets, 6.0, phase=0.003)
    assert reader.stats.packets_late == 0
    assert reader.stats.packets_discarded == 0
    assert reader.stats.concealed_samples <= 16 * 100


def test_a_spike_leaves_the_delay_where_it_was() -> None:
    reader = PlayoutReader(FakeDecoder(), controller=fixed(40))
    packets = [packet(i, arrival=max(i * 0.02, 2.2) if 100 <= i <= 110 else i * 0.02) for i in range(300)]
    play(reader, packets, 3.0, phase=0.003)
    assert reader.controller.history.delay_ms(reader._intake.buffer.next_timestamp, now=2.993) < 130
    assert reader.stats.packets_late > 0


@pytest.mark.parametrize("phase", [0.001, 0.006, 0.011, 0.016])
def test_in_a_stall_what_is_held_is_stretched_before_anything_is_made_up(phase: float) -> None:
    reader = PlayoutReader(FakeDecoder(), controller=fixed(60))
    packets = [packet(i, arrival=max(i * 0.02, 2.2) if 100 <= i <= 110 else i * 0.02) for i in range(105)]
    play(reader, packets, 2.19, phase=phase)
    held_ms = 60 + 20 + reader.stats.inserted_samples_for_deceleration / 16
    concealed_ms = reader.stats.concealed_samples / 16
    assert reader.stats.inserted_samples_for_deceleration > 16 * 60
    assert concealed_ms <= max(0.0, 190 - held_ms) + 40


def test_a_pause_of_the_sender_is_comfort_noise() -> None:
    reader = PlayoutReader(FakeDecoder(), controller=fixed(20))
    silence = RtpPacket(50, 50 * 960, 111, 1, packet(50).payload, 1.0)
    packets = [packet(i) for i in range(50)] + [silence]
    packets += [packet(i, arrival=(i + 20) * 0.02, skip_ticks=20 * 960) for i in range(51, 100)]
    frames = play(reader, packets, 2.3, phase=0.003)
    # without a DTX packet it cannot be known that a pause follows: what is put out until the next packet is a guess
    assert reader.stats.packets_discarded == 0
    assert frames[-1].kind is FrameKind.DECODED


def test_a_new_source_takes_over() -> None:
    reader = PlayoutReader(FakeDecoder(), controller=fixed(20))
    packets = [packet(i) for i in range(50)]
    packets += [packet(i, ssrc=2, arrival=1.0 + i * 0.02, first_sequence=9000, first_timestamp=77) for i in range(50)]
    frames = play(reader, packets, 2.0, phase=0.003)
    assert reader.stats.restarts == 1
    assert first_values(frames)[-1] > 40


def test_an_hour_of_drift_is_absorbed() -> None:
    reader = PlayoutReader(ClipDecoder(48_000), controller=fixed(40))
    speech = ClipSpeech([20] * 9000, seed=1)
    packets = [
        RtpPacket(i, i * 960, 111, 1, speech.payload(i, fec=False), i * 0.02 * (1 - 200e-6 * 20)) for i in range(9000)
    ]
    play(reader, packets, 179.0, phase=0.003)
    assert reader.stats.concealed_samples == 0
    assert 100 < reader.stats.removed_samples_for_acceleration / 48 < 1000
