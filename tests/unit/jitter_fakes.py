"""A decoder whose samples tell where they come from, and packets for it."""

from __future__ import annotations

import numpy as np

from jitter.decoder import Samples
from jitter.packet import RtpPacket

PTIME_TICKS = 960
CONCEALED_VALUE = -1
FEC_OFFSET = 10_000


class FakeDecoder:
    """16 kHz. Payload: value (2 bytes), duration in ms (1 byte), flags (1 byte: 1 = carries FEC of value - 1)."""

    sample_rate_hz = 16_000

    def __init__(self) -> None:
        self.resets = 0

    def duration_samples(self, payload: bytes) -> int:
        return payload[2] * 16 if len(payload) == 4 else 0

    def has_fec(self, payload: bytes) -> bool:
        return bool(payload[3] & 1)

    def decode(self, payload: bytes) -> Samples:
        value = int.from_bytes(payload[:2], "big") & 0x7FFF
        if payload[3] & 2:
            return np.zeros(0, np.int16)
        return np.full(self.duration_samples(payload), value, np.int16)

    def conceal(self, samples: int) -> Samples:
        return np.full(samples, CONCEALED_VALUE, np.int16)

    def recover_fec(self, next_payload: bytes, samples: int) -> Samples:
        return np.full(samples, (int.from_bytes(next_payload[:2], "big") - 1 + FEC_OFFSET) & 0x7FFF, np.int16)

    def reset(self) -> None:
        self.resets += 1


def payload(value: int, *, ms: int = 20, fec: bool = False, corrupt: bool = False) -> bytes:
    return bytes([value >> 8 & 0x7F, value & 0xFF, ms, fec + 2 * corrupt])


def packet(
    index: int,
    *,
    arrival: float | None = None,
    ms: int = 20,
    fec: bool = False,
    corrupt: bool = False,
    ssrc: int = 1,
    first_sequence: int = 0,
    first_timestamp: int = 0,
    skip_ticks: int = 0,
) -> RtpPacket:
    """The packet with number `index` of a stream of `ms` packets, arriving on time unless told otherwise."""
    return RtpPacket(
        sequence_number=(first_sequence + index) & 0xFFFF,
        timestamp=(first_timestamp + index * ms * 48 + skip_ticks) & 0xFFFFFFFF,
        payload_type=111,
        ssrc=ssrc,
        payload=payload(index, ms=ms, fec=fec, corrupt=corrupt),
        arrival=index * ms / 1000 if arrival is None else arrival,
    )
