"""Hands aiortc ready Opus packets, each in its time.

aiortc's sender asks its track for the next frame and packs an `av.Packet` as it is, without its own encoder (96 kb/s,
stereo, no setting changeable) and without its thread pool.
"""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import Any

import av
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

from transport.outbound_stream import OutboundStream
from transport.playout_queue import SAMPLE_RATE_HZ

_TIME_BASE = Fraction(1, SAMPLE_RATE_HZ)


class OutboundTrack(MediaStreamTrack):
    """An audio track that is paced by `stream`; owned and stopped by the sender it is given to."""

    kind = "audio"

    def __init__(self, stream: OutboundStream) -> None:
        super().__init__()
        self.stream = stream
        self._clock = asyncio.get_running_loop()
        self._sleeper: asyncio.Future[None] | None = None
        stream.queue.on_capture = self._wake

    async def recv(self) -> av.Packet[Any]:
        """Return the next packet when it is due; raises MediaStreamError once stopped."""
        if self.stream.get_timer() is None:
            self.stream.start(now=self._clock.time())
        while self.readyState == "live":
            packet = self.stream.handle_timer(now=self._clock.time())
            if packet is not None:
                ready = av.Packet(packet.payload)
                ready.pts = packet.timestamp
                ready.time_base = _TIME_BASE
                return ready
            await self._sleep()
        raise MediaStreamError

    def stop(self) -> None:
        """End the track; a `recv` in progress raises."""
        super().stop()
        self.stream.queue.on_capture = None
        self._rouse()

    async def _sleep(self) -> None:
        due = self.stream.get_timer()
        assert due is not None
        self._sleeper = self._clock.create_future()
        timer = self._clock.call_at(due, self._rouse)
        try:
            await self._sleeper
        finally:
            timer.cancel()
            self._sleeper = None

    def _wake(self) -> None:
        self.stream.wake(now=self._clock.time())
        self._rouse()

    def _rouse(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)
