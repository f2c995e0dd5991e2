"""What the control channel and repair rely on inside aiortc and aioquic, so that a new release fails here first."""

from __future__ import annotations

import inspect

from aioquic.h3.connection import H3Connection
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.tls import Context
from aiortc import RTCRtpSender
from aiortc.rtcdtlstransport import RTCDtlsTransport


def test_aiortc_asks_for_each_frame_with_its_codec_and_reads_the_payload_type_afterwards() -> None:
    source = inspect.getsource(RTCRtpSender._run_rtp)
    asks = source.index("await self._next_encoded_frame(codec)")
    assert asks < source.index("payload_type=codec.payloadType")
    assert "await self.transport._send_rtp(" in source
    assert list(inspect.signature(RTCDtlsTransport._send_rtp).parameters) == ["self", "data"]


def test_aiortc_answers_requests_one_packet_at_a_time_from_its_history() -> None:
    assert list(inspect.signature(RTCRtpSender._retransmit).parameters) == ["self", "sequence_number"]
    assert "RTP_HISTORY_SIZE" in inspect.getsource(RTCRtpSender._retransmit)
    assert "packet.lost" in inspect.getsource(RTCRtpSender._handle_rtcp_packet)


def test_aioquic_reads_its_certificate_from_the_configuration_of_each_new_connection() -> None:
    source = inspect.getsource(QuicConnection._initialize)
    assert "self._configuration.certificate" in source
    assert "self._configuration.private_key" in source
    assert "certificate" in QuicConfiguration.__dataclass_fields__


def test_aioquic_keeps_the_peers_certificate_and_tells_its_address() -> None:
    assert "_peer_certificate" in inspect.getsource(Context.__init__)
    assert callable(QuicConnection.get_peer_address)
    assert "_get_local_settings" in inspect.getsource(H3Connection._init_connection)
