"""The reader for machines that listen: frames in order, at once; it waits only at a hole, until the hole's deadline."""

from __future__ import annotations

import numpy as np

from jitter.controller import Controller
from jitter.decoder import AudioDecoder, Samples
from jitter.frame import CONCEALED, DECODED, AudioFrame, FrameKind
from jitter.intake import Intake
from jitter.packet import RESTARTED, RTP_CLOCK_HZ, InsertResult, RtpPacket
from jitter.packet_buffer import BufferedPacket
from jitter.planner import Listener
from jitter.requests import NEVER
from jitter.stats import ReaderStats
from jitter.trace import Played, Trace

__all__ = ["AudioFrame", "FrameKind", "ListenReader"]

PAUSE_MS = 500
"""How long after a DTX packet comfort noise goes on by itself: libopus sends the next within 400 ms."""
PAUSE_MARGIN_MS = 60.0
"""Past the deadline of a hole: speech that begins again must not find its place taken by noise."""
GRACE_S = 0.01
"""After a stall everything is overdue, yet what comes out of order comes together."""
CONCEAL_MS = 60
"""Past this a guess at speech does more harm than silence; the decoder's own has faded by then."""


class ListenReader:
    """Turns one audio stream's packets into gapless frames for VAD and ASR."""

    def __init__(
        self,
        decoder: AudioDecoder,
        *,
        hole_deadline_ms: float | None = None,
        controller: Controller | None = None,
        red_payload_type: int | None = None,
        trace: Trace | None = None,
    ) -> None:
        """Read through `decoder`; holes are filled `hole_deadline_ms` past their due, or as `controller` says."""
        self.controller = controller or Controller(listener=Listener.LISTEN)
        self._decoder = decoder
        self._intake = Intake(decoder, self.controller, red_payload_type=red_payload_type)
        self._buffer = self._intake.buffer
        self._planner = self._intake.planner
        self._history = self.controller.history
        self._advanced_at: float | None = None
        self._trace = trace
        self._ticks_per_sample = RTP_CLOCK_HZ // decoder.sample_rate_hz
        self._frames: list[AudioFrame] = []
        self._position = 0
        self._concealing = False
        self._pause_left = 0
        self.fixed_deadline_ms = hole_deadline_ms
        """Overrides the controller's; may be changed at any time."""
        self.stats: ReaderStats = self._intake.stats

    @property
    def is_hole_open(self) -> bool:
        """Whether something after a missing packet is being held back."""
        return bool(self._buffer.packets)

    @property
    def hole_deadline_ms(self) -> float:
        """How long past its earliest moment a missing packet is waited for."""
        fixed = self.fixed_deadline_ms
        return self.controller.decision.hole_deadline_ms if fixed is None else fixed

    def handle_packet(self, packet: RtpPacket, *, now: float) -> InsertResult:
        """Take one packet; call `poll` afterwards for what it has set free."""
        result = self._intake.handle_packet(packet, now=now)
        self._advanced_at = None
        if result is RESTARTED:
            self._release(now=now)
            while len(self._buffer):
                self._fill_hole(now=now)
                self._release(now=now)
            self._intake.restart(packet, now=now)
        while self._buffer.is_full:
            self._release(now=now)
            self._fill_hole(now=now)
            self._release(now=now)
        return result

    def poll(self, *, now: float) -> list[AudioFrame]:
        """Return every frame that may go out at `now`, in order; often empty."""
        if now != self._advanced_at:
            self._advance(now=now)
        frames, self._frames = self._frames, []
        return frames

    def poll_requests(self, *, now: float) -> list[int]:
        """Return the sequence numbers (16 bit) to ask the sender for again at `now`."""
        if now < self._planner.due:
            return []
        return self._intake.poll_requests(deadline_ms=self.hole_deadline_ms, now=now)

    def get_timer(self) -> float | None:
        """Return when `handle_timer` and `poll_requests` want to be called, seconds; None while nothing is awaited."""
        asking = self._planner.due if self.controller.decision.plan.nack else NEVER
        if self._buffer.packets:
            return self._next_due(asking)
        if self._intake.pause_follows and self._pause_left > 0:
            asking = min(asking, self._pause_due())
        return asking if asking < NEVER else None

    def _next_due(self, asking: float) -> float:
        """When the hole is filled, or there is something to ask: the earlier."""
        first = self._buffer.packets[0]
        due = self._deadline()
        asking = asking if asking < due else due  # noqa: FURB136 - as above
        if first.timestamp - self._buffer.next_timestamp > first.duration or not self._intake.has_fec(first):
            return asking
        return min(asking, self._history.due(self._buffer.next_timestamp, self.controller.decision.ask_after_ms))

    def handle_timer(self, *, now: float) -> None:
        """Fill the hole whose deadline has passed; `poll` returns what came of it."""
        self._advance(now=now)

    def _deadline(self) -> float:
        """When the hole at the output's end is filled: a little after something later has shown it, at the earliest."""
        wait_ms = self.fixed_deadline_ms
        if wait_ms is None:
            wait_ms = self.controller.decision.hole_deadline_ms
        due = self._history.due(self._buffer.next_timestamp, wait_ms)
        shown = self._buffer.earliest_arrival() + GRACE_S
        return due if due > shown else shown  # noqa: FURB136 - max costs ten times as much

    def _advance(self, *, now: float) -> None:
        self._release(now=now)
        while self._buffer.packets and now >= self._deadline():
            self._fill_hole(now=now)
            self._release(now=now)
        if self._intake.pause_follows and not self._buffer.packets:
            while self._pause_left > 0 and now >= self._pause_due():
                self._pass_pause()
        self._advanced_at = now

    def _pause_due(self) -> float:
        """When the next frame of an announced pause would have been missed, had it been sent after all."""
        return self.controller.history.due(self._buffer.next_timestamp, self.hole_deadline_ms + PAUSE_MARGIN_MS)

    def _pass_pause(self) -> None:
        """Put out a frame of comfort noise: who listens for the end of a turn must hear the silence go by."""
        ticks = self._intake.last_duration
        self._emit_comfort_noise(ticks // self._ticks_per_sample)
        self._buffer.pass_pause(ticks)
        self._pause_left -= ticks

    def _release(self, *, now: float) -> None:
        buffer = self._buffer
        packets = buffer.packets
        while packets:
            first = packets[0]
            gap = first.timestamp - buffer.next_timestamp
            if gap < 0:
                self.stats.packets_discarded += buffer.drop_overlapped()
                continue
            if gap > 0:
                if not buffer.missing_packets():
                    self._emit_comfort_noise(gap // self._ticks_per_sample)
                    buffer.next_timestamp = first.timestamp
                elif gap > first.duration or not self._may_recover(first, now=now):
                    return
                else:
                    self._recover(first, gap, now=now)
            self._emit_packet(buffer.pop(), now=now)

    def _may_recover(self, first: BufferedPacket, *, now: float) -> bool:
        """FEC is a lesser copy: it serves once the packet itself is more likely lost than late."""
        decision = self.controller.decision
        return self._intake.has_fec(first) and now >= self.controller.history.due(
            self._buffer.next_timestamp, decision.ask_after_ms
        )

    def _emit_packet(self, entry: BufferedPacket, *, now: float) -> None:
        stats = self.stats
        samples = self._decoder.decode(entry.payload)
        if not len(samples):
            self._emit_concealment(entry.duration // self._ticks_per_sample)
            return
        self._pause_left = PAUSE_MS * RTP_CLOCK_HZ // 1000
        kind = entry.kind
        if kind is not DECODED:
            stats.red_packets_recovered += kind is FrameKind.RED
            stats.retransmitted_packets_received += kind is FrameKind.RETRANSMITTED
        self._count(entry.timestamp, entry.duration, entry.arrival, kind, now)
        self._emit(samples, kind, entry.arrival)

    def _count(self, timestamp: int, ticks: int, arrival: float, kind: FrameKind, now: float) -> None:
        samples = ticks // self._ticks_per_sample
        stats = self.stats
        stats.jitter_buffer_delay += (now - arrival) * samples
        stats.jitter_buffer_emitted_count += samples
        if self._trace is not None:
            self._trace.played.append(Played(timestamp, ticks, arrival, now, kind))

    def _emit(self, samples: Samples, kind: FrameKind, arrival: float | None) -> None:
        self._frames.append(AudioFrame(samples, self._position, kind, arrival))
        count = len(samples)
        self._position += count
        self.stats.total_samples_received += count
        self._concealing = kind is CONCEALED

    def _emit_comfort_noise(self, samples: int) -> None:
        self.stats.comfort_noise_samples += samples
        self._emit(np.zeros(samples, np.int16), FrameKind.COMFORT_NOISE, None)

    def _emit_concealment(self, samples: int) -> None:
        stats = self.stats
        guessed = min(samples, CONCEAL_MS * self._decoder.sample_rate_hz // 1000)
        stats.concealment_events += not self._concealing
        stats.concealed_samples += samples
        stats.silent_concealed_samples += samples - guessed
        self._emit(self._decoder.conceal(guessed), CONCEALED, None)
        if samples > guessed:
            self._emit(np.zeros(samples - guessed, np.int16), CONCEALED, None)

    def _fill_hole(self, *, now: float) -> None:
        """Fill up to the earliest packet held; its FEC, if it has any, serves for the last frame."""
        buffer = self._buffer
        first = buffer.first()
        if first is None:
            return
        gap = first.timestamp - buffer.next_timestamp
        frame = min(first.duration, gap)
        if not frame or not self._intake.has_fec(first):
            frame = 0
        if gap > frame:
            self._emit_concealment((gap - frame) // self._ticks_per_sample)
        if frame:
            self._recover(first, frame, now=now)
        buffer.skip_to(first.timestamp)

    def _recover(self, first: BufferedPacket, ticks: int, *, now: float) -> None:
        samples = self._decoder.recover_fec(first.payload, ticks // self._ticks_per_sample)
        self.stats.fec_packets_received += 1
        self._count(first.timestamp - ticks, ticks, first.arrival, FrameKind.FEC, now)
        self._emit(samples, FrameKind.FEC, first.arrival)
        self._buffer.skip_to(first.timestamp)
