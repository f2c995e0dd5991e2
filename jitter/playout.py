"""The reader for ears: a frame of sound every 10 or 20 ms, whatever the network does."""

from __future__ import annotations

import numpy as np

from jitter.controller import Controller
from jitter.decision import (
    MOST_PERIODS,
    MS_PER_PERIOD,
    BufferStatus,
    Operation,
    bridge_ahead_ms,
    decide,
    likeness_asked,
)
from jitter.decoder import AudioDecoder, Samples
from jitter.frame import CONCEALED, DECODED, AudioFrame, FrameKind
from jitter.intake import Intake
from jitter.noise import ComfortNoise
from jitter.packet import RESTARTED, RTP_CLOCK_HZ, InsertResult, RtpPacket
from jitter.packet_buffer import BufferedPacket
from jitter.stats import ReaderStats
from jitter.stretch import FAST_CORRELATION, Pitch, cross_fade, cut, find_pitch, hold_out, repeat
from jitter.trace import Decided, Played, Trace

MERGE_MS = 5
"""Overlap of concealment and what follows it where media had to be skipped."""
FADED_MS = 200
"""libopus has faded its guess by then; silence is cheaper."""
STRETCH_SOUND_MS = 30
"""libwebrtc stretches over this much, two of the longest periods."""
TRIM_MS = 0.5
LATE_MARGIN_MS = 10.0
STALL_PERIODS = 3
"""How often more each period is played in a stall: speech bears that better than a guess. By J a buffer then pays."""
BRIDGE_SHARE = 0.02
"""Of the time, what may be filled by stretching into holes: no one hears speech 2 % slower."""
BRIDGE_MOST_S = 0.1


