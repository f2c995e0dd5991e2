"""Received packets in the order of their media, and the place up to which the output has been filled."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from operator import attrgetter

from jitter.frame import DECODED, FrameKind
from jitter.packet import (
    INSERTED,
    LATE,
    RESTARTED,
    RTP_CLOCK_HZ,
    SEQUENCE_BITS,
    TIMESTAMP_BITS,
    InsertResult,
    RtpPacket,
    Unwrapper,
)

MAX_PACKETS = 200
"""NetEQ's capacity (neteq.h, max_packets_in_buffer)."""
MAX_SPAN_TICKS = 5 * RTP_CLOCK_HZ
"""A packet further than this from the stream is another stream, or nonsense."""
MAX_UNEXPLAINED_GAP_S = 0.5
"""A timestamp gap without lost packets is a pause only if about as much time has really gone by."""
FORWARD_PROBATION = 2
"""Consecutive packets that make a jump ahead believed (RFC 3550 A.1: MIN_SEQUENTIAL)."""
BACKWARD_PROBATION = 5
"""The same for a jump back, which a burst of very late packets looks like."""
SEEN_SLOTS = 1024
"""Sequence numbers remembered to tell a duplicate from a late packet: 20 s at 20 ms."""


@dataclass(slots=True)
class BufferedPacket:
    """One frame's worth of payload, waiting."""

    sequence: int | None
    """Unwrapped; None for a redundant copy, whose number the wire does not tell."""
    timestamp: int
    """Unwrapped ticks of the RTP clock."""
    duration: int
    """Ticks."""
    payload: bytes
    arrival: float
    kind: FrameKind
    fec: bool | None = None
    """Whether the frame before is in it, once that has been looked up."""


_TIMESTAMP = attrgetter("timestamp")


