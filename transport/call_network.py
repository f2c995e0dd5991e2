"""Lets a call's telemetry act on its media: between the control channel, the connection and the controllers.

In come the far end's reports, echoes and requests; out go the encoder's settings, copies, answers, the far end's
`jitterBufferTarget`, and what we ask of the far end's sender. Both ends of a call run the same; a browser does its part
in web/control.js. Every change is logged and told with its reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from jitter.packet import RtpPacket
from jitter.repair import NO_REPAIR, RepairPlan
from jitter.sender_control import FarEndReport, SenderControl
from transport.control_call import CallControl, DataChannelCarrier
from transport.control_messages import (
    CarrierKind,
    Decision,
    NextToken,
    ReceiveReport,
    ReceiverTarget,
    SenderRepair,
    StreamMessage,
    decode_line,
    encode,
    is_control_text,
)
from transport.loss import LossObserver
from transport.messages import CallMessage
from transport.outbound_repair import MAX_OFFSET
from transport.path_rtt import PathRtt
from transport.rtp_tap import ReportTap

if TYPE_CHECKING:
    from transport.outbound_stream import OutboundPacket
    from transport.peer_connection import PeerConnection

logger = logging.getLogger(__name__)

TICK_S = 0.2
SILENT_S = 0.3
"""A pause between two sentences is shorter; a far end need not shrink its buffer for it."""
REPORT_FRESH_S = 2.0
"""Ten reports missing: then RTCP's, which come every few seconds, have to do."""
ASK_DWELL_S = 8.0
"""More copies are asked for at once, fewer or others only after so long: a browser renegotiates for each change."""
RTP_CLOCK_HZ = 48_000