class PlayoutReader:
    """Isochronous output at the decoder's rate; call `get_audio` every `frame_ms`."""

    def __init__(
        self,
        decoder: AudioDecoder,
        *,
        controller: Controller | None = None,
        frame_ms: int = 10,
        red_payload_type: int | None = None,
        trace: Trace | None = None,
    ) -> None:
        """Read through `decoder`; without a `controller` one of its own decides."""
        self.controller = controller or Controller()
        self._decoder = decoder
        self._intake = Intake(decoder, self.controller, red_payload_type=red_payload_type)
        self._trace = trace
        self._rate = decoder.sample_rate_hz
        self._ticks_per_sample = RTP_CLOCK_HZ // self._rate
        self._frame = self._rate * frame_ms // 1000
        self._pending: Samples = np.zeros(0, np.int16)
        self._last: Samples = np.zeros(0, np.int16)
        self._is_held_out = False
        self._kind = FrameKind.COMFORT_NOISE
        self._arrival: float | None = None
        self._started = False
        self._warming = False
        self._restart_with: RtpPacket | None = None
        self._position = 0
        self._filled = 0
        self._bridged = 0
        self._bridge_budget = 0.0
        self._bridge_per_frame = BRIDGE_SHARE * self._frame
        self._bridge_most = BRIDGE_MOST_S * self._rate
        self._since_stretch = 1 << 30
        self._noise = ComfortNoise(self._rate)
        self._status = BufferStatus(frame_ms=float(frame_ms))

    @property
    def stats(self) -> ReaderStats:
        """Running totals."""
        return self._intake.stats

    @property
    def is_empty(self) -> bool:
        """Whether everything received has been put out."""
        return not len(self._intake.buffer)

    def handle_packet(self, packet: RtpPacket, *, now: float) -> InsertResult:
        """Take one packet."""
        result = self._intake.handle_packet(packet, now=now)
        if result is RESTARTED:
            self._intake.restart(packet, now=now)
            self._filled = self._bridged = 0
            self._started = self._warming = True
        elif self._intake.buffer.is_full:
            self._drop_oldest()
        return result

    def _drop_oldest(self) -> None:
        """Keep memory bounded when more comes than is played: one gap, where libwebrtc flushes everything."""
        self.stats.packets_discarded += self._intake.buffer.shrink()
        self._filled = self._bridged = 0

    def poll_requests(self, *, now: float) -> list[int]:
        """Return the sequence numbers (16 bit) to ask the sender for again at `now`."""
        if now < self._intake.planner.due:
            return []
        deadline_ms = self.controller.decision.target_delay_ms + LATE_MARGIN_MS
        return self._intake.poll_requests(deadline_ms=deadline_ms, now=now)

    def get_timer(self) -> float | None:
        """Return when `poll_requests` should be called at the latest, seconds; None if nothing is missing."""
        return self._intake.planner.get_timer() if self.controller.decision.plan.nack else None

    def get_audio(self, *, now: float) -> AudioFrame:
        """Return the frame that starts sounding at `now`, int16 (frame_ms · rate,); silence before the first packet."""
        frame = self._frame
        if not self._started:
            return AudioFrame(np.zeros(frame, np.int16), 0, FrameKind.COMFORT_NOISE, None)
        if len(self._pending) >= frame and not self._is_held_out:
            self._hold_out(now)
        while len(self._pending) < frame:
            self._refill(now)
        samples, self._pending = self._pending[:frame], self._pending[frame:]
        out = AudioFrame(samples, self._position, self._kind, self._arrival)
        self._last = samples
        self._position += frame
        self._bridge_budget += self._bridge_per_frame
        if self._bridge_budget > self._bridge_most:  # noqa: PLR1730 - min costs ten times as much
            self._bridge_budget = self._bridge_most
        self._intake.stats.total_samples_received += frame
        return out

    def _refill(self, now: float) -> None:
        status = self._look(now)
        self._warming &= status.delay_ms < status.target_ms
        operation = Operation.COMFORT_NOISE if self._warming else decide(status)
        if self._trace is not None:
            self._trace.decided.append(Decided(now, operation.value, status.target_ms, status.delay_ms))
        if operation is Operation.EXPAND:
            self._conceal()
        elif operation is Operation.COMFORT_NOISE:
            self._add_noise()
        elif operation is Operation.MERGE:
            self._merge(now)
        else:
            self._play(operation, now)

    def _look(self, now: float) -> BufferStatus:
        """Fill in the status the decision is made from."""
        intake, status, history = self._intake, self._status, self.controller.history
        buffer = intake.buffer
        decision = self.controller.decision
        first = buffer.first()
        while first is not None and first.timestamp < buffer.next_timestamp:
            self.stats.packets_discarded += buffer.drop_overlapped()
            first = buffer.first()
        status.delay_ms = history.delay_ms(buffer.next_timestamp, now=now)
        status.target_ms = decision.target_delay_ms
        status.filled_ms = self._filled * 1000 / self._rate
        status.bridged_ms = self._bridged * 1000 / self._rate
        status.next_held = status.fec_held = status.next_missing = False
        status.hole_follows_ms = 0.0
        status.may_bridge = self._bridge_budget > 0
        if first is None:
            status.hole_ms = None
            status.in_pause = intake.pause_follows
        elif first.timestamp == buffer.next_timestamp:
            status.next_held = True
            status.hole_ms = 0.0
            if len(buffer) > 1:
                status.hole_follows_ms = self._hole_behind(first) * 1000 / RTP_CLOCK_HZ
        else:
            hole = first.timestamp - buffer.next_timestamp
            status.hole_ms = hole * 1000 / RTP_CLOCK_HZ
            status.frame_held_ms = first.duration * 1000 / RTP_CLOCK_HZ
            status.in_pause = not buffer.missing_packets()
            status.next_missing = not status.in_pause
            status.fec_held = not status.in_pause and intake.has_fec(first)
        status.stalled = history.overdue_ms(now=now) > decision.stall_after_ms
        status.since_stretch_ms = self._since_stretch * 1000 / self._rate
        return status

    def _hole_behind(self, first: BufferedPacket) -> int:
        """Ticks missing between `first` and what is held behind it, unless FEC will do or it is a pause."""
        following = self._intake.buffer.second()
        hole = following.timestamp - first.timestamp - first.duration
        if hole <= 0 or (hole <= following.duration and self._intake.has_fec(following)):
            return 0
        return hole if self._intake.buffer.missing_after_first() else 0

    def _append(self, samples: Samples, kind: FrameKind, arrival: float | None) -> None:
        self._pending = np.concatenate((self._pending, samples)) if len(self._pending) else samples
        self._kind = kind
        self._arrival = arrival

    def _conceal(self) -> None:
        stats = self.stats
        frame = self._to_conceal()
        stats.concealment_events += self._filled == 0
        stats.concealed_samples += frame
        if self._filled < FADED_MS * self._rate // 1000:
            samples = self._decoder.conceal(frame)
        else:
            stats.silent_concealed_samples += frame
            samples = self._noise.make(frame)
        self._filled += frame
        self._append(samples, CONCEALED, None)

    def _to_conceal(self) -> int:
        """An output frame, or what is left of the hole where something is held behind it."""
        hole = self._intake.buffer.hole_ticks() // self._ticks_per_sample
        left = hole - self._filled - self._bridged - int(bridge_ahead_ms(self._status) * self._rate / 1000)
        return min(self._frame, max(left, self._rate // 400)) if hole else self._frame

    def _add_noise(self) -> None:
        self.stats.comfort_noise_samples += self._frame
        if not self._warming:
            self._filled += self._frame
        self._append(self._noise.make(self._frame), FrameKind.COMFORT_NOISE, None)

    def _take(self, entry: BufferedPacket, now: float, *, skip: int = 0) -> Samples:
        """Decode `entry`, count it as played from sample `skip` on, and return all of its samples."""
        samples = self._decoder.decode(entry.payload)
        stats = self.stats
        if not len(samples):
            samples = self._decoder.conceal(entry.duration // self._ticks_per_sample)
            stats.concealed_samples += len(samples) - skip
            return samples
        if entry.kind is not DECODED:
            stats.red_packets_recovered += entry.kind is FrameKind.RED
            stats.retransmitted_packets_received += entry.kind is FrameKind.RETRANSMITTED
        self._count(entry.timestamp, len(samples), entry.arrival, entry.kind, now, skip)
        return samples

    def _count(self, timestamp: int, samples: int, arrival: float, kind: FrameKind, now: float, skip: int) -> None:
        output = now + len(self._pending) / self._rate
        stats, played = self.stats, samples - skip
        stats.jitter_buffer_delay += (output - arrival) * played
        stats.jitter_buffer_target_delay += self._status.target_ms / 1000 * played
        stats.jitter_buffer_emitted_count += played
        if self._trace is not None:
            ticks = self._ticks_per_sample
            self._trace.played.append(Played(timestamp + skip * ticks, played * ticks, arrival, output, kind))

    def _recover(self, now: float, skip: int) -> tuple[Samples, BufferedPacket]:
        buffer = self._intake.buffer
        first = buffer.first()
        assert first is not None
        frame = min(first.duration, first.timestamp - buffer.next_timestamp) // self._ticks_per_sample
        samples = self._decoder.recover_fec(first.payload, frame)
        self.stats.fec_packets_received += 1
        start = first.timestamp - frame * self._ticks_per_sample
        self._count(start, frame, first.arrival, FrameKind.FEC, now, skip)
        buffer.skip_to(first.timestamp)
        return samples, first

    def _play(self, operation: Operation, now: float) -> None:
        buffer = self._intake.buffer
        if operation is Operation.RECOVER:
            hole = (buffer.hole_ticks()) // self._ticks_per_sample
            frame = min(hole, buffer.first_duration() // self._ticks_per_sample)
            skip = max(0, self._filled - (hole - frame))
            tail = self._tail() if skip else None
            samples, source = self._recover(now, skip)
            self._filled = self._bridged = 0
            self._append(self._blend(samples, skip, tail), FrameKind.FEC, source.arrival)
            return
        entry = buffer.pop()
        self._bridged = 0
        self._is_held_out = self._status.stalled
        samples = self._take(entry, now)
        self._noise.learn(samples)
        self._since_stretch += len(samples)
        if operation is not Operation.NORMAL:
            samples = self._stretch(operation, samples, now)
        elif len(self._pending) > TRIM_MS * self._rate / 1000 and self._noise.is_passive:
            samples = self._trim(samples)
        self._append(samples, entry.kind, entry.arrival)

    def _trim(self, samples: Samples) -> Samples:
        """In passive sound, take away what stands before the packet: it only delays it within an output frame."""
        lag = len(self._pending)
        if 2 * lag > len(samples):
            return samples
        self.stats.removed_samples_for_acceleration += lag
        return cut(samples, lag)

    def _stretch(self, operation: Operation, samples: Samples, now: float) -> Samples:
        """Return the sound that goes behind what is pending, one period shorter or longer if there is one."""
        buffer = self._intake.buffer
        if operation is not Operation.PREEMPTIVE_EXPAND:
            following = buffer.first()
            if following is not None and following.timestamp == buffer.next_timestamp:
                samples = np.concatenate((samples, self._take(buffer.pop(), now + len(samples) / self._rate)))
        pitch = find_pitch(samples, self._rate)
        if pitch is None:
            return samples
        lag = pitch.lag_samples
        if self._status.stalled and operation is Operation.PREEMPTIVE_EXPAND:
            times = STALL_PERIODS * max(1, len(samples) // lag)
            self.stats.inserted_samples_for_deceleration += times * lag
            return repeat(samples, lag, times=times)
        hole_ms = self._status.hole_follows_ms
        if hole_ms and operation is Operation.PREEMPTIVE_EXPAND:
            return self._bridge(samples, pitch, hole_ms)
        if not self._noise.is_passive and pitch.correlation < likeness_asked(self._status):
            return samples
        self._since_stretch = 0
        if operation is Operation.PREEMPTIVE_EXPAND:
            self.stats.inserted_samples_for_deceleration += lag
            return repeat(samples, lag)
        if operation is Operation.FAST_ACCELERATE:
            lag *= pitch.periods_at_once(len(samples), self._rate)
        self.stats.removed_samples_for_acceleration += lag
        return cut(samples, lag)

    def _hold_out(self, now: float) -> None:
        """In a stall that began within a packet, stretch what is left of it: it may be the last one held."""
        overdue_ms = self.controller.history.overdue_ms(now=now)
        if overdue_ms > self.controller.decision.stall_after_ms and self._arrival is not None:
            longer = hold_out(self._last, self._pending, self._rate, periods=STALL_PERIODS)
            self.stats.inserted_samples_for_deceleration += len(longer) - len(self._pending)
            self._pending, self._is_held_out = longer, True

    def _bridge(self, samples: Samples, pitch: Pitch, hole_ms: float) -> Samples:
        """Stretch the sound before a hole into it: what is repeated is heard less than what is guessed."""
        if not self._noise.is_passive and pitch.correlation < FAST_CORRELATION:
            return samples
        periods = min(MOST_PERIODS, max(1, int(hole_ms / MS_PER_PERIOD)))
        self._bridged = periods * pitch.lag_samples
        self._bridge_budget -= self._bridged
        self.stats.inserted_samples_for_deceleration += self._bridged
        return repeat(samples, pitch.lag_samples, times=periods)

    def _bridge_behind(self, samples: Samples, short: int) -> Samples:
        """Lengthen the sound behind a hole, which begins `short` samples too early, backwards by so much.

        Whole periods are repeated and the surplus cut off in front, so that it begins in the phase it would have had.
        """
        pitch = find_pitch(samples, self._rate)
        if pitch is None or pitch.correlation < FAST_CORRELATION:
            return samples
        lag = pitch.lag_samples
        periods = -(-short // lag)
        self._bridge_budget -= short
        self.stats.inserted_samples_for_deceleration += short
        return repeat(samples, lag, times=periods)[periods * lag - short :]

    def _tail(self) -> Samples:
        """Return concealment that goes on past what was put out, to fade from."""
        return self._decoder.conceal(MERGE_MS * self._rate // 1000)

    def _blend(self, samples: Samples, skip: int, tail: Samples | None) -> Samples:
        kept = samples[skip:]
        if tail is None:
            return kept
        overlap = min(len(tail), len(kept), MERGE_MS * self._rate // 1000)
        return np.concatenate((cross_fade(tail[:overlap], kept[:overlap]), kept[overlap:]))

    def _merge(self, now: float) -> None:
        """Go on with media after concealment or noise, skipping what has been filled in its stead."""
        buffer = self._intake.buffer
        first = buffer.first()
        assert first is not None
        hole = (first.timestamp - buffer.next_timestamp) // self._ticks_per_sample
        surplus = self._surplus(hole, now)
        while surplus >= first.duration // self._ticks_per_sample and len(buffer) > 1:
            surplus -= first.duration // self._ticks_per_sample
            buffer.pop()
            self.stats.packets_discarded += 1
            self.stats.packets_late += 1
            following = buffer.first()
            assert following is not None
            if following.timestamp != buffer.next_timestamp:
                surplus = max(0, surplus - (following.timestamp - buffer.next_timestamp) // self._ticks_per_sample)
            first = following
        entry = buffer.pop()
        skip = min(surplus, entry.duration // self._ticks_per_sample)
        short = hole - self._filled - self._bridged
        self._filled = self._bridged = 0
        if short > 0 and self._status.next_missing and self._status.may_bridge:
            unheard = self._decoder.conceal(short)
            samples = self._blend(self._bridge_behind(self._take(entry, now), short), 0, unheard)
        else:
            tail = self._tail() if skip else None
            samples = self._blend(self._take(entry, now, skip=skip), skip, tail)
        self._append(samples, entry.kind, entry.arrival)

    def _surplus(self, hole: int, now: float) -> int:
        """Return how many samples, filled in beyond the hole, media can skip: none if the path itself is late."""
        history, buffer = self.controller.history, self._intake.buffer
        surplus = self._filled + self._bridged - hole
        if surplus <= 0 or history.newest_excess_ms > self._status.target_ms:
            return 0
        start = buffer.next_timestamp + hole * self._ticks_per_sample
        above_ms = history.delay_ms(start, now=now) - self._status.target_ms
        return min(surplus, max(0, int(above_ms * self._rate / 1000)))