class PacketBuffer:
    """Sorts one source's packets by timestamp and tells holes from pauses; at most MAX_PACKETS and MAX_SPAN_TICKS."""

    def __init__(self) -> None:
        self._sequences = Unwrapper(SEQUENCE_BITS)
        self._timestamps = Unwrapper(TIMESTAMP_BITS)
        self.packets: list[BufferedPacket] = []
        """What is held, by timestamp; for looking at only."""
        self._seen = [-1] * SEEN_SLOTS
        self._ssrc: int | None = None
        self._retired_ssrc: int | None = None
        self._probation_sequence = -1
        self._probation_count = 0
        self._last_arrival = 0.0
        self._passed = 0
        self.sequence = -1
        """Unwrapped sequence number of the packet last classified."""
        self.timestamp = -1
        """Its unwrapped timestamp."""
        self.highest_sequence = -1
        """Highest unwrapped sequence number received from this source."""
        self.next_sequence = -1
        """Unwrapped sequence number the output needs next."""
        self.next_timestamp = -1
        """Unwrapped timestamp up to which the output is filled."""

    def __len__(self) -> int:
        return len(self.packets)

    @property
    def is_full(self) -> bool:
        """Whether the bound on packets or on media time is reached."""
        packets = self.packets
        if len(packets) >= MAX_PACKETS:
            return True
        return bool(packets) and packets[-1].timestamp - self.next_timestamp >= MAX_SPAN_TICKS

    def classify(self, packet: RtpPacket) -> InsertResult:
        """Say what is to be done with `packet`; counts it towards following a jump, and a late one as seen."""
        if packet.ssrc != self._ssrc:
            return LATE if packet.ssrc == self._retired_ssrc else RESTARTED
        sequence = self.highest_sequence + 1
        if packet.sequence_number != sequence & 0xFFFF:
            sequence = self._sequences.peek(packet.sequence_number)
        self.sequence = sequence
        timestamp = self.timestamp = self._timestamps.peek(packet.timestamp)
        ahead = timestamp - self.next_timestamp
        if sequence == self.highest_sequence + 1 and ahead > 0:
            newest = self.packets[-1].timestamp + self.packets[-1].duration if self.packets else self.next_timestamp
            pause_s = (timestamp - newest) / RTP_CLOCK_HZ
            if pause_s <= 0 or pause_s - (packet.arrival - self._last_arrival) < MAX_UNEXPLAINED_GAP_S:
                return INSERTED if ahead <= MAX_SPAN_TICKS else RESTARTED
            return RESTARTED
        if abs(ahead) > MAX_SPAN_TICKS or (sequence > self.highest_sequence and ahead < -self._passed):
            return self._on_probation(sequence)
        if self._seen[sequence % SEEN_SLOTS] == sequence:
            return InsertResult.DUPLICATE
        if ahead < 0:
            self._seen[sequence % SEEN_SLOTS] = sequence
            return LATE
        return INSERTED

    def _on_probation(self, sequence: int) -> InsertResult:
        self._probation_count = self._probation_count + 1 if sequence == self._probation_sequence else 1
        self._probation_sequence = sequence + 1
        needed = FORWARD_PROBATION if sequence > self.highest_sequence else BACKWARD_PROBATION
        return InsertResult.RESTARTED if self._probation_count >= needed else InsertResult.OUT_OF_RANGE

    def restart(self, packet: RtpPacket) -> None:
        """Drop everything and make `packet` the first of a new stream; it still has to be inserted."""
        if self._ssrc is not None and packet.ssrc != self._ssrc:
            self._retired_ssrc = self._ssrc
        self._ssrc = packet.ssrc
        self.packets.clear()
        self._sequences.reset()
        self._timestamps.reset()
        self._seen = [-1] * SEEN_SLOTS
        self._probation_count = self._passed = 0
        self.next_sequence = self.sequence = self._sequences.unwrap(packet.sequence_number)
        self.next_timestamp = self.timestamp = self._timestamps.unwrap(packet.timestamp)
        self.highest_sequence = self.next_sequence - 1

    def insert(self, payload: bytes, *, duration: int, arrival: float, kind: FrameKind = DECODED) -> InsertResult:
        """Take the payload of the packet just classified as INSERTED, or given to `restart`; `duration` in ticks."""
        sequence, timestamp = self.sequence, self.timestamp
        self._seen[sequence % SEEN_SLOTS] = sequence
        if sequence > self.highest_sequence:
            self.highest_sequence = sequence
            self._sequences.follow(sequence)
            self._timestamps.follow(timestamp)
            self._last_arrival = arrival
        self._probation_count = self._passed = 0
        return self._place(BufferedPacket(sequence, timestamp, duration, payload, arrival, kind))

    def insert_copy(self, timestamp: int, payload: bytes, *, duration: int, arrival: float) -> InsertResult:
        """Take a redundant block whose 32-bit `timestamp` is known and whose sequence number is not."""
        unwrapped = self._timestamps.peek(timestamp)
        if unwrapped < self.next_timestamp:
            return LATE
        return self._place(BufferedPacket(None, unwrapped, duration, payload, arrival, FrameKind.RED))

    def _place(self, entry: BufferedPacket) -> InsertResult:
        packets = self.packets
        if not packets or entry.timestamp > packets[-1].timestamp:
            packets.append(entry)
            return INSERTED
        index = bisect_left(packets, entry.timestamp, key=_TIMESTAMP)
        if packets[index].timestamp == entry.timestamp:
            if packets[index].sequence is not None or entry.sequence is None:
                return InsertResult.DUPLICATE
            packets[index] = entry
            return INSERTED
        packets.insert(index, entry)
        return INSERTED

    def first(self) -> BufferedPacket | None:
        """Return the earliest packet held."""
        return self.packets[0] if self.packets else None

    def second(self) -> BufferedPacket:
        """Return the second packet held, of two or more."""
        return self.packets[1]

    def find(self, timestamp: int) -> BufferedPacket | None:
        """Return the packet held whose media begins at unwrapped `timestamp`."""
        index = bisect_left(self.packets, timestamp, key=_TIMESTAMP)
        if index < len(self.packets) and self.packets[index].timestamp == timestamp:
            return self.packets[index]
        return None

    def pop(self) -> BufferedPacket:
        """Remove the earliest packet and count the output as filled up to its end."""
        entry = self.packets.pop(0)
        self.next_sequence = self.next_sequence + 1 if entry.sequence is None else entry.sequence + 1
        self.next_timestamp = entry.timestamp + entry.duration
        return entry

    def skip_to(self, timestamp: int) -> None:
        """Count the output as filled up to the earliest packet held, which starts at `timestamp`."""
        self.next_timestamp = timestamp
        sequence = self.packets[0].sequence
        if sequence is not None:
            self.next_sequence = sequence

    def pass_pause(self, ticks: int) -> None:
        """Count the output as filled by `ticks` more while nothing is sent; packets of that time are late."""
        self.next_timestamp += ticks
        self._passed += ticks

    def hole_ticks(self) -> int:
        """Return the media time missing before the earliest packet held; 0 if none is or nothing is held."""
        return self.packets[0].timestamp - self.next_timestamp if self.packets else 0

    def first_duration(self) -> int:
        """Return the media time of the earliest packet held, ticks; 0 if nothing is held."""
        return self.packets[0].duration if self.packets else 0

    def shrink(self) -> int:
        """Drop the earlier half, the output counting as filled up to what is left; return how many were dropped."""
        dropped = (len(self.packets) + 1) // 2
        del self.packets[:dropped]
        if self.packets:
            self.skip_to(self.packets[0].timestamp)
        return dropped

    def drop_overlapped(self) -> int:
        """Remove packets whose media the output has passed; return how many."""
        dropped = 0
        while self.packets and self.packets[0].timestamp < self.next_timestamp:
            del self.packets[0]
            dropped += 1
        return dropped

    def missing_packets(self) -> int:
        """Return how many packets are missing before the earliest held; 0 means that a gap there is a pause."""
        copies = 0
        for entry in self.packets:
            if entry.sequence is not None:
                return max(0, entry.sequence - self.next_sequence - copies)
            copies += 1
        return 1 if copies else 0

    def missing_after_first(self) -> bool:
        """Return whether a packet is missing between the two earliest held; a gap without is a pause."""
        first, second = self.packets[0].sequence, self.packets[1].sequence
        return first is None or second is None or second - first > 1

    def earliest_arrival(self) -> float:
        """Return when the first of the packets held came in: how long the hole before them has been known."""
        packets = self.packets
        return packets[0].arrival if len(packets) == 1 else min(entry.arrival for entry in packets)
