"""The control protocol between two pure ends, and against hostile input."""

from __future__ import annotations

import itertools
import json
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transport import control_messages as wire
from transport.control import (
    FLOOD_DROPS,
    ChannelViolated,
    ControlChannel,
    ControlEvent,
    MessageReceived,
    ReportReceived,
)
from transport.control_messages import Decision, ReceiveReport, ReceiverTarget, SenderRepair, StreamMessage
from transport.messages import MAX_MESSAGE_BYTES, CallMessage, CallState


def _events(channel: ControlChannel) -> list[ControlEvent]:
    events = []
    while (event := channel.next_event()) is not None:
        events.append(event)
    return events


class _Pair:
    """Two channels with a one-way delay between them; the second's clock is `offset_s` ahead, as two machines' are."""

    def __init__(self, *, delay_s: float, offset_s: float = 0.0, loss: float = 0.0, seed: int = 1) -> None:
        self.delay_s = delay_s
        self.offset_s = offset_s
        self.loss = loss
        self.random = random.Random(seed)
        self.left = ControlChannel(now=0.0, make_report=lambda _: ReceiveReport(seq=0, at_us=0, packets_received=7))
        self.right = ControlChannel(now=offset_s)
        self.flying: list[tuple[float, int, ControlChannel, float, bytes]] = []
        self.sent: list[bytes] = []
        self.now = 0.0

    def run(self, until: float) -> None:
        while self.now < until:
            for sender, receiver, sender_offset, receiver_offset in (
                (self.left, self.right, 0.0, self.offset_s),
                (self.right, self.left, self.offset_s, 0.0),
            ):
                sender.handle_timer(now=self.now + sender_offset)
                for datagram in sender.datagrams_to_send(now=self.now + sender_offset):
                    self.sent.append(datagram)
                    if self.random.random() >= self.loss:
                        entry = (self.now + self.delay_s, len(self.sent), receiver, receiver_offset, datagram)
                        self.flying.append(entry)
            arrived = [entry for entry in self.flying if entry[0] <= self.now]
            self.flying = [entry for entry in self.flying if entry[0] > self.now]
            for at, _, receiver, offset, datagram in arrived:
                receiver.handle_datagram(datagram, now=at + offset)
            self.now += 0.001


def test_both_ends_learn_the_round_trip_and_each_others_clock() -> None:
    pair = _Pair(delay_s=0.030, offset_s=1000.0)
    pair.run(3.0)
    left, right = pair.left.statistics(now=3.0), pair.right.statistics(now=1003.0)
    for statistics in (left, right):
        assert statistics.p50_ms == pytest.approx(60.0, abs=1.5)
        assert statistics.p90_ms == pytest.approx(60.0, abs=1.5)
    assert left.clock_offset_ms == pytest.approx(1_000_000, abs=2)
    assert right.clock_offset_ms == pytest.approx(-1_000_000, abs=2)


def test_echoes_go_at_10_hz_and_reports_at_5_hz_in_small_datagrams() -> None:
    pair = _Pair(delay_s=0.010)
    pair.run(5.0)
    kinds = [json.loads(datagram)["type"] for datagram in pair.sent]
    assert kinds.count("echo.request") == pytest.approx(100, abs=4)
    assert kinds.count("echo.reply") == pytest.approx(100, abs=4)
    assert kinds.count("report") == pytest.approx(25, abs=2)
    assert max(map(len, pair.sent)) < 400
    reports = [event.report.seq for event in _events(pair.right) if isinstance(event, ReportReceived)]
    assert reports == list(range(len(reports)))


def _report_times(channel: ControlChannel, *, until: float, hurry_from: float, every_s: float) -> list[float]:
    """Return when reports leave a channel that is told of news from a time on."""
    times = []
    for step in range(round(until / 0.01)):
        now = step * 0.01
        if now >= hurry_from and step % round(every_s / 0.01) == 0:
            channel.hurry_report(now=now)
        channel.handle_timer(now=now)
        kinds = [json.loads(datagram)["type"] for datagram in channel.datagrams_to_send(now=now)]
        times += [now] * kinds.count("report")
    return times


def test_news_are_reported_at_once_but_never_more_than_twenty_times_a_second() -> None:
    channel = ControlChannel(now=0.0, make_report=lambda _: ReceiveReport(seq=0, at_us=0, packets_received=7))
    times = _report_times(channel, until=3.0, hurry_from=2.04, every_s=0.06)
    assert min(at for at in times if at >= 2.04) <= 2.05
    assert min(b - a for a, b in itertools.pairwise(times)) >= 0.05 - 1e-9
    assert len([at for at in times if 2.04 <= at < 2.4]) >= 4


def test_lasting_news_cost_one_report_a_second_more() -> None:
    channel = ControlChannel(now=0.0, make_report=lambda _: ReceiveReport(seq=0, at_us=0, packets_received=7))
    times = _report_times(channel, until=22.0, hurry_from=2.0, every_s=0.02)
    assert len(times) <= 22 * 5 + 20 + 5 + 2


