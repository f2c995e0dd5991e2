from __future__ import annotations

import numpy as np
import pytest

from jitter.decoder import Samples
from jitter.frame import AudioFrame, FrameKind
from jitter.listen import ListenReader
from jitter.packet import InsertResult, RtpPacket
from tests.unit.jitter_fakes import CONCEALED_VALUE, FEC_OFFSET, FakeDecoder, packet


def feed(reader: ListenReader, *packets: RtpPacket) -> list[AudioFrame]:
    frames = []
    for each in packets:
        reader.handle_packet(each, now=each.arrival)
        frames += reader.poll(now=each.arrival)
    return frames


def values(frames: list[AudioFrame]) -> list[int]:
    return [int(frame.samples[0]) for frame in frames]


@pytest.mark.parametrize(("first_sequence", "first_timestamp"), [(0, 0), (65530, 2**32 - 5000)])
def test_an_undisturbed_stream_comes_out_at_once(first_sequence: int, first_timestamp: int) -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=60)
    stream = [packet(i, first_sequence=first_sequence, first_timestamp=first_timestamp) for i in range(50)]
    frames = feed(reader, *stream)
    assert values(frames) == list(range(50))
    assert [frame.position_samples for frame in frames] == [320 * i for i in range(50)]
    assert {frame.kind for frame in frames} == {FrameKind.DECODED}
    assert reader.stats.jitter_buffer_delay == 0
    assert reader.get_timer() is None


def test_a_reordered_packet_waits_for_its_predecessor_and_nothing_is_lost() -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=60)
    assert values(feed(reader, packet(0), packet(2, arrival=0.03))) == [0]
    assert reader.is_hole_open
    assert values(feed(reader, packet(1, arrival=0.05))) == [1, 2]
    assert reader.stats.concealed_samples == 0
    assert reader.stats.jitter_buffer_delay == pytest.approx(0.02 * 320)


def test_a_hole_is_concealed_at_its_deadline_and_not_before() -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=60)
    feed(reader, packet(0), packet(2, arrival=0.04))
    assert reader.get_timer() == pytest.approx(0.08)
    assert reader.poll(now=0.0799) == []
    reader.handle_timer(now=0.08)
    frames = reader.poll(now=0.08)
    assert [frame.kind for frame in frames] == [FrameKind.CONCEALED, FrameKind.DECODED]
    assert [frame.position_samples for frame in frames] == [320, 640]
    assert reader.stats.concealed_samples == 320
    assert reader.stats.concealment_events == 1


def test_the_last_lost_frame_comes_from_fec_where_the_next_packet_has_it() -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=60)
    feed(reader, packet(0), packet(3, arrival=0.06, fec=True))
    frames = reader.poll(now=0.12)
    assert [frame.kind for frame in frames] == [FrameKind.CONCEALED, FrameKind.FEC, FrameKind.DECODED]
    assert values(frames) == [CONCEALED_VALUE, 2 + FEC_OFFSET, 3]
    assert sum(len(frame.samples) for frame in frames) == 3 * 320


def test_concealment_past_sixty_milliseconds_is_silence_and_keeps_the_sample_count() -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=60)
    feed(reader, packet(0), packet(11, arrival=0.22))
    assert reader.get_timer() == pytest.approx(0.23)
    frames = reader.poll(now=0.23)
    assert [len(frame.samples) for frame in frames] == [960, 7 * 320, 320]
    assert not frames[1].samples.any()
    assert reader.stats.silent_concealed_samples == 7 * 320


def test_late_and_duplicate_packets_are_told_apart() -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=60)
    feed(reader, packet(0), packet(2))
    reader.poll(now=0.2)
    assert reader.handle_packet(packet(1, arrival=0.21), now=0.21) is InsertResult.LATE
    assert reader.handle_packet(packet(2, arrival=0.21), now=0.21) is InsertResult.DUPLICATE
    assert reader.poll(now=0.21) == []
    assert (reader.stats.packets_late, reader.stats.packets_duplicated, reader.stats.packets_discarded) == (1, 1, 2)


def test_a_pause_of_the_sender_is_comfort_noise_and_not_a_hole() -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=60)
    frames = feed(reader, packet(0), packet(1, arrival=0.42, skip_ticks=400 * 48))
    assert [(frame.kind, len(frame.samples)) for frame in frames] == [
        (FrameKind.DECODED, 320),
        (FrameKind.COMFORT_NOISE, 6400),
        (FrameKind.DECODED, 320),
    ]
    assert reader.stats.concealed_samples == 0


def test_a_jump_of_the_timestamp_without_time_gone_by_is_not_filled() -> None:
    decoder = FakeDecoder()
    reader = ListenReader(decoder)
    frames = feed(reader, packet(0), packet(1, skip_ticks=48_000 * 3))
    assert sum(len(frame.samples) for frame in frames) == 640
    assert reader.stats.restarts == 1
    assert decoder.resets == 2


def test_a_new_source_starts_afresh_after_what_was_held_has_come_out() -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=60)
    feed(reader, packet(0), packet(2))
    frames = feed(reader, packet(7, ssrc=2, arrival=0.05, first_sequence=40_000, first_timestamp=2**31))
    assert values(frames) == [CONCEALED_VALUE, 2, 7]
    assert reader.handle_packet(packet(3), now=0.07) is InsertResult.LATE


