"""Turns RTP packets as they arrived, in a capture or a live call, into an arrival trace; pure.

Sending times come from the RTP timestamps, so delays are known but for a constant: the fastest packet counts as 0 ms.
"""

from __future__ import annotations

import statistics
import struct
from dataclasses import dataclass, field

from impair.errors import TraceError
from impair.traces import TraceRow

_CLOCK_HZ = {0: 8000, 8: 8000, 9: 8000, 18: 8000}
"""RTP clock rates of RFC 3551's static audio payload types; others are taken for Opus, 48 kHz (RFC 7587)."""
_OPUS_HZ = 48_000
MAX_PACKETS = 1_000_000
"""Per stream; more than five hours of 20 ms packets."""
MAX_STREAMS = 64


@dataclass(slots=True)
class _Stream:
    clock_hz: int
    arrivals: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Unwrapped sequence number → unwrapped timestamp, first arrival in seconds."""
    last_seq: int | None = None
    last_timestamp: int = 0


class ArrivalRecorder:
    """Takes UDP payloads with their time of arrival; keeps the RTP streams among them apart by SSRC."""

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}

    def handle_packet(self, packet: bytes, *, now: float) -> bool:
        """Note a packet; False where it is not RTP or there are too many."""
        if len(packet) < 12 or packet[0] >> 6 != 2 or 64 <= packet[1] & 0x7F <= 95:
            return False
        payload_type = packet[1] & 0x7F
        seq, timestamp, ssrc = struct.unpack_from("!HII", packet, 2)
        stream = self._streams.get(ssrc)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                return False
            stream = self._streams[ssrc] = _Stream(_CLOCK_HZ.get(payload_type, _OPUS_HZ))
        if len(stream.arrivals) >= MAX_PACKETS:
            return False
        if stream.last_seq is None:
            stream.last_seq, stream.last_timestamp = seq, timestamp
        else:
            seq = stream.last_seq + _signed(seq - stream.last_seq, 16)
            timestamp = stream.last_timestamp + _signed(timestamp - stream.last_timestamp, 32)
            if seq > stream.last_seq:
                stream.last_seq, stream.last_timestamp = seq, timestamp
        stream.arrivals.setdefault(seq, (timestamp, now))
        return True

    def streams(self) -> dict[int, int]:
        """How many packets each SSRC sent, most first."""
        counts = {ssrc: len(stream.arrivals) for ssrc, stream in self._streams.items()}
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def rows(self, ssrc: int | None = None) -> list[TraceRow]:
        """The trace of one stream (None: the one with most packets), lost packets filled in; times from the first."""
        if ssrc is None:
            ssrc = next(iter(self.streams()), None)
        stream = None if ssrc is None else self._streams.get(ssrc)
        if stream is None:
            raise TraceError("no RTP stream was heard" if ssrc is None else f"no stream has the SSRC {ssrc}")
        if len(stream.arrivals) < 2:
            raise TraceError("one packet is not a trace")
        return _rows(stream)


def _rows(stream: _Stream) -> list[TraceRow]:
    first, last = min(stream.arrivals), max(stream.arrivals)
    if last - first > MAX_PACKETS:
        raise TraceError("the stream's sequence numbers jump too far to be one trace")
    known = {seq: timestamp * 1000 / stream.clock_hz for seq, (timestamp, _) in stream.arrivals.items()}
    pairs = [(known[seq + 1] - at_ms) for seq, at_ms in known.items() if seq + 1 in known]
    ptime_ms = statistics.median(pairs) if pairs else 20.0
    begin_ms = known[first]
    floor_ms = min(arrival * 1000 - known[seq] for seq, (_, arrival) in stream.arrivals.items())
    rows, sent_ms = [], begin_ms - ptime_ms
    for seq in range(first, last + 1):
        heard = stream.arrivals.get(seq)
        sent_ms = known[seq] if heard is not None else sent_ms + ptime_ms
        arrival_ms = None if heard is None else heard[1] * 1000 - floor_ms - begin_ms
        rows.append(TraceRow(seq - first, sent_ms - begin_ms, arrival_ms))
    return rows


def _signed(value: int, bits: int) -> int:
    """The difference of two wrapping counters, taken the short way round."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half