def test_the_largest_report_fits_in_a_datagram() -> None:
    big = 2**53 - 1
    report = ReceiveReport(
        seq=big, at_us=big, packets_received=big, packets_lost=big, packets_repaired=big, packets_discarded=big,
        bursts=[big] * 16, jitter_ms=12345.678901234567, spread_ms=12345.678901234567, samples_concealed=big,
        samples_total=big, target_ms=12345.678901234567, level_ms=12345.678901234567, rtt_p50_ms=12345.678901234567,
        rtt_p90_ms=12345.678901234567, repair="x" * 40,
    )  # fmt: skip
    assert len(wire.encode(report)) <= wire.MAX_DATAGRAM_BYTES
    assert wire.decode_datagram(wire.encode(report)) == report


def test_loss_of_echoes_is_counted_and_does_not_bend_the_round_trip() -> None:
    pair = _Pair(delay_s=0.020, loss=0.2, seed=4)
    pair.run(20.0)
    statistics = pair.left.statistics(now=20.0)
    assert statistics.p90_ms == pytest.approx(40.0, abs=1.5)
    assert 5 < statistics.echo_loss_pct < 70


def test_a_replayed_reply_and_an_invented_one_change_nothing() -> None:
    pair = _Pair(delay_s=0.010)
    pair.run(2.0)
    before = pair.left.statistics(now=2.0)
    replies = [datagram for datagram in pair.sent if b"echo.reply" in datagram]
    for datagram in replies[:20]:
        pair.left.handle_datagram(datagram, now=5.0)
    pair.left.handle_datagram(wire.encode(wire.EchoReply(seq=9999, sent_us=0, received_us=0, replied_us=0)), now=5.0)
    after = pair.left.statistics(now=2.0)
    assert after == before
    assert pair.left.counters.stale >= 21


def test_reordered_reports_never_go_back() -> None:
    channel = ControlChannel(now=0.0)
    for seq in (3, 1, 4, 4, 2, 5):
        channel.handle_datagram(wire.encode(ReceiveReport(seq=seq, at_us=seq)), now=0.0)
    assert [event.report.seq for event in _events(channel) if isinstance(event, ReportReceived)] == [3, 4, 5]
    assert channel.counters.stale == 3


def test_truncated_and_oversized_datagrams_are_counted_and_dropped() -> None:
    report = wire.encode(ReceiveReport(seq=3, at_us=3, red_offsets=[1, 4]))
    channel = ControlChannel(now=0.0)
    for length in range(len(report)):
        channel.handle_datagram(report[:length], now=length / 10)
    channel.handle_datagram(report[:-1] + b" " * wire.MAX_DATAGRAM_BYTES + b"}", now=100.0)
    assert list(_events(channel)) == []
    assert channel.counters.malformed == len(report) + 1
    channel.handle_datagram(report, now=101.0)
    assert [event.report.seq for event in _events(channel) if isinstance(event, ReportReceived)] == [3]


@pytest.mark.parametrize("offsets", [[0], [10], [1] * 10, [1.5], "1", [-1]])
def test_offsets_that_no_copy_can_have_make_a_report_malformed(offsets: object) -> None:
    data = json.dumps({"type": "report", "seq": 1, "at_us": 1, "red_offsets": offsets}).encode()
    assert wire.decode_datagram(data) is None


def test_lines_come_through_in_any_pieces() -> None:
    sender, receiver = ControlChannel(now=0.0), ControlChannel(now=0.0)
    sent: list[StreamMessage | CallMessage] = [
        ReceiverTarget(target_ms=120.0, reason="RTT"),
        SenderRepair(red_offsets=[1, 2], fec=True, expected_loss_pct=5.0),
        Decision(at_ms=1.0, output="red", before="", after="1", reason="loss 5 %"),
        CallState(state="listening"),
    ]
    for message in sent:
        sender.send(message)
    data = sender.stream_data_to_send()
    for index in range(len(data)):
        receiver.handle_stream_data(data[index : index + 1], now=0.0)
    assert [event.message for event in _events(receiver) if isinstance(event, MessageReceived)] == sent
    assert sender.stream_data_to_send() == b""


def test_unknown_types_and_fields_are_ignored() -> None:
    channel = ControlChannel(now=0.0)
    channel.handle_stream_data(b'{"type":"from.the.future","x":1}\n', now=0.0)
    channel.handle_stream_data(b'{"type":"control.token","next_token":"0123456789abcdef","colour":"red"}\n', now=0.0)
    channel.handle_datagram(b'{"type":"report","seq":1,"at_us":1,"mood":[1,2]}', now=0.0)
    assert len(_events(channel)) == 2
    assert channel.counters.malformed == 1


def test_a_line_without_end_closes_the_channel() -> None:
    channel = ControlChannel(now=0.0)
    for _ in range(20):
        channel.handle_stream_data(b"x" * 1000, now=0.0)
    assert _events(channel) == [ChannelViolated(code="line_too_long")]
    channel.handle_stream_data(b"x" * (MAX_MESSAGE_BYTES + 1) + b"\n", now=0.0)
    assert _events(channel) == []


