"""From RTP packets to sound: the reader, its one timer, its requests for what is missing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from jitter.controller import Controller
from jitter.listen import AudioFrame, ListenReader
from jitter.packet import RtpPacket
from jitter.planner import Listener
from jitter.playout import PlayoutReader
from jitter.repair import Abilities
from transport.config import TransportConfig
from transport.errors import LocalProtocolError
from transport.opus import OpusDecoder

_BEAT_S = 0.05
_STALL_S = 0.03
"""A loop this late for its own beat has held packets up in the socket: theirs is no lateness of the network."""
_STAMPED_S = 0.01
"""Packets stamped longer ago have their time from the kernel, which did not stand still."""
_DRAIN_S = 0.05
"""Within this long after a stall the socket's queue has been read."""
_ROUND_TRIPS = 10
"""Whose 90th percentile the controller gets: the last ten seconds of checks."""


class InboundAudio:
    """One direction of one call, as its receiver; everything runs on the loop."""

    def __init__(self, config: TransportConfig) -> None:
        self.on_audio: Callable[[list[AudioFrame], float], None] | None = None
        self.on_missing: Callable[[list[int], float], None] | None = None
        """Called with the sequence numbers to ask the sender for again, and now."""
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._round_trips_ms: deque[float] = deque(maxlen=_ROUND_TRIPS)
        self._told_round_trip = False
        self._closed = False
        self._beat: asyncio.TimerHandle = self._loop.call_later(_BEAT_S, self._handle_beat)
        self.configure(nack=False, red_payload_type=None)

    def configure(self, *, nack: bool, red_payload_type: int | None) -> None:
        """Begin anew with what the peers have agreed on: whether it answers requests, and what RED is called.

        Copies are counted on only once somebody can be asked for them, see `Controller.allow_copies`.
        """
        decoder = OpusDecoder(self._config.receive_rate_hz)
        comes_unasked = self._config.red == "prefer" and red_payload_type is not None
        copies = frozenset({1}) if comes_unasked else frozenset[int]()
        listens = self._config.reader == "listen"
        self.controller = Controller(
            policy=self._config.policy,
            listener=Listener.LISTEN if listens else Listener.PLAYOUT,
            abilities=Abilities(red_offsets=copies, nack=nack),
        )
        self.reader: ListenReader | PlayoutReader = (
            ListenReader(decoder, controller=self.controller, red_payload_type=red_payload_type)
            if listens
            else PlayoutReader(decoder, controller=self.controller, red_payload_type=red_payload_type)
        )

    @property
    def concealed_pct(self) -> float:
        """Samples made up from nothing, in percent of all put out."""
        stats = self.reader.stats
        return 100 * stats.concealed_samples / max(1, stats.total_samples_received)

    def handle_packet(self, packet: RtpPacket, *, now: float) -> None:
        """Take one packet from the tap."""
        self._note_stall(now)
        self.reader.handle_packet(packet, now=now)
        self._read(now)

    def handle_round_trip(self, rtt_ms: float, *, now: float, fastest_ms: float | None = None) -> None:
        """Learn a round trip from a source better than our own checks; ours are then no longer used."""
        self._told_round_trip = True
        self.controller.handle_round_trip(rtt_ms=rtt_ms, fastest_ms=fastest_ms, now=now)

    def handle_check(self, rtt_s: float, *, now: float) -> None:
        """Learn the round trip of one of our own checks."""
        self._round_trips_ms.append(rtt_s * 1000)
        if not self._told_round_trip:
            ordered = sorted(self._round_trips_ms)
            p90_ms = ordered[(9 * len(ordered) - 1) // 10]
            self.controller.handle_round_trip(rtt_ms=p90_ms, fastest_ms=ordered[0], now=now)

    def get_audio(self, *, now: float) -> AudioFrame:
        """Return the next 10 ms for a loudspeaker; for `reader="playout"` alone."""
        if not isinstance(self.reader, PlayoutReader):
            raise LocalProtocolError('get_audio needs TransportConfig(reader="playout")')
        return self.reader.get_audio(now=now)

    def close(self) -> None:
        """Stop the timer; nothing is read any more."""
        self._closed = True
        self._beat.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _handle_beat(self) -> None:
        self._note_stall(self._loop.time())
        self._beat = self._loop.call_later(_BEAT_S, self._handle_beat)

    def _note_stall(self, now: float) -> None:
        """Tell the controller where this loop itself stood still; the packets it missed are read before the beat."""
        if now - self._beat.when() > _STALL_S:
            self.controller.handle_stall(since=now - _STAMPED_S, until=now + _DRAIN_S)

    def _handle_timer(self) -> None:
        now = self._loop.time()
        self._timer = None
        if isinstance(self.reader, ListenReader):
            self.reader.handle_timer(now=now)
        self._read(now)

    def _read(self, now: float) -> None:
        reader = self.reader
        frames = reader.poll(now=now) if isinstance(reader, ListenReader) else []
        missing = reader.poll_requests(now=now)
        self._arm(reader.get_timer())
        if missing and self.on_missing is not None:
            self.on_missing(missing, now)
        if frames and self.on_audio is not None:
            self.on_audio(frames, now)

    def _arm(self, due: float | None) -> None:
        if due == float("inf") or self._closed:
            due = None
        if self._timer is not None:
            if self._timer.when() == due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self._loop.call_at(due, self._handle_timer)
