"""Takes each RTP packet off aiortc's receiver, with the time it really came.

aiortc 1.16's own audio jitter buffer loses packets that did arrive (docs/transport.md has the figures). Here it is
replaced by one that keeps nothing, so nothing is decoded and nothing waits; the receiver's handler is still called,
because receiver reports, and with them the sender's view of loss and round trip, are fed there. Names private to
aiortc that are used here are held by tests/unit/test_canaries.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiortc import RTCRtpReceiver, RTCRtpSender
from aiortc.rtcrtpparameters import RTCRtpCodecParameters
from aiortc.rtp import RtcpByePacket, RtcpRrPacket, RtcpSrPacket

from jitter.packet import RTP_CLOCK_HZ, RtpPacket
from transport.ice import DatagramQueue

logger = logging.getLogger(__name__)

MAX_SOURCES = 16
"""SSRCs of a peer that are kept account of; a browser uses one, or a few over its life."""
MAX_NACK = 64
"""Packets asked for in one RTCP message; more is a path that repair cannot help."""


class NoBuffer:
    """Stands in for aiortc's JitterBuffer: takes every packet, completes no frame."""

    def add(self, packet: object) -> tuple[bool, None]:  # noqa: ARG002 the signature is aiortc's
        """Return that no key frame is wanted and no frame is ready."""
        return False, None


class RtpTap:
    """The receiving side of one call's audio, packet by packet; all callbacks come on the loop."""

    def __init__(self, receiver: RTCRtpReceiver, queue: DatagramQueue) -> None:
        self.on_packet: Callable[[RtpPacket], None] | None = None
        self.on_bye: Callable[[], None] | None = None
        self.packets = 0
        self.first_packet_at: float | None = None
        self.last_packet_at: float | None = None
        self.jitter_s = 0.0
        """Interarrival jitter of RFC 3550 §6.4.1, in seconds."""
        self._receiver: Any = receiver
        self._queue = queue
        self._ssrc: int | None = None
        self._sources: OrderedDict[int, None] = OrderedDict()
        self._previous: tuple[float, int] | None = None
        self._install()

    @property
    def packets_lost(self) -> int:
        """Packets expected and not received, as receiver reports tell it (RFC 3550 §6.4.1)."""
        return sum(stream.packets_lost for stream in self._receiver._RTCRtpReceiver__remote_streams.values())

    def accept_red(self, payload_type: int) -> None:
        """Let audio/red in: routed here, and counted in receiver reports like the rest."""
        receiver = self._receiver
        receiver.transport._rtp_router.payload_type_table.setdefault(payload_type, set()).add(receiver)
        receiver._RTCRtpReceiver__codecs[payload_type] = RTCRtpCodecParameters(
            mimeType="audio/red", clockRate=RTP_CLOCK_HZ, channels=2, payloadType=payload_type
        )

    async def request(self, sequence_numbers: Iterable[int]) -> None:
        """Ask the sender for packets again (RTCP NACK, RFC 4585 §6.2.1)."""
        if self._ssrc is not None:
            await self._receiver._send_rtcp_nack(self._ssrc, list(sequence_numbers)[:MAX_NACK])

    def _install(self) -> None:
        receiver = self._receiver
        receiver._RTCRtpReceiver__jitter_buffer = NoBuffer()
        handle_rtp, handle_rtcp = receiver._handle_rtp_packet, receiver._handle_rtcp_packet

        async def tee(packet: Any, arrival_time_ms: int) -> None:
            self._note_source(packet.ssrc)
            self._take(packet)
            await handle_rtp(packet, arrival_time_ms=arrival_time_ms)

        async def tee_rtcp(packet: Any) -> None:
            await handle_rtcp(packet)
            if isinstance(packet, RtcpByePacket) and self.on_bye is not None:
                self.on_bye()

        receiver._handle_rtp_packet = tee
        receiver._handle_rtcp_packet = tee_rtcp

    def _note_source(self, ssrc: int) -> None:
        """Forget, in aiortc's tables as well, the source not heard for longest where a peer uses too many."""
        self._sources[ssrc] = None
        self._sources.move_to_end(ssrc)
        if len(self._sources) > MAX_SOURCES:
            receiver = self._receiver
            oldest, _ = self._sources.popitem(last=False)
            receiver.transport._rtp_router.ssrc_table.pop(oldest, None)
            receiver._RTCRtpReceiver__remote_streams.pop(oldest, None)
            receiver._RTCRtpReceiver__active_ssrc.pop(oldest, None)

    def _take(self, packet: Any) -> None:
        arrival = self._queue.last_arrival
        if self.first_packet_at is None:
            self.first_packet_at = arrival
            # aiortc's decoder thread has nothing to do in this house, and would wait until the end of the call.
            self._receiver._handle_disconnect()
        self.last_packet_at = arrival
        self.packets += 1
        self._ssrc = packet.ssrc
        self._measure_jitter(arrival, packet.timestamp)
        if self.on_packet is not None:
            self.on_packet(
                RtpPacket(
                    sequence_number=packet.sequence_number,
                    timestamp=packet.timestamp,
                    payload_type=packet.payload_type,
                    ssrc=packet.ssrc,
                    payload=packet.payload,
                    arrival=arrival,
                )
            )

    def _measure_jitter(self, arrival: float, timestamp: int) -> None:
        if self._previous is not None:
            step = (timestamp - self._previous[1] + 2**31) % 2**32 - 2**31
            if abs(step) < RTP_CLOCK_HZ:  # a jump is a new source or a long pause
                self.jitter_s += (abs(arrival - self._previous[0] - step / RTP_CLOCK_HZ) - self.jitter_s) / 16
        self._previous = (arrival, timestamp)


