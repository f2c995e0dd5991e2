"""Payloads for replay: a speech clip by number of frame, for a decoder that only looks the sound up. Pure."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np

from jitter.decoder import Samples

CLIP = Path(__file__).parent / "data" / "speech_mulaw_16k.npy"
"""Eleven seconds of a US government recording in the public domain, mu-law, 16 kHz."""
CLIP_RATE_HZ = 16_000
FEC_SHARE = 0.77
CONCEAL_FADE = 0.7
"""Each concealed piece against the one before, in the look-up decoder."""


def load_clip(sample_rate_hz: int) -> Samples:
    """Return the clip at 16 or 48 kHz, int16."""
    code = np.load(CLIP).astype(np.float32) / 127
    sound = np.sign(code) * (np.power(256.0, np.abs(code)) - 1) / 255 * 32767
    if sample_rate_hz != CLIP_RATE_HZ:
        factor = sample_rate_hz // CLIP_RATE_HZ
        at = np.arange(len(sound) * factor) / factor
        sound = np.interp(at, np.arange(len(sound)), sound)
    return np.asarray(np.round(sound), np.int16)


class ClipSpeech:
    """Payload: frame number (4 bytes), length in ms (1), whether the frame before is in it (1)."""

    def __init__(self, ptimes_ms: list[int], *, seed: int) -> None:
        draw = Random(f"fec {seed}").random
        self._plain = [index.to_bytes(4, "big") + bytes([ptime, 0]) for index, ptime in enumerate(ptimes_ms)]
        self._with_fec = [payload[:5] + bytes([draw() < FEC_SHARE]) for payload in self._plain]

    def payload(self, index: int, *, fec: bool) -> bytes:
        """Return packet `index`'s payload."""
        return self._with_fec[index] if fec else self._plain[index]


class ClipDecoder:
    """Looks the sound of a frame up in the clip; implements `AudioDecoder`."""

    def __init__(self, sample_rate_hz: int, *, silent: bool = False) -> None:
        """`silent` gives zeros, for readers that do not look at sound."""
        self.sample_rate_hz = sample_rate_hz
        self._per_ms = sample_rate_hz // 1000
        self._clip = np.zeros(sample_rate_hz // 2, np.int16) if silent else load_clip(sample_rate_hz)
        self._silence = np.zeros(sample_rate_hz, np.int16)
        self._last = self._silence[:0]

    def duration_samples(self, payload: bytes) -> int:
        """Return the samples of `payload`; 0 if it is none of ours."""
        return payload[4] * self._per_ms if len(payload) == 6 else 0

    def has_fec(self, payload: bytes) -> bool:
        """Say whether the frame before can be had from `payload`."""
        return payload[5] == 1

    def decode(self, payload: bytes) -> Samples:
        """Return the frame's sound."""
        return self._sound(int.from_bytes(payload[:4], "big"), payload[4] * self._per_ms)

    def _sound(self, index: int, samples: int) -> Samples:
        at = index * samples % (len(self._clip) - samples)
        self._last = self._clip[at : at + samples]
        return self._last

    def conceal(self, samples: int) -> Samples:
        """Return the last sound again, fading."""
        last = self._last
        if len(last) < samples:
            return self._silence[:samples]
        piece = np.asarray(last[-samples:] * np.float32(CONCEAL_FADE), np.int16)
        self._last = piece if len(piece) >= len(last) else last
        return piece

    def recover_fec(self, next_payload: bytes, samples: int) -> Samples:
        """Return the sound before the frame of `next_payload`."""
        return self._sound(max(int.from_bytes(next_payload[:4], "big") - 1, 0), samples)

    def reset(self) -> None:
        """Forget the last sound."""
        self._last = self._silence[:0]
