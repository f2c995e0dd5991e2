"""The caller of the harness: a real WebRTC call of ours to any target, who speaks recordings and hears with fresh ears.

It listens by the level of sound alone, so that a target needs to tell nothing; every packet is kept with its time of
arrival, and what ears would have heard is worked out afterwards by the playout reader, the same for every target.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from impair.errors import TargetError
from impair.hearing import Heard, hear
from impair.measures import Samples, audible_spans
from impair.targets import Signaling
from jitter.frame import AudioFrame
from jitter.packet import RtpPacket
from peer.softphone_audio import SEND_RATE_HZ, FaintNoise, read_audio, read_labels, speech_end_ms
from transport.config import TransportConfig
from transport.errors import AntiphonError
from transport.messages import CallMessage, decode
from transport.peer_connection import PeerConnection, State

_AHEAD_MS = 200.0
_FEED_S = 0.05
_POLL_S = 0.02
_AUDIBLE_RMS = 100.0
_CONNECT_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clip:
    """A recording to speak: int16 at 48 kHz, where its speech begins and ends, and what it says, if that is known."""

    name: str
    samples: Samples
    speech_end_s: float
    text: str | None
    speech_begin_s: float = 0.0

    @classmethod
    def load(cls, path: Path) -> Clip:
        """From a WAV or FLAC file; its text stands in NAME.txt beside it, where its speech ends may in NAME.json."""
        samples = read_audio(path)
        words = path.with_suffix(".txt")
        text = words.read_text(encoding="utf-8").strip() if words.is_file() else None
        spans = audible_spans(samples, SEND_RATE_HZ)
        labels = read_labels(path)
        return cls(
            name=path.stem,
            samples=samples,
            speech_begin_s=spans[0][0] if spans else 0.0,
            speech_end_s=(labels[-1] if labels else speech_end_ms(samples, SEND_RATE_HZ)) / 1000,
            text=text or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Said:
    """A clip as it was spoken: seconds of the loop's clock."""

    clip: Clip
    began_at: float
    speech_ended_at: float

    @property
    def speech_began_at(self) -> float:
        """When the voice in it set in."""
        return self.began_at + self.clip.speech_begin_s


@dataclass(slots=True)
class CallRecord:
    """Everything of a call that is measured afterwards; times are seconds of the loop's clock."""

    began_at: float = 0.0
    connected_at: float | None = None
    said: list[Said] = field(default_factory=list)
    packets: list[RtpPacket] = field(default_factory=list)
    messages: list[tuple[float, CallMessage]] = field(default_factory=list)
    lost: str | None = None
    rtt_ms: float | None = None
    recovered_at: float | None = None
    """When media came again after the outage, where packets are not kept."""
    missed_slots: int = 0
    """20 ms slots that this machine was too busy to send in."""


@dataclass(slots=True)
class Marks:
    """Moments of a call that measuring needs; seconds of the loop's clock."""

    interruption: Said | None = None
    no_interruption: str = "the call ended before it"
    outage: tuple[float, float] | None = None
    after_outage: Said | None = None
    missing_replies: int = 0
    """How often no sound came in time after something was said."""
    moved_at: float | None = None
    """When the caller's address was changed."""
    moved_ms: float | None = None
    no_move: str = "the call ended before it"
    ended_at: float = 0.0


