"""The reader for machines that listen: frames in order, at once; it waits only at a hole, until the hole's deadline."""

from __future__ import annotations

import numpy as np

from jitter.decoder import AudioDecoder, Samples
from jitter.frame import AudioFrame, FrameKind
from jitter.packet import RTP_CLOCK_HZ, InsertResult, RtpPacket
from jitter.packet_buffer import BufferedPacket, PacketBuffer
from jitter.stats import ReaderStats

__all__ = ["AudioFrame", "FrameKind", "ListenReader"]

MAX_DURATION_MS = 120
"""The longest Opus packet (RFC 6716 §3.2.5)."""
CONCEAL_MS = 60
"""Past this a guess at speech does more harm than silence; the decoder's own has faded by then."""
FIXED_HOLE_DEADLINE_MS = 60.0


class ListenReader:
    """Turns one audio stream's packets into gapless frames for VAD and ASR."""

    def __init__(self, decoder: AudioDecoder, *, hole_deadline_ms: float = FIXED_HOLE_DEADLINE_MS) -> None:
        """Read through `decoder`; a hole is filled `hole_deadline_ms` after a later packet has shown it."""
        self._decoder = decoder
        self._buffer = PacketBuffer()
        self._ticks_per_sample = RTP_CLOCK_HZ // decoder.sample_rate_hz
        self._frames: list[AudioFrame] = []
        self._position = 0
        self._concealing = False
        self.hole_deadline_ms = hole_deadline_ms
        """May be changed at any time; acts on the hole that is open, too."""
        self.stats = ReaderStats()

    @property
    def is_hole_open(self) -> bool:
        """Whether something after a missing packet is being held back."""
        return len(self._buffer) > 0

    def handle_packet(self, packet: RtpPacket, *, now: float) -> InsertResult:
        """Take one packet; call `poll` afterwards for what it has set free."""
        stats = self.stats
        stats.packets_received += 1
        duration = self._decoder.duration_samples(packet.payload) * self._ticks_per_sample
        if not 0 < duration <= MAX_DURATION_MS * RTP_CLOCK_HZ // 1000:
            stats.packets_discarded += 1
            return InsertResult.INVALID
        result = self._buffer.classify(packet)
        if result is InsertResult.RESTARTED:
            self._restart(packet, now=now)
        elif result is not InsertResult.INSERTED:
            stats.packets_discarded += 1
            stats.packets_late += result is InsertResult.LATE
            stats.packets_duplicated += result is InsertResult.DUPLICATE
            return result
        inserted = self._buffer.insert(packet, duration=duration)
        if inserted is InsertResult.DUPLICATE:
            stats.packets_discarded += 1
            return inserted
        while self._buffer.is_full:
            self._fill_hole(now=now)
            self._release(now=now)
        return result

    def poll(self, *, now: float) -> list[AudioFrame]:
        """Return every frame that may go out at `now`, in order; often empty."""
        self._advance(now=now)
        frames, self._frames = self._frames, []
        return frames

    def get_timer(self) -> float | None:
        """Return when `handle_timer` wants to be called, in seconds; None while no hole is open."""
        if not len(self._buffer):
            return None
        return self._buffer.earliest_arrival() + self.hole_deadline_ms / 1000

    def handle_timer(self, *, now: float) -> None:
        """Fill the hole whose deadline has passed; `poll` returns what came of it."""
        self._advance(now=now)

    def _advance(self, *, now: float) -> None:
        self._release(now=now)
        while len(self._buffer) and now >= self._buffer.earliest_arrival() + self.hole_deadline_ms / 1000:
            self._fill_hole(now=now)
            self._release(now=now)

    def _release(self, *, now: float) -> None:
        buffer = self._buffer
        while (first := buffer.first()) is not None:
            gap = first.timestamp - buffer.next_timestamp
            if gap < 0:
                self.stats.packets_discarded += buffer.drop_overlapped()
                continue
            if gap > 0:
                if buffer.missing_packets():
                    return
                self._emit_comfort_noise(gap // self._ticks_per_sample)
                buffer.next_timestamp = first.timestamp
            self._emit_packet(buffer.pop(), now=now)

    def _emit_packet(self, entry: BufferedPacket, *, now: float) -> None:
        stats = self.stats
        samples = self._decoder.decode(entry.payload)
        if not len(samples):
            self._emit_concealment(entry.duration // self._ticks_per_sample)
            return
        stats.jitter_buffer_delay += (now - entry.arrival) * len(samples)
        stats.jitter_buffer_emitted_count += len(samples)
        self._emit(samples, entry.kind, entry.arrival)

    def _emit(self, samples: Samples, kind: FrameKind, arrival: float | None) -> None:
        self._frames.append(AudioFrame(samples=samples, position_samples=self._position, kind=kind, arrival=arrival))
        self._position += len(samples)
        self.stats.total_samples_received += len(samples)
        self._concealing = kind is FrameKind.CONCEALED

    def _emit_comfort_noise(self, samples: int) -> None:
        self.stats.comfort_noise_samples += samples
        self._emit(np.zeros(samples, np.int16), FrameKind.COMFORT_NOISE, None)

    def _emit_concealment(self, samples: int) -> None:
        stats = self.stats
        guessed = min(samples, CONCEAL_MS * self._decoder.sample_rate_hz // 1000)
        stats.concealment_events += not self._concealing
        stats.concealed_samples += samples
        stats.silent_concealed_samples += samples - guessed
        self._emit(self._decoder.conceal(guessed), FrameKind.CONCEALED, None)
        if samples > guessed:
            self._emit(np.zeros(samples - guessed, np.int16), FrameKind.CONCEALED, None)

    def _fill_hole(self, *, now: float) -> None:
        buffer = self._buffer
        first = buffer.first()
        if first is None:
            return
        gap = (first.timestamp - buffer.next_timestamp) // self._ticks_per_sample
        frame = min(first.duration // self._ticks_per_sample, gap)
        has_fec = frame > 0 and self._decoder.has_fec(first.payload)
        if gap - frame * has_fec > 0:
            self._emit_concealment(gap - frame * has_fec)
        if has_fec:
            recovered = self._decoder.recover_fec(first.payload, frame)
            self.stats.fec_packets_received += 1
            self.stats.jitter_buffer_delay += (now - first.arrival) * len(recovered)
            self.stats.jitter_buffer_emitted_count += len(recovered)
            self._emit(recovered, FrameKind.FEC, first.arrival)
        buffer.next_timestamp = first.timestamp
        if first.sequence is not None:
            buffer.next_sequence = first.sequence

    def _restart(self, packet: RtpPacket, *, now: float) -> None:
        while len(self._buffer):
            self._fill_hole(now=now)
            self._release(now=now)
        if self.stats.packets_received > 1:
            self.stats.restarts += 1
        self._decoder.reset()
        self._buffer.restart(packet)
