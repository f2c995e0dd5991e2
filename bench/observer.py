"""The caller's side of a measured call: what reaches it and when, and what it puts on the line."""

from __future__ import annotations

import asyncio
from typing import Final

import numpy as np
import soxr

from bench.turn_measures import AUDIBLE_DB, Level, Shown, level_db
from jitter.frame import AudioFrame
from peer.engines.base import LISTEN_RATE_HZ, Samples
from peer.softphone_audio import SEND_RATE_HZ
from peer.softphone_call import SoftphoneCall, SoftphoneError
from transport.messages import CallMessage, CallState, ReplyDone, SpeechStopped, UserTranscript, UserTranscriptDelta

_MS: Final = SEND_RATE_HZ // 1000
LEAD_MS: Final = 200
"""Faint noise before every recording."""


class Observer:
    """Everything that reaches the caller, with its time."""

    def __init__(self, call: SoftphoneCall) -> None:
        self.levels: list[Level] = []
        self.received: list[Samples] = []
        """The sound of each of the levels."""
        self.shown: list[Shown] = []
        self.done: list[tuple[float, ReplyDone]] = []
        self.stops: list[SpeechStopped] = []
        self.transcripts: list[UserTranscript] = []
        self.zero_at: float | None = None
        """When the server's `_ms` began, by the fastest message about it."""
        self._loop: Final = asyncio.get_running_loop()
        self._before: Final = call.connection.on_audio
        call.on_message = self._handle_message
        call.connection.on_audio = self._handle_audio

    def forget(self) -> None:
        """Begin a new turn."""
        for items in (self.levels, self.received, self.shown, self.done, self.stops, self.transcripts):
            items.clear()

    def received_until(self, at: float) -> Samples:
        """Return the sound that arrived in this turn before a time, int16 at 16 kHz."""
        parts = [sound for level, sound in zip(self.levels, self.received, strict=True) if level.at <= at]
        return np.concatenate(parts) if parts else np.zeros(0, np.int16)

    def _handle_audio(self, frames: list[AudioFrame], now: float) -> None:
        if self._before is not None:
            self._before(frames, now)
        for frame in frames:
            at = now if frame.arrival is None else frame.arrival
            self.levels.append(Level(at=at, db=level_db(frame.samples)))
            self.received.append(frame.samples)

    def _handle_message(self, message: CallMessage) -> None:
        now = self._loop.time()
        if isinstance(message, CallState):
            zero_at = now - message.at_ms / 1000
            self.zero_at = zero_at if self.zero_at is None else min(self.zero_at, zero_at)
        elif isinstance(message, UserTranscriptDelta):
            self.shown.append(Shown(at=now, text=message.text, stable_chars=message.stable_chars))
        elif isinstance(message, UserTranscript):
            self.shown.append(Shown(at=now, text=message.text, stable_chars=len(message.text)))
            self.transcripts.append(message)
        elif isinstance(message, ReplyDone):
            self.done.append((now, message))
        elif isinstance(message, SpeechStopped):
            self.stops.append(message)


async def settle(call: SoftphoneCall, observer: Observer) -> None:
    """Wait until the server has been listening in silence for a while."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 60.0
    quiet_since = loop.time()
    while loop.time() - quiet_since < 1.0:
        sounding = bool(observer.levels) and max(level.db for level in observer.levels[-10:]) > AUDIBLE_DB
        if not call.log.settled or sounding:
            quiet_since = loop.time()
        if loop.time() > deadline:
            raise SoftphoneError(5, f"the server does not settle; it is {call.log.state}")
        await asyncio.sleep(0.05)


def to_line(samples: Samples) -> Samples:
    """Return a recording (16 kHz) as it goes on the line: at 48 kHz, LEAD_MS later, in faint noise."""
    lead = np.zeros(LEAD_MS * _MS, np.int16)
    line = np.clip(soxr.resample(samples.astype(np.float32), LISTEN_RATE_HZ, SEND_RATE_HZ), -32768, 32767)
    noise = np.random.default_rng(5).normal(0, 6, len(lead) + len(line))
    return np.asarray(np.clip(np.concatenate([lead, line]) + noise, -32768, 32767), np.int16)