class Caller:
    """One call, as an async context manager: connected inside, hung up and closed behind."""

    def __init__(self, signaling: Signaling, *, hosts: tuple[str, ...] = ("127.0.0.1",)) -> None:
        self.record = CallRecord()
        self._signaling = signaling
        self._loop = asyncio.get_running_loop()
        self._up = asyncio.Event()
        self._noise = FaintNoise()
        self._feeder: asyncio.Task[None] | None = None
        self._audible_at = -np.inf
        self._onset_at = -np.inf
        self.connection = PeerConnection(TransportConfig(hosts=hosts))
        self.connection.on_audio = self._handle_audio
        self.connection.on_packet = lambda packet, _now: self.record.packets.append(packet)
        self.connection.on_message = self._handle_message
        self.connection.on_state = self._handle_state

    async def __aenter__(self) -> Self:
        """Call; raises TargetError where no call comes about."""
        try:
            await self._dial()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hang up."""
        await self._close()

    async def _dial(self) -> None:
        self.record.began_at = self._loop.time()
        try:
            answer = await self._signaling.call(await self.connection.offer())
            await self.connection.accept(answer)
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await self._up.wait()
        except AntiphonError as error:
            raise TargetError(f"the target's answer cannot be used: {error}") from error
        except TimeoutError:
            raise TargetError(f"no media connection came about within {_CONNECT_TIMEOUT_S:g} s") from None
        self.check()
        self._feeder = self._loop.create_task(self._feed())

    async def _close(self) -> None:
        if self._feeder is not None:
            self._feeder.cancel()
            await asyncio.gather(self._feeder, return_exceptions=True)
        stats = self.connection.stats()
        self.record.rtt_ms, self.record.missed_slots = stats.rtt_ms, stats.missed_slots
        await self._signaling.hang_up()
        await self.connection.close("the caller hung up")

    def check(self) -> None:
        """Raise TargetError where the call is lost."""
        if self.record.lost is not None:
            raise TargetError(f"the call was lost: {self.record.lost}")

    async def say(self, clip: Clip) -> Said:
        """Speak a clip to its end."""
        began: asyncio.Future[float] = self._loop.create_future()
        playout = self.connection.playout
        playout.on_first_pull = lambda now: None if began.done() else began.set_result(now)
        playout.clear_buffer(now=self._loop.time())
        playout.capture_frame(clip.samples)
        try:
            async with asyncio.timeout(2.0):
                began_at = await began
        except TimeoutError:
            self.check()
            raise TargetError("the line takes no sound") from None
        finally:
            playout.on_first_pull = None
        said = Said(clip=clip, began_at=began_at, speech_ended_at=began_at + clip.speech_end_s)
        self.record.said.append(said)
        await asyncio.sleep(max(0.0, said.speech_ended_at - self._loop.time()))
        return said

    async def wait_for_sound(self, *, after: float, timeout_s: float) -> float | None:
        """When sound was first heard after this moment; None where none came in time."""
        deadline = self._loop.time() + timeout_s
        while self._loop.time() < deadline:
            self.check()
            if self._audible_at > after:
                return max(float(self._onset_at), after)
            await asyncio.sleep(_POLL_S)
        return None

    async def wait_for_quiet(self, *, quiet_s: float, timeout_s: float) -> bool:
        """Whether the line fell quiet for so long in time."""
        deadline = self._loop.time() + timeout_s
        begun = self._loop.time()
        while self._loop.time() < deadline:
            self.check()
            if self._loop.time() - max(self._audible_at, begun) > quiet_s:
                return True
            await asyncio.sleep(_POLL_S)
        return False

    async def before_outage(self) -> None:
        """Nothing to do: the packets tell all."""

    async def wait_for_media(self, *, after: float, timeout_s: float) -> None:
        """Nothing to do: the packets tell all."""

    def heard(self, *, until: float, counted_until: float) -> Heard | None:
        """What ears heard; blocks for a second or so a minute of call."""
        return hear(self.record.packets, until=until, counted_until=counted_until)

    async def _feed(self) -> None:
        """Keep faint noise behind whatever is being said, as any microphone would."""
        playout = self.connection.playout
        while True:
            missing_ms = _AHEAD_MS - playout.queued_ms
            if missing_ms > 0:
                playout.capture_frame(self._noise.take(round(missing_ms * SEND_RATE_HZ / 1000)))
            await asyncio.sleep(_FEED_S)

    def _handle_audio(self, frames: list[AudioFrame], now: float) -> None:
        for frame in frames:
            if float(np.sqrt(np.mean(np.square(frame.samples.astype(np.float32))))) > _AUDIBLE_RMS:
                at = now if frame.arrival is None else frame.arrival
                if at - self._audible_at > 0.4:
                    self._onset_at = at
                self._audible_at = max(self._audible_at, at)

    def _handle_message(self, text: str) -> None:
        message = decode(text)
        if message is not None:
            self.record.messages.append((self._loop.time(), message))

    def _handle_state(self, state: State, reason: str) -> None:
        if state == "connected":
            if self.record.connected_at is None:
                self.record.connected_at = self._loop.time()
            self._up.set()
        elif state in {"failed", "closed"}:
            self.record.lost = reason or state
            self._up.set()
