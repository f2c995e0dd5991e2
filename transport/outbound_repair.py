"""Protects what we send: copies of earlier frames in each packet (RED, RFC 2198), and answers to NACKs (RFC 4585).

aiortc's sender answers every request at once, however often it comes, from the last 128 packets. Here an answer is sent
only if it can still be of use: the packet is young enough, no answer is already on its way, and no copy of it has come
with a later packet that the same peer does not miss. Names private to aiortc are held by tests/unit/test_canaries.py.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aiortc import RTCRtpSender
from aiortc.rtp import RTCP_RTPFB_NACK, RtcpRtpfbPacket

from jitter.red import build_red
from transport.opus import OpusEncoder
from transport.outbound_stream import OutboundStream

HISTORY_PACKETS = 128
"""As aiortc's own history, which holds the packets themselves: 2.56 s."""
MAX_OFFSET = 9
COPY_BITRATE_BPS = 16_000
"""RFC 2198 means copies to be cheaper than the frame itself; at 16 kb/s Opus is still wide band."""
RTP_HEADER_BYTES = 12
REPEAT_WINDOW_S = 1.0
"""Requests this old say nothing about what the peer still misses."""


@dataclass(slots=True, kw_only=True)
class RepairCounters:
    """What repair has cost since the call began; bytes are RTP payload."""

    packets: int = 0
    media_bytes: int = 0
    """Payload of the frames themselves."""
    copy_bytes: int = 0
    """Copies with their headers."""
    requests: int = 0
    """RTCP messages that asked for packets."""
    packets_requested: int = 0
    """Packets they asked for, repeats included."""
    packets_resent: int = 0
    resent_bytes: int = 0
    """Payload sent again, with its RTP header."""


@dataclass(slots=True, kw_only=True)
class _Sent:
    at: float
    offsets: tuple[int, ...]
    size_bytes: int
    resent_at: float | None = None
    requested_at: float | None = None