def test_one_wild_packet_is_ignored_and_two_in_a_row_are_followed() -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=60)
    feed(reader, packet(0))
    assert reader.handle_packet(packet(5000, arrival=0.02), now=0.02) is InsertResult.OUT_OF_RANGE
    assert values(feed(reader, packet(1))) == [1]
    assert reader.handle_packet(packet(6000, arrival=0.04), now=0.04) is InsertResult.OUT_OF_RANGE
    assert reader.handle_packet(packet(6001, arrival=0.06), now=0.06) is InsertResult.RESTARTED
    assert values(reader.poll(now=0.06)) == [6001]


def test_bad_payload_is_a_return_value() -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=60)
    bad = RtpPacket(sequence_number=0, timestamp=0, payload_type=111, ssrc=1, payload=b"", arrival=0.0)
    assert reader.handle_packet(bad, now=0.0) is InsertResult.INVALID
    frames = feed(reader, packet(0), packet(1, corrupt=True), packet(2))
    assert [frame.kind for frame in frames] == [FrameKind.DECODED, FrameKind.CONCEALED, FrameKind.DECODED]


@pytest.mark.parametrize("ms", [10, 20, 40, 60, 120])
def test_every_packet_duration(ms: int) -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=60)
    frames = feed(reader, packet(0, ms=ms), packet(2, ms=ms, arrival=0.3), packet(1, ms=ms, arrival=0.305))
    assert values(frames) == [0, 1, 2]
    assert sum(len(frame.samples) for frame in frames) == 3 * ms * 16


def test_memory_is_bounded_when_the_deadline_never_comes() -> None:
    reader = ListenReader(FakeDecoder(), hole_deadline_ms=1e9)
    feed(reader, packet(0))
    for i in range(2, 1000):
        reader.handle_packet(packet(i, arrival=0.04), now=0.04)
        assert len(reader._buffer) <= 200
    frames = reader.poll(now=0.04)
    assert sum(len(frame.samples) for frame in frames) == 999 * 320
    assert np.array_equal(frames[0].samples, np.full(320, CONCEALED_VALUE))


class DtxDecoder(FakeDecoder):
    """Takes one byte for a DTX packet of 20 ms, as Opus does."""

    def duration_samples(self, payload: bytes) -> int:
        return 320 if len(payload) == 1 else super().duration_samples(payload)

    def has_fec(self, payload: bytes) -> bool:
        return len(payload) > 1 and super().has_fec(payload)

    def decode(self, payload: bytes) -> Samples:
        return np.zeros(320, np.int16) if len(payload) == 1 else super().decode(payload)


def serve(reader: ListenReader, upto: float) -> list[AudioFrame]:
    frames = []
    while (timer := reader.get_timer()) is not None and timer < upto:
        reader.handle_timer(now=timer)
        frames += reader.poll(now=timer)
    return frames


def dtx(index: int) -> RtpPacket:
    return RtpPacket(index, index * 960, 111, 1, b"\x08", index * 0.02)


def test_an_announced_pause_is_heard_going_by_and_the_sample_count_kept() -> None:
    reader = ListenReader(DtxDecoder(), hole_deadline_ms=60)
    feed(reader, packet(0), dtx(1))
    noise = serve(reader, 0.4)
    assert {frame.kind for frame in noise} == {FrameKind.COMFORT_NOISE}
    assert len(noise) == 12, "each 20 ms once it is 120 ms past due: at 160 ms, 180 ms … 380 ms"
    after = feed(reader, packet(2, skip_ticks=18 * 960, arrival=0.4))
    assert [frame.kind for frame in after] == [FrameKind.COMFORT_NOISE, FrameKind.DECODED]
    assert after[-1].position_samples == 20 * 320
    assert reader.stats.concealed_samples == 0
    assert reader.stats.restarts == 0


def test_a_pause_that_no_packet_ends_is_not_made_up_for_ever() -> None:
    reader = ListenReader(DtxDecoder(), hole_deadline_ms=60)
    feed(reader, packet(0), dtx(1))
    noise = serve(reader, 60.0)
    assert sum(len(frame.samples) for frame in noise) == 8000, "half a second"
    assert reader.get_timer() is None


def test_speech_that_begins_again_too_late_for_its_place_is_late_and_no_new_stream() -> None:
    reader = ListenReader(DtxDecoder(), hole_deadline_ms=60)
    feed(reader, packet(0), dtx(1))
    serve(reader, 0.3)
    assert reader.handle_packet(packet(2, arrival=0.3), now=0.3) is InsertResult.LATE
    after = packet(3, skip_ticks=27 * 960, arrival=0.62)
    reader.handle_packet(after, now=0.62)
    frames = [*reader.poll(now=0.62), *serve(reader, 1.0)]
    assert frames[-1].kind is FrameKind.DECODED
    assert frames[-1].position_samples == 30 * 320
    assert reader.stats.restarts == 0


def test_no_noise_where_no_pause_was_announced() -> None:
    reader = ListenReader(DtxDecoder(), hole_deadline_ms=60)
    feed(reader, packet(0), packet(1))
    assert reader.get_timer() is None
    assert reader.poll(now=5.0) == []
