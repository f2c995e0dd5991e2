"""The control protocol, pure: what both ends of a control channel do, whatever carries it.

A carrier moves bytes: `handle_datagram` and `handle_stream_data` in, `datagrams_to_send` and `stream_data_to_send`
out, `get_timer` and `handle_timer` between. What the peer said comes out of `next_event`. Both ends echo and report
alike; who may open a channel is the carrier's business (see `transport.control_tokens`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from transport import control_messages as wire
from transport.control_messages import (
    DatagramMessage,
    EchoReply,
    EchoRequest,
    ReceiveReport,
    StreamMessage,
    decode_datagram,
    decode_line,
)
from transport.messages import MAX_MESSAGE_BYTES, CallMessage
from transport.rtt import EchoEstimator, RttStatistics

ECHO_INTERVAL_S = 0.1
REPORT_INTERVAL_S = 0.2
NEWS_GAP_S = 0.05
NEWS_PER_S, NEWS_BURST = 1.0, 5.0
"""A beginning of loss is reported at once; a lasting one costs one report a second more."""
ECHO_TIMEOUT_S = 3.0
MAX_OPEN_ECHOES = 64
DATAGRAMS_PER_S = 60.0
"""Twice what an honest peer sends (ten requests, ten answers, five reports), and some for bunching on the way."""
LINES_PER_S = 60.0
BURST = 120.0
FLOOD_DROPS = 2000
"""So many messages over the rate, and the peer is not in haste but hostile: the channel is closed."""
MAX_EVENTS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReceived:
    """The peer's newest view of the media we send."""

    report: ReceiveReport


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """A command or a conversation event came on the reliable stream."""

    message: StreamMessage | CallMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelViolated:
    """The peer broke the protocol and the carrier must close; `code` is for our log, never for the peer."""

    code: str


ControlEvent = ReportReceived | MessageReceived | ChannelViolated


@dataclass(slots=True, kw_only=True)
class ChannelCounters:
    """What was dropped and why, since the channel opened."""

    malformed: int = 0
    stale: int = 0
    over_rate: int = 0