class OutboundRepair:
    """Sits between aiortc's sender and its transport; `clock()` returns `loop.time()` seconds."""

    def __init__(self, sender: RTCRtpSender, *, clock: Callable[[], float], stream: OutboundStream) -> None:
        self.counters = RepairCounters()
        self.red_offsets: tuple[int, ...] = ()
        """Which earlier packets ride along; used only where the peer takes audio/red."""
        self.answer_within_s = 0.4
        self.answer_gap_s = 0.02
        self.on_requests: Callable[[list[int], float], None] | None = None
        """Called with the packets (unwrapped numbers, ascending) that are asked for the first time, and now."""
        self._sender: Any = sender
        self._stream = stream
        self._copy: tuple[int, bytes] = (-1, b"")
        self._clock = clock
        self._red_payload_type: int | None = None
        self._opus_payload_type = 0
        self._frames: deque[tuple[int, bytes]] = deque(maxlen=MAX_OFFSET)
        self._sent: OrderedDict[int, _Sent] = OrderedDict()
        self._highest: int | None = None
        self._next_offsets: tuple[int, ...] = ()
        self._next_size_bytes = 0
        self._install()

    @property
    def can_red(self) -> bool:
        """Whether the peer takes audio/red."""
        return self._red_payload_type is not None

    @property
    def packets_resent(self) -> int:
        """How many packets were sent again."""
        return self.counters.packets_resent

    def allow_red(self, payload_type: int) -> None:
        """Take in that the peer takes audio/red as `payload_type`."""
        self._red_payload_type = payload_type

    def set_red_offsets(self, offsets: Iterable[int]) -> None:
        """Send copies of the packets 1 to 9 before each; an empty list sends plain Opus again."""
        self.red_offsets = tuple(sorted({offset for offset in offsets if 1 <= offset <= MAX_OFFSET}))
        if not self.red_offsets or not self.can_red:
            self._stream.copy_encoder = None
        elif self._stream.copy_encoder is None:
            self._stream.copy_encoder = OpusEncoder(
                bitrate_bps=COPY_BITRATE_BPS, min_bitrate_bps=COPY_BITRATE_BPS, fec=False
            )

    def note_copy(self, timestamp: int, copy: bytes) -> None:
        """Take in the lower-rate copy of the frame at `timestamp`, which is about to be protected; may be empty."""
        self._copy = (timestamp, copy)

    def _install(self) -> None:
        sender = self._sender
        next_frame, handle_rtcp = sender._next_encoded_frame, sender._handle_rtcp_packet

        async def protect(codec: Any) -> Any:
            if not self._opus_payload_type:
                self._opus_payload_type = codec.payloadType
                self._watch_transport()
            frame = await next_frame(codec)
            if frame is not None:
                codec.payloadType = self._protect(frame)
            return frame

        async def filter_requests(packet: Any) -> None:
            if isinstance(packet, RtcpRtpfbPacket) and packet.fmt == RTCP_RTPFB_NACK:
                if packet.media_ssrc == sender._ssrc:
                    await self._handle_request(packet.lost)
                return
            await handle_rtcp(packet)

        sender._next_encoded_frame = protect
        sender._handle_rtcp_packet = filter_requests

    def _watch_transport(self) -> None:
        """Note when each packet leaves, under the number that aiortc gave it."""
        transport = self._sender.transport
        send = transport._send_rtp

        async def note(data: bytes) -> None:
            if data[1] & 0x7F in (self._opus_payload_type, self._red_payload_type) and data[8:12] == ssrc:
                self._note_sent(int.from_bytes(data[2:4], "big"))
            await send(data)

        ssrc = self._sender._ssrc.to_bytes(4, "big")
        transport._send_rtp = note

    def _protect(self, frame: Any) -> int:
        """Put the copies into `frame` and return its payload type."""
        payload = frame.payloads[0]
        counters = self.counters
        counters.packets += 1
        counters.media_bytes += len(payload)
        copies = []
        offsets = []
        if self._red_payload_type is not None:
            for offset in self.red_offsets:
                if offset <= len(self._frames):
                    timestamp, earlier = self._frames[-offset]
                    copies.append((frame.timestamp - timestamp, earlier))
                    offsets.append(offset)
        timestamp, copy = self._copy
        self._frames.append((frame.timestamp, copy if copy and timestamp == frame.timestamp else payload))
        self._next_offsets = tuple(offsets)
        self._next_size_bytes = len(payload)
        if not copies or self._red_payload_type is None:
            return self._opus_payload_type
        frame.payloads[0] = build_red(payload_type=self._opus_payload_type, primary=payload, copies=copies)
        self._next_size_bytes = len(frame.payloads[0])
        counters.copy_bytes += self._next_size_bytes - len(payload)
        return self._red_payload_type

    def _note_sent(self, sequence_number: int) -> None:
        number = self._unwrap(sequence_number)
        if number in self._sent:
            return
        self._highest = number if self._highest is None else max(number, self._highest)
        self._sent[number] = _Sent(at=self._clock(), offsets=self._next_offsets, size_bytes=self._next_size_bytes)
        while len(self._sent) > HISTORY_PACKETS:
            self._sent.popitem(last=False)

    async def _handle_request(self, sequence_numbers: list[int]) -> None:
        now = self._clock()
        self.counters.requests += 1
        self.counters.packets_requested += len(sequence_numbers)
        numbers = sorted({self._unwrap(number) for number in sequence_numbers})
        fresh = []
        for number in numbers:
            sent = self._sent.get(number)
            if sent is not None:
                if sent.requested_at is None:
                    fresh.append(number)
                sent.requested_at = now
        if fresh and self.on_requests is not None:
            self.on_requests(fresh, now)
        for number in numbers:
            sent = self._sent.get(number)
            if sent is not None and self._is_worth_sending(number, sent, now):
                sent.resent_at = now
                await self._resend(number & 0xFFFF, sent.size_bytes)

    async def _resend(self, sequence_number: int, size_bytes: int) -> None:
        """Send the very same packet: another payload under the same number would reuse SRTP's keys (RFC 3711 §9.1)."""
        self.counters.packets_resent += 1
        self.counters.resent_bytes += size_bytes + RTP_HEADER_BYTES
        await self._sender._retransmit(sequence_number)

    def _is_worth_sending(self, number: int, sent: _Sent, now: float) -> bool:
        if now - sent.at > self.answer_within_s:
            return False
        if sent.resent_at is not None and now - sent.resent_at < self.answer_gap_s:
            return False
        return not any(self._has_copy(number, offset, now) for offset in range(1, MAX_OFFSET + 1))

    def _has_copy(self, number: int, offset: int, now: float) -> bool:
        """Whether a packet with a copy of `number` has left and is not missed itself; if it is, the peer asks again."""
        carrier = self._sent.get(number + offset)
        if carrier is None or offset not in carrier.offsets:
            return False
        return carrier.requested_at is None or now - carrier.requested_at > REPEAT_WINDOW_S

    def _unwrap(self, sequence_number: int) -> int:
        if self._highest is None:
            return sequence_number
        return self._highest + ((sequence_number - self._highest + 0x8000) & 0xFFFF) - 0x8000
