"""What we rely on inside aiortc and aioice. A failure here means: that release moved it, and transport/ must follow.

Each test names the file of ours that would break.
"""

from __future__ import annotations

import asyncio
import inspect
from fractions import Fraction
from typing import Any

import aioice
import aioice.ice
import aiortc
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection
from aiortc.codecs import get_encoder
from aiortc.rtcconfiguration import RTCBundlePolicy
from aiortc.rtcdtlstransport import RTCDtlsTransport
from aiortc.rtcrtpparameters import RTCRtpCodecParameters
from aiortc.rtcrtpreceiver import RTCRtpReceiver
from aiortc.rtcrtpsender import RTCRtpSender
from aiortc.rtp import RTP_HISTORY_SIZE
from av import Packet


def source(thing: Any) -> str:
    return inspect.getsource(thing)


async def make() -> tuple[Any, Any, Any]:
    pc: Any = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
    transceiver = pc.addTransceiver("audio")
    return pc, transceiver, transceiver.receiver.transport


def test_the_releases_are_those_that_were_read() -> None:
    assert aiortc.__version__ == "1.16.0"
    assert aioice.__version__ == "0.13.0"


async def test_the_receiver_keeps_its_buffer_and_streams_where_rtp_tap_expects_them() -> None:
    pc, transceiver, _ = await make()
    receiver: Any = transceiver.receiver
    for name in ("jitter_buffer", "remote_streams", "active_ssrc", "codecs", "decoder_thread"):
        assert hasattr(receiver, f"_RTCRtpReceiver__{name}"), name
    assert list(inspect.signature(receiver._handle_rtp_packet).parameters) == ["packet", "arrival_time_ms"]
    assert list(inspect.signature(receiver._handle_rtcp_packet).parameters) == ["packet"]
    assert list(inspect.signature(receiver._send_rtcp_nack).parameters) == ["media_ssrc", "lost"]
    assert "self.__jitter_buffer.add(packet)" in source(RTCRtpReceiver._handle_rtp_packet)
    assert "__stop_decoder" in source(RTCRtpReceiver._handle_disconnect)
    await pc.close()


async def test_the_transport_looks_its_handlers_up_on_the_instance() -> None:
    assert "receiver._handle_rtp_packet(packet, arrival_time_ms=arrival_time_ms)" in source(
        RTCDtlsTransport._handle_rtp_data
    )
    receive = source(RTCDtlsTransport._recv_next)
    assert "self._handle_rtp_data(data, arrival_time_ms=arrival_time_ms)" in receive
    assert "self._handle_rtcp_data(data)" in receive
    assert "self._data_receiver._handle_data(data)" in receive
    assert "data = await self.transport._recv()" in receive
    assert "recipient._handle_rtcp_packet(packet)" in source(RTCDtlsTransport._handle_rtcp_data)


async def test_the_router_routes_payload_types_by_a_table() -> None:
    pc, _, dtls = await make()
    assert dtls._rtp_router.payload_type_table == {}
    await pc.close()


async def test_the_sender_packs_a_ready_packet_as_it_is() -> None:
    codec = RTCRtpCodecParameters(mimeType="audio/opus", clockRate=48000, channels=2, payloadType=111)
    packet: Any = Packet(b"abc")
    packet.pts = 960 * 2**32
    packet.time_base = Fraction(1, 48_000)
    assert get_encoder(codec).pack(packet) == ([b"abc"], 960 * 2**32)
    run = source(RTCRtpSender._next_encoded_frame)
    assert "isinstance(data, Frame)" in run
    assert "self.__encoder.pack(data)" in run
    assert "payload_type=codec.payloadType" in source(RTCRtpSender._run_rtp)


async def test_the_sender_keeps_its_report_times_and_history_where_report_tap_expects_them() -> None:
    pc, transceiver, _ = await make()
    for name in ("lsr", "lsr_time", "rtp_history"):
        assert hasattr(transceiver.sender, f"_RTCRtpSender__{name}"), name
    assert "time.time() - self.__lsr_time" in source(RTCRtpSender._handle_rtcp_packet)
    assert RTP_HISTORY_SIZE == 128
    await pc.close()


async def test_connecting_is_a_task_that_peer_connection_can_follow() -> None:
    assert hasattr(RTCPeerConnection, "_RTCPeerConnection__connect")
    assert "asyncio.ensure_future(self.__connect())" in source(RTCPeerConnection.setLocalDescription)


async def test_one_transport_carries_everything_under_max_bundle() -> None:
    pc, _, dtls = await make()
    pc.createDataChannel("events")
    assert pc.sctp.transport is dtls
    await pc.close()


async def test_ice_keeps_its_queue_protocols_and_pairs_where_ice_expects_them() -> None:
    pc, _, dtls = await make()
    connection = dtls.transport._connection
    assert isinstance(connection._queue, asyncio.Queue)
    assert connection._protocols == []
    assert connection._nominated == {}
    assert "self._queue.put_nowait((data, component))" in source(aioice.ice.Connection.data_received)
    assert "await self._queue.get()" in source(aioice.ice.Connection.recvfrom)
    assert source(aioice.ice.Connection).count("self._queue.") == 4
    assert "self.get_component_candidates(component=component, addresses=addresses)" in source(
        aioice.ice.Connection.gather_candidates
    )
    assert list(inspect.signature(aioice.ice.StunProtocol.request).parameters) == [
        "self",
        "request",
        "addr",
        "integrity_key",
        "retransmissions",
    ]
    assert dtls.transport._recv == connection.recv
    assert dtls.transport._send == connection.send
    await pc.close()


async def test_a_check_that_nominates_moves_the_path_and_aioice_alone_does_not_follow() -> None:
    check = source(aioice.ice.Connection.check_incoming)
    assert list(inspect.signature(aioice.ice.Connection.check_incoming).parameters) == [
        "self",
        "message",
        "addr",
        "protocol",
    ]
    assert '"USE-CANDIDATE" in message.attributes and not self.ice_controlling' in check
    assert "self._nominated[pair.component] = pair" in source(aioice.ice.Connection.check_complete)
    assert "self.check_incoming(message, addr, protocol)" in source(aioice.ice.Connection.request_received)
    assert "nominate=False" in source(aioice.ice.Connection.query_consent)


async def test_aiortc_still_needs_us() -> None:
    """When aiortc's own buffer stops losing what arrived, or reads candidates of every section, simplify transport/."""
    from aiortc.jitterbuffer import JitterBuffer

    assert "smart_remove" in source(JitterBuffer)
    assert "iceCandidates[iceTransport] = media" in source(RTCPeerConnection.setRemoteDescription)
    with pytest.raises(IndexError):
        b""[0]
    assert "first_byte = data[0]" in source(RTCDtlsTransport._recv_next)
