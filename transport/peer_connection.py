"""One call's WebRTC connection: offer and answer in, speech and messages both ways, states out.

The adapter between aiortc and the house: it owns the aiortc objects, the tap on what they receive, the paced track
they send, and every task and timer of the call's media; `close` ends them all. See docs/transport.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from aiortc import RTCConfiguration, RTCIceCandidate, RTCPeerConnection, RTCSessionDescription
from aiortc.rtcconfiguration import RTCBundlePolicy

from jitter.controller import Controller
from jitter.listen import AudioFrame, ListenReader
from jitter.packet import RtpPacket
from jitter.playout import PlayoutReader
from transport import ice, sdp
from transport.config import IceServer, TransportConfig
from transport.errors import AntiphonError, LocalProtocolError, RemoteProtocolError
from transport.events_channel import EventsChannel
from transport.inbound_audio import InboundAudio
from transport.opus import OpusEncoder
from transport.outbound_repair import OutboundRepair
from transport.outbound_stream import OutboundPacket, OutboundStream
from transport.outbound_track import OutboundTrack
from transport.playout_queue import PlayoutQueue
from transport.rtp_tap import Guard, ReportTap, RtpTap
from transport.sdp_candidates import is_candidate, parse_candidate
from transport.transport_stats import TransportStats

__all__ = ["IceServer", "PeerConnection", "State", "TransportConfig", "TransportStats"]

logger = logging.getLogger(__name__)

State = Literal["connecting", "connected", "disconnected", "failed", "closed"]

PROBE_INTERVAL_S = 1.0
"""An ICE check a second: a round trip from the first second on, and a dead peer found in time."""
_CHANNEL_WAIT_S = 2.0
"""How long the peer has to open the data channel, after the answer, before we do."""
_LAST_MESSAGE_S = 0.3
_CLOSE_TIMEOUT_S = 5.0
_BYE_GRACE_S = 1.0


class PeerConnection:
    """A call with one peer. Set the callbacks, then `answer` an offer, or `offer` and `accept` the answer.

    All callbacks come on the loop; an exception from one is logged and does not reach the network side.
    """

    def __init__(self, config: TransportConfig | None = None) -> None:
        self.config = config or TransportConfig()
        self.on_audio: Callable[[list[AudioFrame], float], None] | None = None
        """Frames received, in order, and now."""
        self.on_message: Callable[[str], None] | None = None
        """A text message from the peer."""
        self.on_state: Callable[[State, str], None] | None = None
        """The new state and why; `failed` and `closed` come once and last, and `close` is still to be called."""
        self.on_packet: Callable[[RtpPacket, float], None] | None = None
        """Each RTP packet received, before the reader has it, and now."""
        self.on_packet_sent: Callable[[OutboundPacket, float], None] | None = None
        """Each packet sent, and when."""
        self.on_requested: Callable[[list[int], float], None] | None = None
        """Packets (16-bit numbers) that are asked for again, and now."""
        self.on_report: Callable[[ReportTap], None] | None = None
        """Each receiver report on what we send."""
        self.state: State | None = None

        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._connects: set[asyncio.Task[Any]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._bye_at: float | None = None
        self._last_answer = 0.0
        self._ice_rtt_s: float | None = None
        self._remote: sdp.Description | None = None
        self._early_candidates: list[str] = []

        self.playout = PlayoutQueue()
        self.encoder = OpusEncoder(
            bitrate_bps=self.config.bitrate_bps,
            fec=self.config.fec,
            expected_loss_pct=self.config.expected_loss_pct,
        )
        self._inbound = InboundAudio(self.config)
        self._inbound.on_audio = lambda frames, now: self._call(self.on_audio, frames, now)
        self._inbound.on_missing = self._handle_missing
        self._stream = OutboundStream(self.playout, self.encoder)
        self._stream.on_packet = self._handle_sent
        self._pc: Any = RTCPeerConnection(
            RTCConfiguration(iceServers=ice.servers(self.config), bundlePolicy=RTCBundlePolicy.MAX_BUNDLE)
        )
        self._track_connects()
        transceiver = self._pc.addTransceiver(OutboundTrack(self._stream), direction="sendrecv")
        self._dtls: Any = transceiver.receiver.transport
        self._ice: Any = self._dtls.transport
        self._queue = ice.prepare(self._ice._connection, self.config)
        self._tap = RtpTap(transceiver.receiver, self._queue)
        self._reports = ReportTap(transceiver.sender)
        self.outbound_repair = OutboundRepair(transceiver.sender, clock=self._loop.time, stream=self._stream)
        self._guard = Guard(self._dtls)
        self._events = EventsChannel(self._pc)
        self._tap.on_packet = self._handle_packet
        self._tap.on_bye = self._handle_bye
        self._reports.on_report = lambda report: self._call(self.on_report, report)
        self._events.on_message = lambda text: self._call(self.on_message, text)
        self._pc.on("connectionstatechange", self._handle_state)

    async def answer(self, offer_sdp: str) -> str:
        """Return the answer to `offer_sdp`; raises RemoteProtocolError for a bad offer, NoAddressError for no port."""
        description = sdp.read_description(offer_sdp, "offer")
        await self._set_remote(description, "offer")
        await self._pc.setLocalDescription(await self._pc.createAnswer())
        red = self.config.red if description.red_payload_type is not None else "off"
        self._agree(description)
        options = sdp.Dress(
            nack=self.config.nack and description.nack,
            red=red,
            red_payload_type=description.red_payload_type or sdp.RED_PAYLOAD_TYPE,
            public_address=self.config.public_address,
        )
        self._begin()
        return sdp.dress(self._pc.localDescription.sdp, options, offer=description)

    async def offer(self) -> str:
        """Return our offer: audio both ways and the data channel; raises NoAddressError."""
        self._events.create()
        await self._pc.setLocalDescription(await self._pc.createOffer())
        options = sdp.Dress(nack=self.config.nack, red=self.config.red, public_address=self.config.public_address)
        return sdp.dress(self._pc.localDescription.sdp, options)

    async def accept(self, answer_sdp: str) -> None:
        """Take the answer to our offer; raises RemoteProtocolError for a bad one."""
        description = sdp.read_description(answer_sdp, "answer")
        await self._set_remote(description, "answer")
        self._agree(description)
        self._begin()

    async def add_candidate(
        self,
        candidate: str | None,
        sdp_mid: str | None = None,  # noqa: ARG002 all sections share one transport
        sdp_m_line_index: int | None = None,  # noqa: ARG002
    ) -> None:
        """Take a trickled candidate; None or an empty one ends them. Raises RemoteProtocolError for a malformed one."""
        if not candidate or self._closing is not None:
            return  # aiortc need not know the end: a path that fails is found by our own timeout
        if not is_candidate(candidate):
            raise RemoteProtocolError("candidate_malformed", "that is no ICE candidate")
        if self._remote is None:
            if len(self._early_candidates) < sdp.MAX_CANDIDATES:
                self._early_candidates.append(candidate)
            return
        parsed = parse_candidate(candidate)
        if parsed is not None and len(self._ice.getRemoteCandidates()) < sdp.MAX_CANDIDATES:
            await self._ice.addRemoteCandidate(
                RTCIceCandidate(
                    component=1,
                    foundation=parsed.foundation,
                    ip=parsed.address,
                    port=parsed.port,
                    priority=parsed.priority,
                    protocol="udp",
                    type=parsed.type,
                )
            )

    def send_message(self, text: str) -> None:
        """Send `text` over the data channel, now or when it opens; dropped where the peer reads nothing."""
        self._events.send(text)

    @property
    def reader(self) -> ListenReader | PlayoutReader:
        """What turns packets received into sound."""
        return self._inbound.reader

    @property
    def controller(self) -> Controller:
        """What decides how much of the audio received is buffered, and how its loss is repaired."""
        return self._inbound.controller

    @property
    def can_nack(self) -> bool:
        """Whether the peer answers requests for lost packets."""
        return self.config.nack and self._remote is not None and self._remote.nack

    @property
    def can_red(self) -> bool:
        """Whether both sides have agreed to audio/red."""
        return self.config.red != "off" and self._remote is not None and self._remote.red_payload_type is not None

    def get_audio(self, *, now: float) -> AudioFrame:
        """Return the next 10 ms of what is received, for a loudspeaker; for `reader="playout"` alone."""
        return self._inbound.get_audio(now=now)

    def handle_round_trip(self, rtt_ms: float, *, now: float, fastest_ms: float | None = None) -> None:
        """Learn the media path's round trip from the control channel; ICE's checks then no longer tell it."""
        self._inbound.handle_round_trip(rtt_ms, now=now, fastest_ms=fastest_ms)

    async def request_packets(self, sequence_numbers: list[int]) -> None:
        """Ask the peer for lost packets again (RTCP NACK), where it has agreed to that."""
        if self.can_nack:
            await self._tap.request(sequence_numbers)

    def stats(self) -> TransportStats:
        """Return the counters as they stand."""
        reports, tap = self._reports, self._tap
        rtt_s = self._ice_rtt_s if reports.rtt_s is None else reports.rtt_s
        return TransportStats(
            rtt_ms=_ms(rtt_s),
            ice_rtt_ms=_ms(self._ice_rtt_s),
            packets_received=tap.packets,
            packets_lost=tap.packets_lost,
            packets_malformed=self._guard.malformed,
            datagrams_dropped=self._queue.dropped,
            concealed_pct=self._inbound.concealed_pct,
            jitter_ms=tap.jitter_s * 1000,
            first_packet_at=tap.first_packet_at,
            last_packet_at=tap.last_packet_at,
            packets_sent=self._stream.packets_sent,
            missed_slots=self._stream.missed_slots,
            remote_loss_pct=100 * reports.fraction_lost,
            remote_packets_lost=reports.packets_lost,
            remote_jitter_ms=reports.jitter_s * 1000,
        )

    async def close(self, reason: str = "closed") -> None:
        """End the call: the last messages leave, RTCP BYE is sent, every task, timer and socket of ours is gone.

        May be called again; a caller that is cancelled meanwhile does not stop it.
        """
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(reason))
        await asyncio.shield(self._closing)

    async def _close(self, reason: str) -> None:
        try:
            if self._dtls.state == "connected":
                await self._events.drain(_LAST_MESSAGE_S)
            self._inbound.close()
            for task in self._tasks:
                task.cancel()
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._pc.close()
            leftover = self._tasks | self._connects
            if leftover:
                await asyncio.wait(leftover, timeout=_CLOSE_TIMEOUT_S)
        except TimeoutError:
            logger.error("aiortc did not close in %.0f s", _CLOSE_TIMEOUT_S)
        finally:
            self._set_state("closed", reason)

    async def _set_remote(self, description: sdp.Description, kind: Literal["offer", "answer"]) -> None:
        if self._remote is not None or self._closing is not None:
            raise LocalProtocolError("one PeerConnection holds one call; make another")
        data_mid = self._pc.sctp.mid if kind == "answer" and self._pc.sctp else None
        try:
            await self._pc.setRemoteDescription(
                RTCSessionDescription(sdp=description.plain(data_mid=data_mid), type=kind)
            )
        except AntiphonError:
            raise
        except Exception as error:  # aiortc raises what its parser and its checks happen to
            raise RemoteProtocolError("sdp_malformed", f"the {kind} cannot be used: {error}") from error
        self._remote = description
        if self._pc.sctp is not None:
            self._guard.guard_data(self._pc.sctp)
        early, self._early_candidates = self._early_candidates, []
        for candidate in early:
            await self.add_candidate(candidate)

    def _agree(self, description: sdp.Description) -> None:
        """Use what both sides know: requests for lost packets, and audio/red both ways."""
        red = description.red_payload_type if self.can_red else None
        self._inbound.configure(nack=self.can_nack, red_payload_type=red)
        if red is not None:
            self._tap.accept_red(red)
            self.outbound_repair.allow_red(red)

    def _begin(self) -> None:
        self._set_state("connecting", "")
        if self._watch_task is None:
            self._watch_task = self._spawn(self._watch())

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _track_connects(self) -> None:
        # aiortc starts its connecting as a task it never looks at again; `close` waits for it.
        connect = self._pc._RTCPeerConnection__connect

        async def tracked() -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connects.add(task)
            try:
                await connect()
            finally:
                self._connects.discard(task)

        self._pc._RTCPeerConnection__connect = tracked

    # What comes in

    def _handle_packet(self, packet: RtpPacket) -> None:
        now = self._loop.time()
        self._call(self.on_packet, packet, now)
        self._inbound.handle_packet(packet, now=now)

    def _handle_missing(self, sequence_numbers: list[int], now: float) -> None:
        if self.can_nack and self._closing is None:
            self._call(self.on_requested, sequence_numbers, now)
            self._spawn(self.request_packets(sequence_numbers))

    def _handle_sent(self, packet: OutboundPacket, now: float) -> None:
        self.outbound_repair.note_copy(packet.timestamp, packet.copy)
        self._call(self.on_packet_sent, packet, now)

    def _handle_bye(self) -> None:
        # A browser that only takes its microphone away says BYE as well: what decides is whether it still answers.
        if self._bye_at is None:
            self._bye_at = self._loop.time()

    # States

    def _handle_state(self) -> None:
        state = self._pc.connectionState
        if state == "connected":
            self._last_answer = self._loop.time()
            self._set_state("connected", "")
        elif state == "failed":
            self._set_state("failed", "no connection to the other side could be made")
        elif state == "closed" and self._closing is None:
            self._set_state("closed", "remote ended the call")

    def _set_state(self, state: State, reason: str) -> None:
        if state == self.state or self.state in ("failed", "closed"):
            return
        self.state = state
        self._call(self.on_state, state, reason)

    async def _watch(self) -> None:
        """Fail a call that never connects, and find out when the peer is gone."""
        began = self._loop.time()
        while self.state == "connecting":
            await asyncio.sleep(0.1)
            if self._loop.time() - began > self.config.connect_timeout_s:
                self._set_state("failed", f"no connection within {self.config.connect_timeout_s:.0f} s")
        while self.state in ("connected", "disconnected"):
            rtt = await ice.measure_rtt(self._ice._connection)
            now = self._loop.time()
            if rtt is not None:
                self._ice_rtt_s, self._last_answer = rtt, now
                self._inbound.handle_check(rtt, now=now)
                if self._bye_at is not None and now - self._bye_at > _BYE_GRACE_S:
                    self._bye_at = None
            if now - began > _CHANNEL_WAIT_S and self._remote is not None and self._remote.data is not None:
                self._events.create()  # unless the peer has opened one
            silent_s = now - max(self._last_answer, self._queue.last_heard or 0.0)
            self._judge(now, silent_s)
            until_limit_s = self.config.disconnected_after_s - silent_s
            pause_s = 0.2 if self._bye_at is not None or until_limit_s <= 0 else min(PROBE_INTERVAL_S, until_limit_s)
            # A check that was lost is repeated at once: by it the other side learns of a new address.
            await asyncio.sleep(max(0.0 if rtt is None else pause_s, 0.05))

    def _judge(self, now: float, silent_s: float) -> None:
        if self._bye_at is not None and now - self._bye_at > _BYE_GRACE_S and silent_s > _BYE_GRACE_S / 2:
            self._set_state("closed", "remote ended the call")
        elif silent_s > self.config.failed_after_s:
            self._set_state("failed", f"nothing heard from the other side for {silent_s:.0f} s")
        elif silent_s > self.config.disconnected_after_s:
            self._set_state("disconnected", f"nothing heard from the other side for {silent_s:.0f} s")
        elif self.state == "disconnected":
            self._set_state("connected", "heard again")

    def _call(self, callback: Callable[..., None] | None, *arguments: object) -> None:
        if callback is None:
            return
        try:
            callback(*arguments)
        except Exception:
            logger.exception("a callback of a call's transport failed")


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