class TokenBucket:
    """Lets `rate_per_s` messages through in the long run, `burst` at once."""

    def __init__(self, *, rate_per_s: float, burst: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._level = burst
        self._filled_at: float | None = None

    def take(self, *, now: float) -> bool:
        """Take one message's worth if there is any."""
        if self._filled_at is not None:
            self._level = min(self._burst, self._level + (now - self._filled_at) * self._rate_per_s)
        self._filled_at = now
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True


class ControlChannel:
    """One end of a control channel, from its opening to its close; a reopened channel is a new object."""

    def __init__(self, *, now: float, make_report: Callable[[float], ReceiveReport | None] | None = None) -> None:
        """`make_report(now)` says what we receive of the peer's media, None while there is none; `seq` is set here."""
        self.estimator = EchoEstimator()
        self.counters = ChannelCounters()
        self._make_report = make_report
        self._echo_at = now
        self._report_at = now + REPORT_INTERVAL_S / 2
        self._reported_at = float("-inf")
        self._news_bucket = TokenBucket(rate_per_s=NEWS_PER_S, burst=NEWS_BURST)
        self._echo_seq = 0
        self._report_seq = 0
        self._open_echoes: OrderedDict[int, float] = OrderedDict()
        self._highest_request: int = -1
        self._highest_report: int = -1
        self._datagram_bucket = TokenBucket(rate_per_s=DATAGRAMS_PER_S, burst=BURST)
        self._line_bucket = TokenBucket(rate_per_s=LINES_PER_S, burst=BURST)
        self._events: deque[ControlEvent] = deque()
        self._datagrams: deque[DatagramMessage] = deque(maxlen=MAX_OPEN_ECHOES)
        self._stream_out = bytearray()
        self._line = bytearray()
        self._violated = False

    def send(self, message: StreamMessage | CallMessage) -> None:
        """Queue a message for the reliable stream."""
        self._stream_out += wire.encode(message) + b"\n"

    def statistics(self, *, now: float) -> RttStatistics:
        """Return the round trip's statistics at `now`."""
        return self.estimator.statistics(now=now)

    def handle_datagram(self, data: bytes | str, *, now: float) -> None:
        """Take in one datagram; whatever it holds, nothing is raised."""
        if not self._allow(self._datagram_bucket, now):
            return
        self._handle_datagram(decode_datagram(data), now)

    def handle_stream_data(self, data: bytes, *, now: float) -> None:
        """Take in more of the reliable stream; lines may come in any pieces."""
        start = 0
        while not self._violated and (end := data.find(b"\n", start)) >= 0:
            self._line += data[start:end]
            start = end + 1
            line, self._line = bytes(self._line), bytearray()
            if len(line) > MAX_MESSAGE_BYTES:
                self._violate("line_too_long")
            elif line.strip():
                self._handle_line(line, now)
        if self._violated:
            self._line.clear()
            return
        self._line += data[start:]
        if len(self._line) > MAX_MESSAGE_BYTES:
            self._violate("line_too_long")

    def handle_text(self, text: str, *, now: float) -> bool:
        """Take in a data channel's text message, datagram or line; False where it is neither."""
        datagram = decode_datagram(text)
        line = None if datagram else decode_line(text)
        if datagram is not None and self._allow(self._datagram_bucket, now):
            self._handle_datagram(datagram, now)
        elif line is not None and self._allow(self._line_bucket, now):
            self._emit(MessageReceived(message=line))
        return datagram is not None or line is not None

    def handle_path_changed(self) -> None:
        """Forget the round trip: the peer's address moved, and with it the route."""
        self.estimator.reset()
        self._open_echoes.clear()

    def next_event(self) -> ControlEvent | None:
        """Return what came from the peer, oldest first, or None."""
        return self._events.popleft() if self._events else None

    def datagrams_to_send(self, *, now: float) -> list[bytes]:
        """Return the datagrams to send at once; replies are stamped here, when they leave."""
        datagrams = []
        while self._datagrams:
            message = self._datagrams.popleft()
            if isinstance(message, EchoReply):
                message = msgspec.structs.replace(message, replied_us=to_us(now))
            elif isinstance(message, EchoRequest):
                self._open_echoes[message.seq] = now
                message = msgspec.structs.replace(message, sent_us=to_us(now))
            datagrams.append(wire.encode(message))
        return datagrams

    def stream_data_to_send(self) -> bytes:
        """Return and forget what is queued for the reliable stream."""
        data = bytes(self._stream_out)
        self._stream_out.clear()
        return data

    def get_timer(self) -> float:
        """Return when `handle_timer` wants to be called next."""
        return min(self._echo_at, self._report_at)

    def hurry_report(self, *, now: float) -> None:
        """Make the next report due at once, for the peer should act on it; few in a row are worth it."""
        if self._news_bucket.take(now=now):
            self._report_at = min(self._report_at, max(now, self._reported_at + NEWS_GAP_S))

    def handle_timer(self, *, now: float) -> None:
        """Queue the echo and the report that are due; what a stalled loop missed is not made up for."""
        if now >= self._echo_at:
            self._echo_at = _next_time(self._echo_at, ECHO_INTERVAL_S, now)
            self._datagrams.append(EchoRequest(seq=self._echo_seq, sent_us=to_us(now)))
            self._echo_seq += 1
            self._expire_echoes(now)
        if now >= self._report_at:
            self._report_at = _next_time(self._report_at, REPORT_INTERVAL_S, now)
            self._reported_at = now
            report = self._make_report(now) if self._make_report else None
            if report is not None:
                self._datagrams.append(msgspec.structs.replace(report, seq=self._report_seq, at_us=to_us(now)))
                self._report_seq += 1

    def _handle_datagram(self, message: DatagramMessage | None, now: float) -> None:
        if message is None:
            self.counters.malformed += 1
        elif isinstance(message, EchoRequest):
            self._handle_request(message, now)
        elif isinstance(message, EchoReply):
            self._handle_reply(message, now)
        elif message.seq <= self._highest_report:
            self.counters.stale += 1
        else:
            self._highest_report = message.seq
            self._emit(ReportReceived(report=message))

    def _handle_request(self, request: EchoRequest, now: float) -> None:
        if request.seq <= self._highest_request:
            self.counters.stale += 1
            return
        self._highest_request = request.seq
        received_us = to_us(now)
        reply = EchoReply(seq=request.seq, sent_us=request.sent_us, received_us=received_us, replied_us=received_us)
        self._datagrams.append(reply)

    def _handle_reply(self, reply: EchoReply, now: float) -> None:
        """Only an open request of ours can be answered, once, and only our own stamp of it counts."""
        sent_at = self._open_echoes.pop(reply.seq, None)
        if sent_at is None or not self.estimator.handle_echo(
            sent_at=sent_at,
            remote_received_at=reply.received_us / 1e6,
            remote_replied_at=reply.replied_us / 1e6,
            received_at=now,
        ):
            self.counters.stale += 1

    def _expire_echoes(self, now: float) -> None:
        while self._open_echoes:
            seq, sent_at = next(iter(self._open_echoes.items()))
            if sent_at > now - ECHO_TIMEOUT_S and len(self._open_echoes) <= MAX_OPEN_ECHOES:
                break
            del self._open_echoes[seq]
            self.estimator.handle_lost(sent_at=sent_at)

    def _handle_line(self, line: bytes, now: float) -> None:
        if not self._allow(self._line_bucket, now):
            return
        message = decode_line(line)
        if message is None:
            self.counters.malformed += 1
        else:
            self._emit(MessageReceived(message=message))

    def _allow(self, bucket: TokenBucket, now: float) -> bool:
        if self._violated:
            return False
        if bucket.take(now=now):
            return True
        self.counters.over_rate += 1
        if self.counters.over_rate > FLOOD_DROPS:
            self._violate("flood")
        return False

    def _emit(self, event: ControlEvent) -> None:
        if len(self._events) < MAX_EVENTS:
            self._events.append(event)

    def _violate(self, code: str) -> None:
        if not self._violated:
            self._violated = True
            self._events.append(ChannelViolated(code=code))


def _next_time(due_at: float, interval_s: float, now: float) -> float:
    return due_at + interval_s if due_at + interval_s > now else now + interval_s


def to_us(now: float) -> int:
    """Return seconds as the wire's whole microseconds, never negative."""
    return max(0, round(now * 1e6))