class CallNetwork:
    """Owns the control side of one `PeerConnection`; `start` when media may flow, `close` with the call."""

    def __init__(self, connection: PeerConnection, *, call_id: str) -> None:
        self.control = CallControl(call_id=call_id, listener=self)
        self.sender = SenderControl()
        self.loss = LossObserver()
        """Of the media received, before repair."""
        self.on_message: Callable[[StreamMessage | CallMessage], None] | None = None
        """Each message of the peer on the reliable stream that is not for this object."""
        self.on_carrier: Callable[[CarrierKind | None], None] | None = None
        """The channel came up, moved or went down."""
        self.on_token: Callable[[str], None] | None = None
        """A fresh token came, over the channel or the data channel."""
        self.on_close: Callable[[], None] | None = None
        """The call is over: the server forgets its tokens."""
        self.on_receiver_target: Callable[[float | None], None] | None = None
        """The peer asks for this much buffer, ms; None gives it back to us."""
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._path_rtt = PathRtt()
        self._timer: asyncio.TimerHandle | None = None
        self._last_speech_at = float("-inf")
        self._last_report_at = float("-inf")
        self._asked: RepairPlan = NO_REPAIR
        self._asked_at = float("-inf")
        self._told_target_ms: float | None = None
        self._red_asked: tuple[int, ...] | None = None
        self._data_channel = DataChannelCarrier(connection.send_message)
        self._delay_before = (0.0, 0)
        self._lost_told = 0
        connection.on_packet = self._handle_packet
        self._sent_before = connection.on_packet_sent
        connection.on_packet_sent = self._handle_sent
        connection.on_requested = self._handle_requested
        connection.on_report = self._handle_rtcp_report
        connection.outbound_repair.on_requests = self._handle_requests

    @property
    def rtt_ms(self) -> float | None:
        """The 90th percentile of the media path's round trip, or what RTCP says of it; None before any."""
        return self._path_rtt.p90_ms

    @property
    def asked(self) -> RepairPlan:
        """The repair that we have asked of the far end's sender."""
        return self._asked

    def lead_ms(self, chunk_ms: float) -> float:
        """Return how far ahead of its sound speech has to be prepared, see `SenderOutputs.lead_ms`."""
        return self.sender.outputs.lead_ms(chunk_ms)

    def start(self) -> None:
        """Begin to act, five times a second."""
        if self._timer is None:
            self._tick()

    def close(self) -> None:
        """Stop acting and end the control channel."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.control.close()
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()

    def handle_text(self, text: str) -> bool:
        """Take in a text message of the data channel; False where it is none of ours."""
        message = decode_line(text)
        if isinstance(message, NextToken):
            self._take_token(message)
            return True
        if not is_control_text(text):
            return False
        if self.control.carrier_kind is None:
            self.control.attach(self._data_channel)
        return self.control.handle_text(self._data_channel, text)

    def take_text(self, text: str) -> None:
        """Take in a text message of a data channel that carries nothing else from the peer."""
        self.handle_text(text)

    def use_data_channel(self) -> None:
        """Open the control channel over the data channel, as where QUIC does not get through."""
        if self.control.carrier_kind is None:
            self.control.attach(self._data_channel)

    def tell_event(self, message: CallMessage) -> None:
        """Send a conversation event on the channel's stream, unless that is the data channel, which has it anyway."""
        if self.control.carrier_kind in ("quic", "webtransport"):
            self.control.send(message)

    def send_out_of_band(self, token: NextToken) -> None:
        """Give the peer a token over the data channel, for when the control channel is down."""
        self._connection.send_message(encode(token).decode())

    # what the control channel tells

    def make_report(self, *, now: float) -> ReceiveReport | None:
        """Return what we receive of the peer's media."""
        media = self._connection.stats()
        if not media.packets_received:
            return None
        seen = self.loss.statistics(now=now)
        stats = self._connection.reader.stats
        decision = self._connection.reader.controller.decision
        rtt = self.control.statistics()
        return ReceiveReport(
            seq=0,
            at_us=0,
            packets_received=media.packets_received,
            packets_lost=max(0, media.packets_lost),
            network_lost=seen.packets_lost,
            packets_repaired=stats.fec_packets_received
            + stats.red_packets_recovered
            + stats.retransmitted_packets_received,
            packets_discarded=stats.packets_discarded,
            bursts=list(seen.bursts),
            jitter_ms=seen.jitter_ms,
            spread_ms=decision.spread_ms,
            samples_concealed=stats.concealed_samples,
            samples_total=stats.total_samples_received,
            target_ms=decision.hole_deadline_ms,
            level_ms=self._mean_delay_ms(stats.jitter_buffer_delay, stats.jitter_buffer_emitted_count),
            rtt_p50_ms=rtt.p50_ms,
            rtt_p90_ms=rtt.p90_ms,
            repair=str(decision.plan)[:40],
            repair_sent=str(self.sender.outputs.plan)[:40],
            red_offsets=list(range(1, MAX_OFFSET + 1)) if self._connection.can_red else [],
        )

    def handle_report(self, report: ReceiveReport, *, now: float) -> None:
        """Take in what the peer receives of our media, and act on it."""
        self._last_report_at = now
        self._connection.controller.allow_copies(report.red_offsets if self._connection.can_red else ())
        bursts = sum(report.bursts)
        packets_in_bursts = sum(length * count for length, count in enumerate(report.bursts, start=1))
        self.sender.handle_report(
            FarEndReport(
                packets_received=report.packets_received,
                packets_missing=report.packets_lost,
                packets_resent=self._connection.outbound_repair.packets_resent,
                network_lost=report.network_lost,
                jitter_ms=report.jitter_ms,
                spread_ms=report.spread_ms,
                mean_burst=packets_in_bursts / bursts if bursts >= 5 else None,
            ),
            now=now,
        )
        self._act(now)

    def handle_control_message(self, message: StreamMessage | CallMessage, *, now: float) -> None:
        """Do what the peer asks of our sender and our buffer; the rest goes to `on_message`."""
        if isinstance(message, SenderRepair):
            self._red_asked = tuple(message.red_offsets)
            self._act(now)
        elif isinstance(message, ReceiverTarget):
            if self.on_receiver_target is not None:
                self.on_receiver_target(message.target_ms)
        elif isinstance(message, NextToken):
            self._take_token(message)
        elif self.on_message is not None:
            self.on_message(message)

    def handle_carrier(self, kind: CarrierKind | None, *, now: float) -> None:
        """Tell the new channel everything that holds: it knows nothing of the one before."""
        self._asked, self._asked_at, self._told_target_ms = NO_REPAIR, float("-inf"), None
        if self.on_carrier is not None:
            self.on_carrier(kind)
        if kind is not None:
            self._act(now)

    def _take_token(self, token: NextToken) -> None:
        if self.on_token is not None:
            self.on_token(token.next_token)

    # what the media tells

    def _handle_packet(self, packet: RtpPacket, _: float) -> None:
        self.loss.handle_packet(
            packet.sequence_number, now=packet.arrival, media_time_s=packet.timestamp / RTP_CLOCK_HZ
        )
        if self.loss.packets_lost != self._lost_told:
            self._lost_told = self.loss.packets_lost
            self.control.hurry_report()

    def _handle_requested(self, numbers: list[int], now: float) -> None:
        for number in numbers:
            self.loss.handle_requested(number, now=now)

    def _handle_sent(self, packet: OutboundPacket, now: float) -> None:
        if self._sent_before is not None:
            self._sent_before(packet, now)
        if packet.is_speech:
            self._last_speech_at = now
            self.sender.set_speaking(True, now=now)
        elif self._connection.playout.ducked or now - self._last_speech_at > SILENT_S:
            self.sender.set_speaking(False, now=now)
            self._act(now)

    def _handle_requests(self, numbers: list[int], _: float) -> None:
        self.sender.handle_requests(numbers)

    def _handle_rtcp_report(self, report: ReportTap) -> None:
        """A receiver report counts while the peer says nothing better."""
        now = self._loop.time()
        if now - self._last_report_at > REPORT_FRESH_S:
            sent = self._connection.stats().packets_sent
            self.sender.handle_report(
                FarEndReport(
                    packets_received=max(0, sent - report.packets_lost),
                    packets_missing=report.packets_lost,
                    packets_resent=self._connection.outbound_repair.packets_resent,
                    jitter_ms=report.jitter_s * 1000,
                ),
                now=now,
            )
            self._act(now)

    # what comes of it

    def _tick(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(TICK_S, self._tick)
        stats = self._connection.stats()
        echo = self.control.statistics()
        if self._path_rtt.update(echo=echo, rtcp_ms=stats.rtt_ms, now=now):
            logger.info("round trip", extra={"call": self.control.call_id, "source": self._path_rtt.source})
        if (p50_ms := self._path_rtt.p50_ms) is not None and (p90_ms := self._path_rtt.p90_ms) is not None:
            queue_ms = echo.outbound_variation_ms if self._path_rtt.source == "echo" else 0.0
            self.sender.handle_round_trip(p50_ms=p50_ms, p90_ms=p90_ms, queue_ms=queue_ms, now=now)
            fastest_ms = min(p50_ms, p50_ms if echo.min_ms is None else echo.min_ms)
            self.loss.rtt_s = fastest_ms / 1000
            self._connection.handle_round_trip(p90_ms, fastest_ms=fastest_ms, now=now)
        if now - self._last_speech_at > SILENT_S:
            self.sender.set_speaking(False, now=now)
        self._ask(now)
        self._act(now)

    def _act(self, now: float) -> None:
        """Set our sender and the far end's buffer as the sender's controller says."""
        outputs = self.sender.outputs
        repair, encoder = self._connection.outbound_repair, self._connection.encoder
        repair.answer_within_s = outputs.answer_within_ms / 1000
        repair.answer_gap_s = outputs.answer_gap_ms / 1000
        offsets = outputs.plan.red_offsets if self._red_asked is None else self._red_asked
        repair.set_red_offsets(offsets)
        while (event := self.sender.next_event()) is not None:
            encoder.set_fec(outputs.plan.fec)
            encoder.set_expected_loss(outputs.expected_loss_pct)
            encoder.set_bitrate(outputs.bitrate_bps)
            self._tell(event.output, event.before, event.after, event.reason, now)
        if outputs.receiver_target_ms != self._told_target_ms and self.control.carrier_kind is not None:
            self._told_target_ms = outputs.receiver_target_ms
            reason = "repair needs it" if outputs.receiver_target_ms else "no speech, or nothing to repair"
            self.control.send(ReceiverTarget(target_ms=outputs.receiver_target_ms, reason=reason))

    def _ask(self, now: float) -> None:
        """Ask the far end's sender for the repair that our receiver's controller has chosen."""
        decision = self._connection.reader.controller.decision
        plan = decision.plan
        if plan == self._asked or self.control.carrier_kind is None:
            return
        more = len(plan.red_offsets) > len(self._asked.red_offsets)
        if not more and now - self._asked_at < ASK_DWELL_S:
            return
        before, self._asked, self._asked_at = self._asked, plan, now
        loss_pct = 100 * self._connection.reader.controller.loss_share
        self.control.send(
            SenderRepair(
                red_offsets=list(plan.red_offsets),
                fec=plan.fec,
                expected_loss_pct=min(100.0, loss_pct),
                reason=decision.reason[:300],
            )
        )
        self._tell("ask", str(before), str(plan), decision.reason, now)

    def _tell(self, output: str, before: str, after: str, reason: str, now: float) -> None:
        about = {"call": self.control.call_id, "output": output, "before": before, "after": after, "reason": reason}
        logger.info("decision", extra=about)
        at_ms = max(0.0, (now - self._began_at) * 1000)
        self.control.send(
            Decision(at_ms=at_ms, output=output, before=before[:80], after=after[:80], reason=reason[:300])
        )

    def _mean_delay_ms(self, delay_s: float, emitted: int) -> float:
        """Return the mean delay of what was given out since the last report."""
        delay_before, emitted_before = self._delay_before
        self._delay_before = (delay_s, emitted)
        since = emitted - emitted_before
        return max(0.0, 1000 * (delay_s - delay_before) / since) if since > 0 else 0.0
