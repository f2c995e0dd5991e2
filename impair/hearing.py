"""What ears heard of a call: its packets, as they arrived, through the playout reader; offline and repeatable."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from impair.measures import Samples, audible_spans
from jitter.packet import RtpPacket
from jitter.playout import PlayoutReader
from jitter.red import parse_red
from jitter.stats import ReaderStats
from transport.opus import OpusDecoder
from transport.sdp import RED_PAYLOAD_TYPE

RATE_HZ = 48_000
_FRAME_S = 0.01
_AUDIBLE_RMS = 100.0
_SILENCE_S = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Sound from `began_at` on (seconds of the call's clock), int16 at 48 kHz, and when packets brought sound in."""

    samples: Samples
    began_at: float
    onsets: list[float]
    """Arrivals of the first audible packet after each silence."""
    stats: ReaderStats
    """Of the part before `counted_until`."""

    def spans(self) -> list[tuple[float, float]]:
        """(begin, end) of each stretch of sound, seconds of the call's clock."""
        return [(self.began_at + a, self.began_at + b) for a, b in audible_spans(self.samples, RATE_HZ)]

    def between(self, begin: float, end: float) -> Samples:
        """What was heard from here to there."""
        first, last = (max(0, round((at - self.began_at) * RATE_HZ)) for at in (begin, end))
        return self.samples[first:last]

    def sound_between(self, begin: float, end: float) -> Samples:
        """The same from the first sound in it to the last: what was silent before a late reply is not its quality."""
        inside = [(a, b) for a, b in self.spans() if a < end and b > begin]
        return self.between(max(begin, inside[0][0]), min(end, inside[-1][1])) if inside else self.samples[:0]

    @property
    def concealed_pct(self) -> float | None:
        """Output made up from nothing, in percent."""
        total = self.stats.total_samples_received
        return 100 * self.stats.concealed_samples / total if total else None

    @property
    def delay_ms(self) -> float | None:
        """Mean time that sound waited in the buffer."""
        emitted = self.stats.jitter_buffer_emitted_count
        return 1000 * self.stats.jitter_buffer_delay / emitted if emitted else None


def hear(packets: Sequence[RtpPacket], *, until: float, counted_until: float) -> Heard | None:
    """Play these packets to ears until then; statistics stop where counting does. None where none came."""
    arrivals = sorted(packets, key=lambda packet: packet.arrival)
    if not arrivals:
        return None
    reader = PlayoutReader(OpusDecoder(RATE_HZ), red_payload_type=RED_PAYLOAD_TYPE)
    began_at = arrivals[0].arrival
    frames: list[Samples] = []
    counted: ReaderStats | None = None
    upcoming = 0
    for index in range(max(1, round((until - began_at) / _FRAME_S))):
        now = began_at + index * _FRAME_S
        while upcoming < len(arrivals) and arrivals[upcoming].arrival <= now:
            reader.handle_packet(arrivals[upcoming], now=arrivals[upcoming].arrival)
            upcoming += 1
        if counted is None and now >= counted_until:
            counted = dataclasses.replace(reader.stats)
        frames.append(reader.get_audio(now=now).samples)
    return Heard(
        samples=np.concatenate(frames),
        began_at=began_at,
        onsets=_onsets(arrivals),
        stats=counted or dataclasses.replace(reader.stats),
    )


def _onsets(arrivals: Sequence[RtpPacket]) -> list[float]:
    decoder = OpusDecoder(16_000)
    onsets: list[float] = []
    audible_at = -np.inf
    for packet in arrivals:
        payload = packet.payload
        if packet.payload_type == RED_PAYLOAD_TYPE:
            blocks = parse_red(payload)
            if blocks is None:
                continue
            payload = blocks[-1].payload
        samples = decoder.decode(payload)
        if len(samples) and float(np.sqrt(np.mean(np.square(samples.astype(np.float32))))) > _AUDIBLE_RMS:
            if packet.arrival - audible_at > _SILENCE_S:
                onsets.append(packet.arrival)
            audible_at = packet.arrival
    return onsets