class ReportTap:
    """What receiver reports say of the audio we send."""

    def __init__(self, sender: RTCRtpSender) -> None:
        self.on_report: Callable[[ReportTap], None] | None = None
        """Called after each report, for whoever adapts the sending side."""
        self.rtt_s: float | None = None
        """Of the last report that answers one of ours (RFC 3550 §6.4.1), seconds."""
        self.fraction_lost = 0.0
        """Loss since the report before, 0..1."""
        self.packets_lost = 0
        self.jitter_s = 0.0
        self.reports = 0
        self._sender: Any = sender
        self._handle = sender._handle_rtcp_packet
        sender._handle_rtcp_packet = self._tee  # type: ignore[method-assign]

    async def _tee(self, packet: Any) -> None:
        if isinstance(packet, (RtcpRrPacket, RtcpSrPacket)):
            for report in packet.reports:
                if report.ssrc == self._sender._ssrc:
                    self._read(report)
        await self._handle(packet)

    def _read(self, report: Any) -> None:
        sender = self._sender
        if report.dlsr and report.lsr == sender._RTCRtpSender__lsr:
            # aiortc stamps its reports by the wall clock; a step of it must not become a round trip.
            rtt = time.time() - sender._RTCRtpSender__lsr_time - report.dlsr / 65536
            if 0 <= rtt < 60:
                self.rtt_s = rtt
        self.fraction_lost = report.fraction_lost / 256
        self.packets_lost = report.packets_lost
        self.jitter_s = report.jitter / RTP_CLOCK_HZ
        self.reports += 1
        if self.on_report is not None:
            self.on_report(self)


class Guard:
    """Keeps what a peer sends from ending aiortc's receive loop; counts what was malformed."""

    def __init__(self, dtls: Any) -> None:
        self.malformed = 0
        self._dtls = dtls
        dtls._handle_rtp_data = self._safe(dtls._handle_rtp_data)
        dtls._handle_rtcp_data = self._safe(dtls._handle_rtcp_data)

    def guard_data(self, sctp: Any) -> None:
        """Guard the data channel's transport as well, once there is one."""
        sctp._handle_data = self._safe(sctp._handle_data)

    def _safe(self, handle: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def handle_safely(*arguments: Any, **named: Any) -> None:
            try:
                await handle(*arguments, **named)
            except (asyncio.CancelledError, ConnectionError):
                raise
            except Exception:
                self.malformed += 1
                if self.malformed == 1:
                    logger.warning("a malformed packet was dropped", exc_info=True)

        return handle_safely
