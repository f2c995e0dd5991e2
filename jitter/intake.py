"""What both readers share: from a received packet to media waiting in order, the arrival record, and requests."""

from __future__ import annotations

from jitter.controller import Controller
from jitter.decoder import AudioDecoder
from jitter.frame import DECODED, FrameKind
from jitter.packet import INSERTED, LATE, RESTARTED, RTP_CLOCK_HZ, InsertResult, RtpPacket
from jitter.packet_buffer import BufferedPacket, PacketBuffer
from jitter.red import RedBlock, parse_red
from jitter.requests import RequestPlanner
from jitter.stats import ReaderStats

MAX_DURATION_TICKS = 120 * RTP_CLOCK_HZ // 1000
"""The longest Opus packet (RFC 6716 §3.2.5)."""
DTX_BYTES = 2
"""An Opus packet this short says that silence follows (RFC 6716 §3.1; libopus sends 1 or 2 bytes)."""


class Intake:
    """Takes packets of one stream; the reader that owns it takes media out of `buffer`."""

    def __init__(self, decoder: AudioDecoder, controller: Controller, *, red_payload_type: int | None) -> None:
        self._decoder = decoder
        self._red_payload_type = red_payload_type
        self._ticks_per_sample = RTP_CLOCK_HZ // decoder.sample_rate_hz
        self.last_duration = 0
        """Media time of the packet last recorded, ticks."""
        self.controller = controller
        self.buffer = PacketBuffer()
        self.planner = RequestPlanner(controller.history)
        self.stats = ReaderStats()
        self.pause_follows = False
        """The newest packet announced that nothing will be sent for a while."""

    def handle_packet(self, packet: RtpPacket, *, now: float) -> InsertResult:
        """Sort one packet in; RESTARTED means that the reader must empty itself and call `restart` with it."""
        self.stats.packets_received += 1
        payload = packet.payload
        copies: tuple[RedBlock, ...] = ()
        if packet.payload_type == self._red_payload_type:
            blocks = parse_red(payload)
            if blocks is None:
                return self._discard(InsertResult.INVALID)
            payload = blocks[-1].payload
            copies = blocks[:-1]
        duration = self._duration(payload)
        if not duration:
            return self._discard(InsertResult.INVALID)
        result = self.buffer.classify(packet)
        if result is INSERTED or result is LATE:
            result = self._record(payload, packet.arrival, duration, result, now)
        elif result is not RESTARTED:
            self._discard(result)
        if copies and result is not RESTARTED and result is not InsertResult.OUT_OF_RANGE:
            self._insert_copies(copies, packet)
        return result

    def _insert_copies(self, copies: tuple[RedBlock, ...], packet: RtpPacket) -> None:
        for copy in copies:
            duration = self._duration(copy.payload)
            if duration:
                timestamp = (packet.timestamp - copy.offset_ticks) & 0xFFFFFFFF
                self.buffer.insert_copy(timestamp, copy.payload, duration=duration, arrival=packet.arrival)

    def restart(self, packet: RtpPacket, *, now: float) -> None:
        """Begin anew with `packet` (as given to `handle_packet`), which `handle_packet` called RESTARTED."""
        payload = packet.payload
        if packet.payload_type == self._red_payload_type:
            blocks = parse_red(payload)
            assert blocks is not None
            payload = blocks[-1].payload
        if self.stats.packets_received > 1:
            self.stats.restarts += 1
        self._decoder.reset()
        self.buffer.restart(packet)
        self.planner.reset()
        self.controller.history.reset()
        self._record(payload, packet.arrival, self._duration(payload), INSERTED, now)

    def _duration(self, payload: bytes) -> int:
        duration = self._decoder.duration_samples(payload) * self._ticks_per_sample
        return duration if 0 < duration <= MAX_DURATION_TICKS else 0

    def _record(self, payload: bytes, arrival: float, duration: int, result: InsertResult, now: float) -> InsertResult:
        controller, buffer, planner = self.controller, self.buffer, self.planner
        sequence, timestamp = buffer.sequence, buffer.timestamp
        if duration != self.last_duration:
            self.last_duration = duration
            controller.handle_packet_duration(duration * 1000 / RTP_CLOCK_HZ)
        if sequence > buffer.highest_sequence:
            self.pause_follows = len(payload) <= DTX_BYTES
        decision = controller.decision
        answered = planner.is_answer(sequence, decision=decision, now=now)
        if not answered:
            controller.handle_arrival(sequence, timestamp, arrival)
        planner.handle_packet(
            sequence, timestamp, duration, decision=decision, now=now, pause_follows=self.pause_follows
        )
        if result is LATE:
            return self._discard(result)
        kind = FrameKind.RETRANSMITTED if answered else DECODED
        inserted = buffer.insert(payload, duration=duration, arrival=arrival, kind=kind)
        if now >= controller.next_update:
            controller.update(now=now)
        return inserted if inserted is INSERTED else self._discard(inserted)

    def poll_requests(self, *, deadline_ms: float, now: float) -> list[int]:
        """Return the sequence numbers (16 bit) to ask for at `now`; answers are of use up to `deadline_ms`."""
        asked = self.planner.poll(
            decision=self.controller.decision,
            deadline_ms=deadline_ms,
            filled_until=self.buffer.next_timestamp,
            repaired=self._can_do_without,
            now=now,
        )
        return [sequence & 0xFFFF for sequence in asked]

    def has_fec(self, entry: BufferedPacket) -> bool:
        """Whether `entry` carries the frame before it; parsed once."""
        if entry.fec is None:
            entry.fec = self._decoder.has_fec(entry.payload)
        return entry.fec

    def _can_do_without(self, timestamp: int) -> bool:
        """Whether a copy of the media at `timestamp` is held, or FEC of it in the packet behind."""
        held = self.buffer.find(timestamp)
        if held is not None:
            return True
        behind = self.buffer.find(timestamp + self.last_duration)
        return behind is not None and self.has_fec(behind)

    def _discard(self, result: InsertResult) -> InsertResult:
        stats = self.stats
        stats.packets_discarded += 1
        stats.packets_late += result is LATE
        stats.packets_duplicated += result is InsertResult.DUPLICATE
        return result
