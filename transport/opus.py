"""Opus by libopus: decode with concealment and in-band FEC, and an encoder whose settings change at run time.

aiortc's own codec (PyAV) can do none of these. Audio is mono int16, shape (samples,). One frame costs about 20 µs to
decode and 0.2 ms to encode, so both run on the loop. See docs/decisions/0300-libopus-by-ctypes.md.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from transport import libopus
from transport.errors import LocalProtocolError, OpusError

Samples = NDArray[np.int16]

MAX_PACKET_MS = 120
"""The longest Opus packet (RFC 6716 §3.2.5)."""
MAX_PAYLOAD_BYTES = 1275
"""The longest Opus frame (RFC 6716 §3.4)."""
MIN_BITRATE_BPS, MAX_BITRATE_BPS = 24_000, 64_000
"""Below 24 kb/s libopus writes no FEC in wide band; above 64 kb/s speech in wide band gains nothing."""
DTX_MAX_BYTES = 2
"""A payload this short carries no frame: the sender is silent (libopus's DTX, libwebrtc's rule)."""
RATES_HZ = (8000, 12_000, 16_000, 24_000, 48_000)


def is_dtx(payload: bytes) -> bool:
    """Whether `payload` is a sign of silence, with no sound in it."""
    return len(payload) <= DTX_MAX_BYTES


_FRAME_TENTHS_MS = (100, 200, 400, 600) * 3 + (100, 200) * 2 + (25, 50, 100, 200) * 4
"""Length of one frame by the configuration number of RFC 6716 §3.1, table 2."""


def duration_samples(payload: bytes, sample_rate_hz: int) -> int:
    """Return how many samples `payload` decodes to at `sample_rate_hz`, 0 where it is no Opus packet (RFC 6716 §3.1).

    Read off the first two bytes here: libopus does the same, and the call costs six times as much.
    """
    if not payload:
        return 0
    first = payload[0]
    frames = 1
    if first & 3:
        if first & 3 < 3:
            frames = 2
        elif len(payload) < 2:
            return 0
        else:
            frames = payload[1] & 0x3F
    tenths_ms = _FRAME_TENTHS_MS[first >> 3] * frames
    return tenths_ms * sample_rate_hz // 10_000 if tenths_ms <= 10 * MAX_PACKET_MS else 0


def has_lbrr(payload: bytes) -> bool:
    """Whether `payload` carries a redundant copy of the frame before it (RFC 6716 §4.2.4; libopus 1.3 has no call)."""
    if len(payload) <= DTX_MAX_BYTES or payload[0] & 0x80:  # nothing, or CELT only
        return False
    configuration, stereo = payload[0] >> 3, bool(payload[0] & 0x04)
    start = _first_frame(payload)
    if start is None:
        return False
    # SILK frames of 20 ms in one Opus frame: 10 and 20 ms hold one, 40 and 60 ms two and three; hybrid always one.
    frames = {2: 2, 3: 3}.get(configuration & 0x03, 1) if configuration < 12 else 1
    first = payload[start]
    # One voice-activity bit a frame, then the LBRR flag; for stereo the same again.
    flags = (first >> (7 - frames)) & 1
    if stereo:
        flags |= (first >> (6 - 2 * frames)) & 1
    return bool(flags)


def _first_frame(payload: bytes) -> int | None:
    """Return the offset of the first frame in `payload`, None where that frame is empty (RFC 6716 §3.2)."""
    code, position = payload[0] & 0x03, 1
    lengths = 1 if code == 2 else 0
    if code == 3:
        position = 2
        if payload[1] & 0x40:  # padding: a run of 255 and one byte more
            while position < len(payload):
                position += 1
                if payload[position - 1] != 255:
                    break
        lengths = (payload[1] & 0x3F) - 1 if payload[1] & 0x80 else 0
    for n in range(lengths):
        if position >= len(payload) or (n == 0 and payload[position] == 0):
            return None
        position += 1 if payload[position] < 252 else 2
    return position if position < len(payload) else None


class OpusDecoder:
    """Implements `jitter.decoder.AudioDecoder`; a corrupt payload decodes to nothing, never to an exception."""

    def __init__(self, sample_rate_hz: int = 16_000) -> None:
        if sample_rate_hz not in RATES_HZ:
            raise LocalProtocolError(f"Opus decodes to {RATES_HZ} Hz, not to {sample_rate_hz}")
        self.sample_rate_hz = sample_rate_hz
        self._library = libopus.load()
        self._state = _create(self._library.opus_decoder_create, sample_rate_hz, 1)
        self._buffer = np.zeros(sample_rate_hz * MAX_PACKET_MS // 1000, dtype=np.int16)
        self._buffer_address = self._buffer.ctypes.data
        self._durations = tuple(duration_samples(bytes((first,)), sample_rate_hz) for first in range(256))
        self._step_samples = sample_rate_hz // 400  # libopus conceals in steps of 2.5 ms

    def __del__(self) -> None:
        if getattr(self, "_state", 0):
            self._library.opus_decoder_destroy(self._state)
            self._state = 0

    def decode(self, payload: bytes) -> Samples:
        """Return the sound of `payload` (0 to 120 ms of it), empty where it is no Opus packet."""
        if not payload:
            return self._buffer[:0].copy()
        return self._decode(payload, len(self._buffer), fec=0)

    def conceal(self, samples: int) -> Samples:
        """Return `samples` of libopus's packet loss concealment, which fades out by itself."""
        pieces = []
        missing = samples
        while missing > 0:
            piece = self._decode(None, min(self._round_up(missing), len(self._buffer)), fec=0)
            pieces.append(piece[:missing])
            missing -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces) if pieces else self._buffer[:0].copy()

    def recover_fec(self, next_payload: bytes, samples: int) -> Samples:
        """Return the `samples` before `next_payload`: its FEC copy of the last frame, concealment before that."""
        room = len(self._buffer)
        if samples > room:
            return np.concatenate([self.conceal(samples - room), self.recover_fec(next_payload, room)])
        recovered = self._decode(next_payload, self._round_up(samples), fec=1)
        return recovered[-samples:] if 0 < samples <= len(recovered) else self.conceal(samples)

    def has_fec(self, payload: bytes) -> bool:
        """Whether `payload` carries a copy of the frame before it."""
        return has_lbrr(payload)

    def duration_samples(self, payload: bytes) -> int:
        """Return how many samples `payload` decodes to, 0 where it is no Opus packet."""
        if payload and payload[0] & 3 != 3:  # the first byte says it all
            return self._durations[payload[0]]
        return duration_samples(payload, self.sample_rate_hz)

    def reset(self) -> None:
        """Forget all state, as after a new SSRC."""
        self._library.opus_decoder_ctl(self._state, libopus.RESET_STATE)

    def _round_up(self, samples: int) -> int:
        return -(-samples // self._step_samples) * self._step_samples

    def _decode(self, payload: bytes | None, room_samples: int, *, fec: int) -> Samples:
        length = 0 if payload is None else len(payload)
        got = self._library.opus_decode(self._state, payload, length, self._buffer_address, room_samples, fec)
        return self._buffer[: max(got, 0)].copy()


class OpusEncoder:
    """Mono, VOIP, wide band, one frame a call; `bitrate_bps` 24 000 to 64 000, `expected_loss_pct` 0 to 100."""

    def __init__(
        self,
        sample_rate_hz: int = 48_000,
        bitrate_bps: int = 28_000,
        *,
        fec: bool = True,
        expected_loss_pct: int = 5,
        dtx: bool = False,
        complexity: int = 9,
        min_bitrate_bps: int = MIN_BITRATE_BPS,
    ) -> None:
        """`min_bitrate_bps` may go below 24 000 where no FEC is wanted, as in the copies of RED."""
        self._min_bitrate_bps = min_bitrate_bps
        if sample_rate_hz not in RATES_HZ:
            raise LocalProtocolError(f"Opus encodes from {RATES_HZ} Hz, not from {sample_rate_hz}")
        self.sample_rate_hz = sample_rate_hz
        self._library = libopus.load()
        self._state = _create(self._library.opus_encoder_create, sample_rate_hz, 1, libopus.APPLICATION_VOIP)
        self._packet = ctypes.create_string_buffer(MAX_PAYLOAD_BYTES)
        self._packet_view = memoryview(self._packet)
        self._fec = fec
        self._expected_loss_pct = expected_loss_pct
        # In full band libopus gives LBRR up before it narrows the band: in wide band the copy is always there.
        self._set(libopus.SET_MAX_BANDWIDTH, libopus.BANDWIDTH_WIDEBAND)
        self._set(libopus.SET_SIGNAL, libopus.SIGNAL_VOICE)
        self._set(libopus.SET_COMPLEXITY, complexity)
        self.set_bitrate(bitrate_bps)
        self.set_fec(fec)
        self.set_expected_loss(expected_loss_pct)
        self.set_dtx(dtx)

    def __del__(self) -> None:
        if getattr(self, "_state", 0):
            self._library.opus_encoder_destroy(self._state)
            self._state = 0

    def encode(self, samples: Samples) -> bytes:
        """Return one packet for one frame (2.5, 5, 10, 20, 40 or 60 ms); with DTX, one or two bytes in silence."""
        if samples.dtype != np.int16 or not samples.flags.c_contiguous:
            samples = np.ascontiguousarray(samples, dtype=np.int16)
        size = self._library.opus_encode(
            self._state, samples.ctypes.data, len(samples), self._packet, MAX_PAYLOAD_BYTES
        )
        if size < 0:
            raise LocalProtocolError(f"libopus cannot encode {len(samples)} samples: {libopus.error_text(size)}")
        return bytes(self._packet_view[:size])

    def set_bitrate(self, bitrate_bps: int) -> None:
        """Set the bit rate, FEC included, from the next frame on."""
        if not self._min_bitrate_bps <= bitrate_bps <= MAX_BITRATE_BPS:
            raise LocalProtocolError(f"bitrate_bps is {self._min_bitrate_bps} to {MAX_BITRATE_BPS}, not {bitrate_bps}")
        self._set(libopus.SET_BITRATE, bitrate_bps)

    def set_fec(self, fec: bool) -> None:
        """Carry a copy of the frame before in each frame, or stop to."""
        self._fec = fec
        self._set(libopus.SET_INBAND_FEC, int(fec))
        self._apply_loss()

    def set_expected_loss(self, expected_loss_pct: int) -> None:
        """Tell the encoder the loss to expect, in percent: it sizes the copies of FEC by it."""
        if not 0 <= expected_loss_pct <= 100:
            raise LocalProtocolError(f"expected_loss_pct is 0 to 100, not {expected_loss_pct}")
        self._expected_loss_pct = expected_loss_pct
        self._apply_loss()

    def set_dtx(self, dtx: bool) -> None:
        """Let silence shrink to packets of one or two bytes, with a whole one every 400 ms."""
        self._set(libopus.SET_DTX, int(dtx))

    def reset(self) -> None:
        """Forget the signal so far; the settings stay."""
        self._library.opus_encoder_ctl(self._state, libopus.RESET_STATE)

    def _apply_loss(self) -> None:
        # At 0 % libopus writes no FEC even where it is asked to.
        self._set(libopus.SET_PACKET_LOSS_PERC, max(self._expected_loss_pct, 1 if self._fec else 0))

    def _set(self, request: int, value: int) -> None:
        result = self._library.opus_encoder_ctl(self._state, request, ctypes.c_int32(value))
        if result < 0:
            raise OpusError(f"libopus refuses setting {request} = {value}: {libopus.error_text(result)}")


def _create(function: object, *arguments: int) -> int:
    assert callable(function)
    error = ctypes.c_int()
    state: int | None = function(*arguments, ctypes.byref(error))
    if not state:
        raise OpusError(f"libopus cannot start a codec: {libopus.error_text(error.value)}")
    return state
