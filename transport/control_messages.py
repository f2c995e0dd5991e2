"""Messages of the control channel: JSON objects tagged by `type`, version 1.

Datagrams (echoes, reports) may be lost, reordered or repeated on the way; stream messages arrive once and in order, one
JSON object a line, mixed with the conversation events of `transport.messages`. Unknown types and fields are ignored.
Times in `_us` are whole microseconds on the sender's own clock, whose zero means nothing to the other end.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from transport.messages import MAX_MESSAGE_BYTES, CallMessage

PROTOCOL_VERSION = 1
MAX_DATAGRAM_BYTES = 1100
"""A QUIC packet of 1200 bytes less its header, its AEAD tag and WebTransport's session id."""

Counter = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
"""What a double holds exactly, because a browser counts in doubles."""
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=600_000)]
Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
Token = Annotated[str, msgspec.Meta(min_length=16, max_length=64)]
Reason = Annotated[str, msgspec.Meta(max_length=300)]
BurstCounts = Annotated[list[Counter], msgspec.Meta(max_length=16)]


class EchoRequest(msgspec.Struct, frozen=True, kw_only=True, tag="echo.request"):
    """Asks for an echo; `sent_us` is the first of the four timestamps."""

    seq: Counter
    sent_us: Counter


class EchoReply(msgspec.Struct, frozen=True, kw_only=True, tag="echo.reply"):
    """Answers request `seq`: its own timestamp back, when it came and when the answer left (RFC 5905, figure 2)."""

    seq: Counter
    sent_us: Counter
    received_us: Counter
    replied_us: Counter


class ReceiveReport(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """What its sender receives of our media; counts since the call began, so a lost report costs nothing."""

    seq: Counter
    at_us: Counter
    packets_received: Counter = 0
    packets_lost: Counter = 0
    """Expected less received, as W3C's packetsLost: an answer to a request counts as received."""
    network_lost: Counter | None = None
    """Packets that did not come by themselves; null where the receiver, as a browser, cannot tell answers apart."""
    packets_repaired: Counter = 0
    """Of those, given back by FEC, RED or a retransmission."""
    packets_discarded: Counter = 0
    """Arrived but never played."""
    bursts: BurstCounts = []
    """How many losses were 1, 2, 3, … packets long; the last entry counts all that were longer; empty where unknown."""
    jitter_ms: Milliseconds = 0.0
    """Interarrival jitter of RFC 3550, 6.4.1."""
    spread_ms: Milliseconds = 0.0
    """The 95th percentile of how much later than the fastest recent packet the others came; 0 where unknown."""
    samples_concealed: Counter = 0
    samples_total: Counter = 0
    target_ms: Milliseconds = 0.0
    """What the buffer aims at now."""
    level_ms: Milliseconds = 0.0
    """What the buffer holds, or the mean delay of what it gave out, over the time since the last report."""
    rtt_p50_ms: Milliseconds | None = None
    """The sender's own echo statistics."""
    rtt_p90_ms: Milliseconds | None = None
    repair: Annotated[str, msgspec.Meta(max_length=40)] = "none"
    """The repair chosen for what it receives, such as `none`, `fec+nack`, `red(1,)+nack`."""
    repair_sent: Annotated[str, msgspec.Meta(max_length=40)] = "none"
    """The repair it sends with."""
    red_offsets: Annotated[list[Annotated[int, msgspec.Meta(ge=1, le=9)]], msgspec.Meta(max_length=9)] = []
    """Which earlier packets it could send copies of when asked to: a browser's RED knows only the packet before."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="control.hello"):
    """The first line of a client on raw QUIC: which version it speaks and its one-time token."""

    version: Counter
    token: Token


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag="control.accepted"):
    """The server's first line: the channel is open; `next_token` opens the channel after this one."""

    version: Counter
    call_id: Annotated[str, msgspec.Meta(max_length=64)]
    next_token: Token
    token_ttl_ms: Milliseconds = 0.0


class NextToken(msgspec.Struct, frozen=True, kw_only=True, tag="control.token"):
    """A fresh token that takes the place of the one before, sent before that one expires."""

    next_token: Token
    token_ttl_ms: Milliseconds = 0.0


class ReceiverTarget(msgspec.Struct, frozen=True, kw_only=True, tag="receiver.target"):
    """Asks its receiver to set its `jitterBufferTarget`; null gives it back to the receiver's own judgement."""

    target_ms: Annotated[float, msgspec.Meta(ge=0, le=4000)] | None
    reason: Reason = ""


class SenderRepair(msgspec.Struct, frozen=True, kw_only=True, tag="sender.repair"):
    """Asks the receiver of this message how to protect the media it sends; what it cannot do it leaves."""

    red_offsets: Annotated[list[Annotated[int, msgspec.Meta(ge=1, le=9)]], msgspec.Meta(max_length=4)] = []
    """Which earlier packets ride along as RFC 2198 copies: 1 is the packet before."""
    fec: bool = False
    expected_loss_pct: Percent = 0.0
    bitrate_bps: Annotated[int, msgspec.Meta(ge=6_000, le=128_000)] | None = None
    reason: Reason = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True, tag="control.decision"):
    """One output of the controller changed, and why; for people and plots."""

    at_ms: Annotated[float, msgspec.Meta(ge=0)]
    """Since the call began, on the sender's clock."""
    output: Annotated[str, msgspec.Meta(max_length=40)]
    before: Annotated[str, msgspec.Meta(max_length=80)]
    after: Annotated[str, msgspec.Meta(max_length=80)]
    reason: Reason = ""


DatagramMessage = EchoRequest | EchoReply | ReceiveReport
StreamMessage = Hello | Accepted | NextToken | ReceiverTarget | SenderRepair | Decision
ControlMessage = DatagramMessage | StreamMessage
CarrierKind = Literal["quic", "webtransport", "data_channel"]
"""What carries the control messages; on the data channel datagrams and lines are text messages alike."""

_ENCODER = msgspec.json.Encoder()
_DATAGRAM_DECODER: msgspec.json.Decoder[DatagramMessage] = msgspec.json.Decoder(DatagramMessage)
_LINE_DECODER: msgspec.json.Decoder[StreamMessage | CallMessage] = msgspec.json.Decoder(StreamMessage | CallMessage)


def encode(message: ControlMessage | CallMessage) -> bytes:
    """Return `message` as one JSON object without a line feed."""
    return _ENCODER.encode(message)


def decode_datagram(data: bytes | str) -> DatagramMessage | None:
    """Return the message in a datagram, or None for an unknown, malformed or oversized one."""
    if len(data) > MAX_DATAGRAM_BYTES:
        return None
    try:
        return _DATAGRAM_DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def is_control_text(text: str) -> bool:
    """Whether a text message of the data channel belongs to the control channel."""
    return decode_datagram(text) is not None or isinstance(decode_line(text), StreamMessage)


def decode_line(data: bytes | str) -> StreamMessage | CallMessage | None:
    """Return the message in one line of a stream, or None for an unknown, malformed or oversized one."""
    if len(data) > MAX_MESSAGE_BYTES:
        return None
    try:
        return _LINE_DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
