"""Traces: replayed as they were, recorded from captures and calls, and refused with the line that is wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impair.captures import read_capture
from impair.errors import ImpairError, TraceError
from impair.link import Link, transit
from impair.recorder import ArrivalRecorder
from impair.traces import (
    ArrivalTrace,
    DeliveryTrace,
    TraceRow,
    load_profile,
    read_arrivals,
    read_trace,
    write_arrivals,
)

FULL = 1500 - 28


def arrivals_ms(stage: DeliveryTrace | ArrivalTrace, sent_ms: list[float], size: int = FULL) -> list[float | None]:
    out = transit((stage,), [t / 1000 for t in sent_ms], size_bytes=size)
    return [None if at is None else round(at * 1000, 3) for at in out]


def test_packets_leave_at_the_opportunities_one_each_and_the_trace_repeats() -> None:
    trace = DeliveryTrace((10, 10, 25, 40))
    assert arrivals_ms(trace, [0, 0, 0, 0, 0, 0]) == [10, 10, 25, 40, 50, 50]
    assert arrivals_ms(trace, [11, 41, 1000]) == [25, 50, 1000 + 10]


def test_opportunities_that_nobody_used_are_gone() -> None:
    assert arrivals_ms(DeliveryTrace((10, 20, 30)), [25, 25]) == [30, 40]


def test_small_packets_share_an_opportunity_and_a_large_one_may_span_two() -> None:
    trace = DeliveryTrace((10, 20, 30))
    assert arrivals_ms(trace, [0, 0, 0], size=500 - 28) == [10, 10, 10]
    assert arrivals_ms(trace, [0, 0], size=1000 - 28) == [10, 20]


def test_the_queue_of_a_delivery_trace_drops_its_tail() -> None:
    out = arrivals_ms(DeliveryTrace((100,), queue_bytes=4500), [0.0] * 5)
    assert out == [100, 200, 300, None, None]
    out = arrivals_ms(DeliveryTrace((100,), queue_bytes=4500), [0, 0, 0, 101, 102])
    assert out == [100, 200, 300, 400, None]


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=50),
    st.lists(st.tuples(st.floats(0, 500), st.integers(1, 1472)), max_size=60),
)
def test_a_delivery_trace_never_sends_more_than_it_may(gaps: list[int], packets: list[tuple[float, int]]) -> None:
    times = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    if times[-1] == 0:
        return
    link = Link((DeliveryTrace(tuple(times)),), origin=0.0)
    carried: dict[int, int] = {}
    latest = 0.0
    for at_ms, size in sorted(packets):
        fate = link.handle_packet(size, now=at_ms / 1000)
        for delivery in fate.deliveries:
            assert delivery.at >= at_ms / 1000 - 1e-6
            assert delivery.at >= latest
            latest = delivery.at
            carried[round(delivery.at * 1000)] = carried.get(round(delivery.at * 1000), 0) + size + 28
    offered = {t: times.count(t % times[-1] or times[-1]) for t in carried}
    offered = {t: offered[t] + (times.count(0) if t % times[-1] == 0 else 0) for t in carried}
    for t, size in carried.items():
        assert size <= offered[t] * 1500 + 1499  # and what began in the opportunity before


def test_the_nth_packet_of_a_kind_meets_the_nth_row() -> None:
    trace = ArrivalTrace.of([TraceRow(0, 0, 1005), TraceRow(1, 20, None), TraceRow(2, 40, 1040)])
    assert arrivals_ms(trace, [0, 20, 40, 60]) == [5, None, 40, 65]
    link = Link((trace,), origin=0.0)
    assert [bool(link.handle_packet(9, now=0.0, kind=kind).deliveries) for kind in (0, 1, 0, 1)] == [1, 1, 0, 0]


def rtp(seq: int, timestamp: int, ssrc: int = 7, payload_type: int = 111) -> bytes:
    return struct.pack("!BBHII", 0x80, payload_type, seq & 0xFFFF, timestamp & 0xFFFFFFFF, ssrc) + bytes(50)


def stream(delays: list[float | None], *, seq: int = 65530, timestamp: int = 2**32 - 3000) -> list[tuple[float, bytes]]:
    packets = [
        (100 + 0.02 * n + delay / 1000, rtp(seq + n, timestamp + 960 * n))
        for n, delay in enumerate(delays)
        if delay is not None
    ]
    return sorted(packets)


DELAYS: list[float | None] = [10, 12, None, 55, 10, 11, None, None, 30, 10, 10.5]


def test_a_recording_replayed_gives_the_delays_and_losses_that_were() -> None:
    """Wrapping counters, reordering, duplicates and other packets between do not disturb it."""
    recorder = ArrivalRecorder()
    for at, packet in stream(DELAYS):
        assert recorder.handle_packet(packet, now=at)
        recorder.handle_packet(packet, now=at + 5)
        assert not recorder.handle_packet(b"\x00\x01" + bytes(30), now=at)
        assert not recorder.handle_packet(b"\x80\xc8" + bytes(30), now=at)
    rows = read_arrivals(write_arrivals(recorder.rows()), name="x")
    assert [round(row.sent_ms) for row in rows] == [20 * n for n in range(11)]
    got = [None if row.arrival_ms is None else round(row.arrival_ms - row.sent_ms, 3) for row in rows]
    assert got == [None if delay is None else delay - 10 for delay in DELAYS]
    again = arrivals_ms(ArrivalTrace.of(rows), [20.0 * n for n in range(11)])
    assert again == [None if d is None else 20.0 * n + d - 10 for n, d in enumerate(DELAYS)]


def ipv4(payload: bytes) -> bytes:
    udp = struct.pack("!HHHH", 5000, 6000, 8 + len(payload), 0) + payload
    return struct.pack("!BBHHHBBHII", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, 1, 2) + udp


def ipv6(payload: bytes) -> bytes:
    udp = struct.pack("!HHHH", 5000, 6000, 8 + len(payload), 0) + payload
    return struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + bytes(32) + udp


LINKS = {
    1: lambda ip: bytes(12) + (b"\x08\x00" if ip[0] >> 4 == 4 else b"\x86\xdd") + ip,
    0: lambda ip: b"\x02\0\0\0" + ip,
    101: lambda ip: ip,
    113: lambda ip: bytes(16) + ip,
    276: lambda ip: bytes(20) + ip,
}


def pcap(packets: list[tuple[float, bytes]], *, order: str = "<", link: int = 1, ip=ipv4) -> bytes:  # type: ignore[no-untyped-def]
    out = struct.pack(order + "IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    for at, packet in packets:
        frame = LINKS[link](ip(packet))
        out += struct.pack(order + "IIII", int(at), round(at % 1 * 1e6), len(frame), len(frame)) + frame
    return out


def pcapng(packets: list[tuple[float, bytes]]) -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return struct.pack("<II", kind, 12 + len(body)) + body + struct.pack("<I", 12 + len(body))

    out = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    out += block(1, struct.pack("<HHI", 1, 0, 0) + struct.pack("<HHB3x", 9, 1, 9) + struct.pack("<HH", 0, 0))
    for at, packet in packets:
        frame = LINKS[1](ipv4(packet))
        ticks = round(at * 1e9)
        head = struct.pack("<IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
        out += block(6, head + frame)
    return out


@pytest.mark.parametrize(
    "capture",
    [
        pcap(stream(DELAYS)),
        pcap(stream(DELAYS), order=">", ip=ipv6),
        *(pcap(stream(DELAYS), link=link) for link in (0, 101, 113, 276)),
        pcapng(stream(DELAYS)),
    ],
)
def test_captures_of_every_kind_give_the_same_trace(capture: bytes) -> None:
    recorder = ArrivalRecorder()
    for packet in read_capture(capture):
        assert (packet.source_port, packet.destination_port) == (5000, 6000)
        recorder.handle_packet(packet.payload, now=packet.at)
    rows = recorder.rows()
    got = [None if row.arrival_ms is None else round(row.arrival_ms - row.sent_ms, 2) for row in rows]
    assert got == [None if delay is None else delay - 10 for delay in DELAYS]


@given(st.binary(max_size=300), st.sampled_from([pcap(stream(DELAYS)), pcapng(stream(DELAYS))]), st.integers(0, 400))
def test_a_damaged_capture_is_read_as_far_as_it_goes(noise: bytes, good: bytes, cut: int) -> None:
    damaged = good[:cut] + noise + good[cut + len(noise) :]
    try:
        for packet in read_capture(damaged):
            ArrivalRecorder().handle_packet(packet.payload, now=packet.at)
    except TraceError:
        pass


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1\n2\nx\n", "line 3: 'x' is not a whole number"),
        ("5\n3\n", "line 2: 3 ms comes before 5 ms"),
        ("0\n0\n", "no time above 0 ms"),
        ("", "is empty"),
        ("seq,sent_ms,arrival_ms\n", "has no packets"),
        ("seq,sent_ms,arrival_ms\n0,0,\n", "at least one packet that arrived"),
        ("seq,sent_ms,arrival_ms\n0,zero,1\n", "line 2"),
        ("seq,arrival_ms\n0,1\n", "needs the columns"),
    ],
)
def test_a_bad_trace_is_named_with_its_line(text: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        read_trace(text, name="t")


def test_profiles_from_files(tmp_path: Path) -> None:
    up, down = tmp_path / "a.up", tmp_path / "b.csv"
    up.write_text("5\n10\n")
    down.write_text(write_arrivals([TraceRow(0, 0, 3), TraceRow(1, 20, None)]))
    profile = load_profile(f"trace:{up},{down}")
    assert profile.up == (DeliveryTrace((5, 10)),)
    assert profile.down[-1] == ArrivalTrace((0.0, None))
    assert load_profile(f"trace:{up}").down == profile.up
    assert load_profile("loss5").name == "loss5"
    for name in ("trace:", "trace:a,b,c", f"trace:{tmp_path}/none", f"trace:{tmp_path}", "nothing"):
        with pytest.raises(ImpairError):
            load_profile(name)