def test_a_flood_is_cut_to_the_rate_and_then_closes_the_channel() -> None:
    channel = ControlChannel(now=0.0)
    for seq in range(1000):
        channel.handle_datagram(wire.encode(wire.EchoRequest(seq=seq, sent_us=0)), now=seq / 1000)
    assert len(channel.datagrams_to_send(now=1.0)) <= 64
    assert channel.counters.over_rate == pytest.approx(1000 - 120 - 60, abs=2)
    for seq in range(1000, 1000 + FLOOD_DROPS):
        channel.handle_datagram(wire.encode(wire.EchoRequest(seq=seq, sent_us=0)), now=1.0)
    assert _events(channel) == [ChannelViolated(code="flood")]


def test_an_honest_peer_whose_datagrams_come_bunched_is_not_cut() -> None:
    channel = ControlChannel(now=0.0)
    for second in range(60):
        for index in range(30):
            datagram = wire.encode(wire.EchoRequest(seq=second * 30 + index, sent_us=0))
            channel.handle_datagram(datagram, now=float(second))
        channel.datagrams_to_send(now=float(second))
    assert channel.counters.over_rate == 0


def test_after_a_stall_one_echo_goes_out_not_all_that_were_missed() -> None:
    channel = ControlChannel(now=0.0)
    channel.handle_timer(now=0.0)
    channel.datagrams_to_send(now=0.0)
    channel.handle_timer(now=10.0)
    channel.handle_timer(now=10.001)
    assert len(channel.datagrams_to_send(now=10.001)) == 1
    assert channel.get_timer() > 10.001


def test_a_moved_path_forgets_the_round_trip() -> None:
    pair = _Pair(delay_s=0.100)
    pair.run(2.0)
    pair.left.handle_path_changed()
    assert pair.left.statistics(now=2.0).p50_ms is None
    pair.delay_s = 0.010
    pair.flying.clear()
    pair.run(3.0)
    assert pair.left.statistics(now=3.0).p90_ms == pytest.approx(20.0, abs=1.5)


def test_the_data_channel_carries_both_kinds_as_text() -> None:
    channel = ControlChannel(now=0.0)
    assert channel.handle_text('{"type":"report","seq":0,"at_us":0}', now=0.0)
    assert channel.handle_text('{"type":"receiver.target","target_ms":80}', now=0.0)
    assert not channel.handle_text('{"type":"something.else"}', now=0.0)
    assert [type(event) for event in _events(channel)] == [ReportReceived, MessageReceived]


@settings(max_examples=400, deadline=None)
@given(data=st.binary(max_size=1500))
def test_no_bytes_raise(data: bytes) -> None:
    channel = ControlChannel(now=0.0)
    channel.handle_datagram(data, now=0.0)
    channel.handle_stream_data(data, now=0.0)
    channel.handle_stream_data(b"\n", now=0.0)
    channel.handle_text(data.decode(errors="replace"), now=0.0)
    assert all(isinstance(event, MessageReceived | ReportReceived) for event in _events(channel))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
_TYPES = ["echo.request", "echo.reply", "report", "control.hello", "receiver.target", "sender.repair", "call.state"]
_FIELDS = [
    "seq",
    "sent_us",
    "received_us",
    "replied_us",
    "at_us",
    "bursts",
    "target_ms",
    "version",
    "token",
    "fec",
    "red_offsets",
]


@settings(max_examples=400, deadline=None)
@given(kind=st.sampled_from(_TYPES), fields=st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=6))
def test_no_values_in_known_types_raise_or_reach_the_estimator(kind: str, fields: dict[str, object]) -> None:
    channel = ControlChannel(now=0.0)
    channel.handle_timer(now=0.0)
    channel.datagrams_to_send(now=0.0)
    data = json.dumps({"type": kind, **fields}).encode()
    channel.handle_datagram(data, now=0.5)
    channel.handle_stream_data(data + b"\n", now=0.5)
    channel.datagrams_to_send(now=0.5)
    rtt = channel.statistics(now=0.5).latest_ms
    assert rtt is None or 0 <= rtt <= 500


def test_mutated_messages_decode_within_bounds_or_not_at_all() -> None:
    """Mutations of real messages, because random bytes seldom get past the first brace."""
    source = random.Random(7)
    seeds = [
        wire.encode(message)
        for message in (
            wire.EchoRequest(seq=5, sent_us=12),
            wire.EchoReply(seq=0, sent_us=0, received_us=10, replied_us=11),
            ReceiveReport(seq=3, at_us=9, bursts=[1, 2, 3], jitter_ms=1.5),
        )
    ]
    decoded = 0
    for _ in range(60_000):
        data = bytearray(source.choice(seeds))
        for _ in range(source.randint(1, 3)):
            data[source.randrange(len(data))] = source.randrange(256)
        message = wire.decode_datagram(bytes(data[: source.randint(1, len(data))] if source.random() < 0.3 else data))
        decoded += message is not None
        if message is not None:
            for field in msgspec.structs.fields(message):
                value = getattr(message, field.name)
                assert not isinstance(value, int) or 0 <= value < 2**53
    assert 0 < decoded < 60_000
