"""What holds for any sequence of packets, well-meant or not."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitter.controller import Controller
from jitter.frame import AudioFrame, FrameKind
from jitter.listen import ListenReader
from jitter.packet import RtpPacket
from jitter.planner import Listener
from jitter.playout import PlayoutReader
from jitter.red import parse_red
from tests.unit.jitter_chaos import RED, Step, as_packets, listen_through, play_through, random_steps, steps
from tests.unit.jitter_fakes import FakeDecoder, packet

FUZZ_PACKETS = 10_000


def listener() -> ListenReader:
    return ListenReader(FakeDecoder(), controller=Controller(listener=Listener.LISTEN), red_payload_type=RED)


def player(frame_ms: int = 10) -> PlayoutReader:
    return PlayoutReader(FakeDecoder(), frame_ms=frame_ms, red_payload_type=RED)


def check_listened(reader: ListenReader, frames: list[AudioFrame]) -> None:
    position = 0
    for frame in frames:
        assert frame.position_samples == position
        assert frame.samples.dtype == np.int16
        position += len(frame.samples)
    stats = reader.stats
    concealed = sum(len(frame.samples) for frame in frames if frame.kind is FrameKind.CONCEALED)
    assert stats.total_samples_received == position
    assert stats.concealed_samples == concealed
    assert stats.silent_concealed_samples <= concealed
    noise = sum(len(frame.samples) for frame in frames if frame.kind is FrameKind.COMFORT_NOISE)
    assert stats.comfort_noise_samples == noise
    assert position == stats.jitter_buffer_emitted_count + concealed + noise


def check_played(reader: PlayoutReader, frames: list[AudioFrame], samples: int) -> None:
    assert all(len(frame.samples) == samples and frame.samples.dtype == np.int16 for frame in frames)
    stats = reader.stats
    made = stats.jitter_buffer_emitted_count + stats.concealed_samples + stats.comfort_noise_samples
    stretched = stats.inserted_samples_for_deceleration - stats.removed_samples_for_acceleration
    assert stats.total_samples_received + len(reader._pending) == made + stretched


@settings(max_examples=150, deadline=None)
@given(steps)
def test_a_listener_keeps_order_and_count(made: list[Step]) -> None:
    reader = listener()
    check_listened(reader, listen_through(reader, as_packets(made)))


@settings(max_examples=150, deadline=None)
@given(steps, st.sampled_from([10, 20]))
def test_a_player_gives_every_frame_and_accounts_for_every_sample(made: list[Step], frame_ms: int) -> None:
    reader = player(frame_ms)
    frames = play_through(reader, as_packets(made), frame_s=frame_ms / 1000)
    check_played(reader, frames, 16 * frame_ms)


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(30)), st.floats(0, 0.05))
def test_what_a_listener_puts_out_is_the_elapsed_media_whatever_the_order(order: list[int], step_s: float) -> None:
    reader = listener()
    packets = [packet(index, arrival=at * step_s) for at, index in enumerate([0, *(1 + i for i in order)])]
    frames = listen_through(reader, packets)
    last = packets[-1].arrival + 2.0
    reader.handle_timer(now=last)
    frames += reader.poll(now=last)
    assert sum(len(frame.samples) for frame in frames) == 31 * 320
    decoded = [int(frame.samples[0]) for frame in frames if frame.kind is FrameKind.DECODED]
    assert all(a < b for a, b in pairwise(decoded))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_red_or_are_not(data: bytes) -> None:
    blocks = parse_red(data)
    if blocks is not None:
        assert blocks[-1].offset_ticks == 0
        assert sum(len(block.payload) for block in blocks) + 4 * (len(blocks) - 1) + 1 == len(data)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_packets_by_the_tens_of_thousands(seed: int) -> None:
    packets = as_packets(random_steps(Random(seed), FUZZ_PACKETS))
    heard = listener()
    check_listened(heard, listen_through(heard, packets))
    played = player()
    check_played(played, play_through(played, packets), 160)


def test_a_stream_far_ahead_of_the_clock_is_bounded() -> None:
    reader = player()
    for index in range(5000):
        reader.handle_packet(packet(index, arrival=0.0), now=0.0)
        assert len(reader._intake.buffer) <= 200


def test_wild_timestamps_on_one_sequence_never_raise() -> None:
    reader = player()
    random = Random(5)
    for index in range(3000):
        wild = RtpPacket(index & 0xFFFF, random.randrange(2**32), 111, 1, packet(index).payload, index * 0.02)
        reader.handle_packet(wild, now=index * 0.02)
        reader.get_audio(now=index * 0.02)
