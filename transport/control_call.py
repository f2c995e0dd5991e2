"""The control side of one call: whichever carrier is up, one channel on it, and the timers that drive it.

A carrier (raw QUIC, WebTransport or the data channel) attaches itself; the newest wins, because a peer that opens
another has given up the one before. Everything here runs on the event loop and nothing blocks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from transport.control import ChannelViolated, ControlChannel, MessageReceived, ReportReceived
from transport.control_messages import CarrierKind, NextToken, ReceiveReport, StreamMessage
from transport.messages import CallMessage
from transport.rtt import RttStatistics

logger = logging.getLogger(__name__)

KEEP_STATISTICS_S = 10.0
"""A dropped channel is back within two seconds; what it had measured stays in use a little longer than that."""


class Carrier(Protocol):
    """Moves the bytes of one control channel; sending never blocks and never raises."""

    @property
    def kind(self) -> CarrierKind:
        """Return what the page shows as the way in use."""

    def send_datagram(self, data: bytes) -> None:
        """Send `data`, which may be lost."""

    def send_stream_data(self, data: bytes) -> None:
        """Send more of the reliable stream."""

    def close(self) -> None:
        """End the carrier without telling the peer why."""


class DataChannelCarrier:
    """Carries a control channel in text messages of the WebRTC data channel, where QUIC does not get through."""

    kind: CarrierKind = "data_channel"

    def __init__(self, send_text: Callable[[str], None]) -> None:
        self._send_text = send_text

    def send_datagram(self, data: bytes) -> None:
        """Send one message."""
        self._send_text(data.decode())

    def send_stream_data(self, data: bytes) -> None:
        """Send each line as a message."""
        for line in data.decode().splitlines():
            self._send_text(line)

    def close(self) -> None:
        """Nothing ends: the data channel is the call's."""


class ControlListener(Protocol):
    """Who hears what the peer says; all is called on the event loop with `now` in `loop.time()` seconds."""

    def make_report(self, *, now: float) -> ReceiveReport | None:
        """Return what we receive of the peer's media, or None while there is none."""

    def handle_report(self, report: ReceiveReport, *, now: float) -> None:
        """Take in the peer's view of the media we send."""

    def handle_control_message(self, message: StreamMessage | CallMessage, *, now: float) -> None:
        """Take in a command or an event."""

    def handle_carrier(self, kind: CarrierKind | None, *, now: float) -> None:
        """Take in that the channel now runs over `kind`, or, for None, that it is down."""


class CallControl:
    """Owns the open channel of a call, if there is one."""

    def __init__(self, *, call_id: str, listener: ControlListener) -> None:
        self.call_id = call_id
        self.last_heard_at: float | None = None
        """When the peer's last datagram came, on whichever carrier."""
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._carrier: Carrier | None = None
        self._channel: ControlChannel | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_statistics = RttStatistics()
        self._closed = False

    @property
    def carrier_kind(self) -> CarrierKind | None:
        """Return what carries the channel now, or None while it is down."""
        return self._carrier.kind if self._carrier else None

    def statistics(self) -> RttStatistics:
        """Return the round trip of the open channel, or for ten seconds that of the one before it."""
        now = self._loop.time()
        statistics = self._channel.statistics(now=now) if self._channel else None
        if statistics is not None and statistics.updated_at is not None:
            self._last_statistics = statistics
        updated_at = self._last_statistics.updated_at
        if updated_at is not None and now - updated_at > KEEP_STATISTICS_S:
            self._last_statistics = RttStatistics()
        return self._last_statistics

    def attach(self, carrier: Carrier, *, first: StreamMessage | None = None) -> None:
        """Open a channel on `carrier`, with `first` as its first line; the carrier before it is closed."""
        if self._closed:
            carrier.close()
            return
        before, self._carrier = self._carrier, carrier
        now = self._loop.time()
        self.last_heard_at = now
        self._channel = ControlChannel(now=now, make_report=lambda at: self._listener.make_report(now=at))
        if before is not None:
            before.close()
        if first is not None:
            self._channel.send(first)
        self._listener.handle_carrier(carrier.kind, now=now)
        self._run_timer()

    def detach(self, carrier: Carrier) -> None:
        """Take in that `carrier` is gone; nothing happens if another has taken its place."""
        if carrier is not self._carrier:
            return
        self.statistics()
        self._carrier = self._channel = None
        self._cancel_timer()
        if not self._closed:
            self._listener.handle_carrier(None, now=self._loop.time())

    def send(self, message: StreamMessage | CallMessage) -> bool:
        """Send `message` on the reliable stream; False while no channel is open."""
        if self._channel is None:
            return False
        self._channel.send(message)
        self._flush()
        return True

    def handle_datagram(self, carrier: Carrier, data: bytes) -> None:
        """Take in a datagram from `carrier`; one that was replaced is no longer heard."""
        if self._channel is not None and carrier is self._carrier:
            self.last_heard_at = self._loop.time()
            self._channel.handle_datagram(data, now=self.last_heard_at)
            self._after_input()

    def handle_stream_data(self, carrier: Carrier, data: bytes) -> None:
        """Take in more of the reliable stream from `carrier`."""
        if self._channel is not None and carrier is self._carrier:
            self._channel.handle_stream_data(data, now=self._loop.time())
            self._after_input()

    def handle_text(self, carrier: Carrier, text: str) -> bool:
        """Take in a text message of the data channel, `carrier`; False where it is no control message."""
        if self._channel is None or carrier is not self._carrier:
            return False
        self.last_heard_at = self._loop.time()
        known = self._channel.handle_text(text, now=self.last_heard_at)
        self._after_input()
        return known

    def handle_path_changed(self, carrier: Carrier) -> None:
        """Forget the round trip, because the peer's address changed under `carrier`."""
        if self._channel is not None and carrier is self._carrier:
            self._channel.handle_path_changed()
            self._last_statistics = RttStatistics()

    def hand_out_token(self, token: NextToken) -> None:
        """Give the peer a fresh token on the open channel."""
        self.send(token)

    def close(self) -> None:
        """End the channel for good; later carriers are turned away."""
        self._closed = True
        if self._carrier is not None:
            self._flush()
            carrier = self._carrier
            self.detach(carrier)
            carrier.close()

    def _after_input(self) -> None:
        now = self._loop.time()
        channel = self._channel
        while channel is not None and (event := channel.next_event()) is not None:
            match event:
                case ReportReceived(report=report):
                    self._listener.handle_report(report, now=now)
                case MessageReceived(message=message):
                    self._listener.handle_control_message(message, now=now)
                case ChannelViolated(code=code):
                    logger.warning("control channel of call %s closed: %s", self.call_id, code)
                    if self._carrier is not None:
                        carrier = self._carrier
                        self.detach(carrier)
                        carrier.close()
        self._flush()

    def _flush(self) -> None:
        if self._channel is None or self._carrier is None:
            return
        for datagram in self._channel.datagrams_to_send(now=self._loop.time()):
            self._carrier.send_datagram(datagram)
        if data := self._channel.stream_data_to_send():
            self._carrier.send_stream_data(data)

    def hurry_report(self) -> None:
        """Tell the peer at once what we receive, if a channel is open: something has changed for the worse."""
        if self._channel is not None:
            self._channel.hurry_report(now=self._loop.time())
            self._run_timer()

    def _run_timer(self) -> None:
        self._cancel_timer()
        if self._channel is None:
            return
        self._channel.handle_timer(now=self._loop.time())
        self._flush()
        if self._channel is not None:
            self._timer = self._loop.call_at(self._channel.get_timer(), self._run_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
