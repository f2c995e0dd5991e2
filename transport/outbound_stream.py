"""What to send when: speech from the queue in 20 ms slots, silence at almost no cost, RTP time that never slips. Pure.

Slots stand on absolute deadlines, and RTP time is the slots': a late timer never becomes a clock that runs slow. Up to
three missed slots of speech are sent at once, late, which the receiver's buffer smooths over; more, or missed silence,
are left out, since by then the receiver has filled the time itself (docs/decisions/0304-missed-slots.md).

In silence the encoder's DTX ends in a packet of one or two bytes; from there one such packet every 400 ms tells the
receiver's NetEQ that nothing is lost (libwebrtc sends the same), and speech that comes in between starts at once
instead of at the next slot (docs/decisions/0302-silence-outbound.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from transport.opus import OpusEncoder, is_dtx
from transport.playout_queue import FRAME_SAMPLES, SAMPLE_RATE_HZ, PlayoutQueue

SLOT_S = FRAME_SAMPLES / SAMPLE_RATE_HZ
DTX_REFRESH_S = 0.4
"""libopus and libwebrtc let no more than 400 ms of silence pass without a packet."""
MAX_CATCH_UP_SLOTS = 3
"""60 ms: what a receiver's buffer commonly holds."""
_SILENCE = np.zeros(FRAME_SAMPLES, dtype=np.int16)
_EPSILON_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundPacket:
    """One Opus packet of 20 ms."""

    payload: bytes
    timestamp: int
    """Samples at 48 kHz since the stream began; the RTP timestamp is this plus a random offset."""
    is_speech: bool
    """It holds sound from the queue."""
    copy: bytes = b""
    """The same frame at a lower rate, to ride along with later packets; empty where none is wanted."""


class OutboundStream:
    """Turns a `PlayoutQueue` into packets: call `handle_timer(now)` when `get_timer()` says so."""

    def __init__(self, queue: PlayoutQueue, encoder: OpusEncoder) -> None:
        encoder.set_dtx(True)
        self.copy_encoder: OpusEncoder | None = None
        """Encodes each frame of speech once more, for copies."""
        self.queue = queue
        self.encoder = encoder
        self.on_packet: Callable[[OutboundPacket, float], None] | None = None
        """Called with each packet as it leaves, and when."""
        self.missed_slots = 0
        """Slots left out because the timer came too late."""
        self.packets_sent = 0
        self._origin: float | None = None  # when timestamp `_origin_timestamp` was due
        self._origin_timestamp = 0
        self._slot = 0  # the next slot, counted from the origin
        self._quiet: bytes | None = None  # the packet that says "still silent", while we are

    def start(self, *, now: float) -> None:
        """Let the first slot be `now`."""
        self._origin = now
        self._slot = 0

    def get_timer(self) -> float | None:
        """Return when the next packet is due, in seconds; None before `start`."""
        return None if self._origin is None else self._origin + self._slot * SLOT_S

    def wake(self, *, now: float) -> None:
        """Speech has come: if only silence was being sent, the next slot is `now`."""
        due = self.get_timer()
        if due is None or self._quiet is None or self._origin is None or due <= now:
            return
        last_sent = due - DTX_REFRESH_S
        now = max(now, last_sent + SLOT_S)
        self._origin_timestamp += round((now - self._origin) * SAMPLE_RATE_HZ)
        self._origin = now
        self._slot = 0

    def handle_timer(self, *, now: float) -> OutboundPacket | None:
        """Return the packet of the slot that is due, None where none is."""
        due = self.get_timer()
        if due is None or now < due - _EPSILON_S:
            return None
        missed = int((now - due + _EPSILON_S) / SLOT_S)
        if missed > MAX_CATCH_UP_SLOTS or not self.queue.playing:
            self.missed_slots += missed
            self._slot += missed
        frame = self.queue.pull(now=now)
        timestamp = self._origin_timestamp + self._slot * FRAME_SAMPLES
        if frame is None and self._quiet is not None:
            payload = self._quiet
            self._slot += round(DTX_REFRESH_S / SLOT_S)
        else:
            payload = self.encoder.encode(_SILENCE if frame is None else frame)
            self._quiet = payload if frame is None and is_dtx(payload) else None
            self._slot += round(DTX_REFRESH_S / SLOT_S) if self._quiet else 1
        copy = self.copy_encoder.encode(frame) if self.copy_encoder is not None and frame is not None else b""
        packet = OutboundPacket(payload=payload, timestamp=timestamp, is_speech=frame is not None, copy=copy)
        self.packets_sent += 1
        if self.on_packet is not None:
            self.on_packet(packet, now)
        return packet
