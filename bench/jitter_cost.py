"""What the readers cost a packet, as a ratio to libopus's decoding of the same packets in the same run.

Counted is everything a call does per packet: `handle_packet`, `poll` or `get_audio` (48 kHz, 10 ms), `poll_requests`,
timers, controller, stretch, and libopus's concealment and FEC of what is missing. The decode of the packets themselves,
which every receiver pays, is timed apart, through the same binding, in turns with it. `own_ratio` is the reader's work
in addition to that decode; one more is the ratio with it.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from impair.link import transit
from impair.profiles import find_profile
from jitter.controller import Controller
from jitter.listen import ListenReader
from jitter.packet import RtpPacket
from jitter.planner import Listener
from jitter.playout import PlayoutReader
from jitter.replay_speech import load_clip
from transport.opus import OpusDecoder, OpusEncoder

PATHS = ("clean", "jitter30", "loss5_jitter30")
FRAME_S = 0.01
BITRATE_BPS = 24_000
PACKETS, QUICK_PACKETS = 180_000, 12_000
PARTS = 10
ASKED = {"listen": 1.5, "playout": 3.0}
"""The most `own_ratio` may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one reader on one path."""

    reader: str
    path: str
    own_ratio: float
    """The reader's time in addition to decoding, over decoding."""
    own_ratio_ci95: tuple[float, float]
    decode_us: float
    growth: float
    """Time of the last tenth over that of the second."""
    packets: int

    def as_row(self) -> dict[str, Any]:
        """Return it for JSON."""
        row = {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}
        return row | {"own_ratio_ci95": [round(edge, 3) for edge in self.own_ratio_ci95]}


def measure_costs(*, quick: bool, seed: int) -> list[Cost]:
    """Measure both readers on every path; an hour of packets each, or four minutes."""
    payloads = _encode()
    packets = QUICK_PACKETS if quick else PACKETS
    return [_measure(reader, path, payloads, packets, seed) for reader in ("listen", "playout") for path in PATHS]


def _encode() -> list[bytes]:
    clip = load_clip(48_000)
    encoder = OpusEncoder(48_000, BITRATE_BPS)
    encoder.set_fec(True)
    encoder.set_expected_loss(5)
    return [encoder.encode(clip[at : at + 960]) for at in range(0, len(clip) - 960, 960)]


def _measure(reader: str, path: str, payloads: list[bytes], packets: int, seed: int) -> Cost:
    arrivals = transit(find_profile(path).stages("down"), [0.02 * n for n in range(packets)], seed=seed)
    incoming = sorted(
        (
            RtpPacket(n & 0xFFFF, n * 960 & 0xFFFFFFFF, 111, 1, payloads[n % len(payloads)], arrival)
            for n, arrival in enumerate(arrivals)
            if arrival is not None
        ),
        key=lambda packet: packet.arrival,
    )
    rate_hz = 16_000 if reader == "listen" else 48_000
    decoder = OpusDecoder(rate_hz)
    controller = Controller(listener=Listener(reader))
    controller.handle_round_trip(rtt_ms=60.0, now=0.0)
    part = -(-len(incoming) // PARTS)
    walk = _Listening(rate_hz, controller) if reader == "listen" else _Playing(rate_hz, controller)
    reading, decoding = [], []
    for start in range(0, len(incoming), part):
        piece = incoming[start : start + part]
        began = time.process_time()
        walk.run(piece)
        between = time.process_time()
        for packet in piece:
            decoder.decode(packet.payload)
        reading.append(between - began)
        decoding.append(time.process_time() - between)
    return Cost(
        reader=reader,
        path=path,
        own_ratio=sum(reading) / sum(decoding) - 1,
        own_ratio_ci95=_interval([read / decoded - 1 for read, decoded in zip(reading, decoding, strict=True)]),
        decode_us=1e6 * sum(decoding) / len(incoming),
        growth=(reading[-1] / decoding[-1]) / (reading[1] / decoding[1]),
        packets=len(incoming),
    )


def _interval(ratios: list[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean over the parts of the run."""
    drawn = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.quantile(drawn.mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


class _Listening:
    def __init__(self, rate_hz: int, controller: Controller) -> None:
        self._reader = ListenReader(OpusDecoder(rate_hz), controller=controller)

    def run(self, packets: list[RtpPacket]) -> None:
        reader = self._reader
        for packet in packets:
            now = packet.arrival
            timer = reader.get_timer()
            while timer is not None and timer < now:
                reader.handle_timer(now=timer)
                reader.poll(now=timer)
                reader.poll_requests(now=timer)
                timer = reader.get_timer()
            reader.handle_packet(packet, now=now)
            reader.poll(now=now)
            reader.poll_requests(now=now)


class _Playing:
    def __init__(self, rate_hz: int, controller: Controller) -> None:
        self._reader = PlayoutReader(OpusDecoder(rate_hz), controller=controller)
        self._frames = 0

    def run(self, packets: list[RtpPacket]) -> None:
        reader = self._reader
        for packet in packets:
            while self._frames * FRAME_S < packet.arrival:
                now = self._frames * FRAME_S
                reader.poll_requests(now=now)
                reader.get_audio(now=now)
                self._frames += 1
            reader.handle_packet(packet, now=packet.arrival)
