"""The softphone's end of the control channel: raw QUIC, the server known by its digest, reopened for ever.

A channel that has gone quiet is not waited for: the next one is opened beside it with the token at hand, and the server
drops the old one when the new one shows that token.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import (
    ConnectionTerminated,
    DatagramFrameReceived,
    HandshakeCompleted,
    QuicEvent,
    StreamDataReceived,
)
from cryptography.hazmat.primitives import serialization

from transport.control_call import CallControl
from transport.control_messages import PROTOCOL_VERSION, Accepted, CarrierKind, Hello, decode_line, encode
from transport.messages import MAX_MESSAGE_BYTES
from transport.quic_server import ALPN, IDLE_TIMEOUT_S

if TYPE_CHECKING:
    from aioquic.tls import SessionTicket

logger = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 5.0
SILENCE_S = 1.0
"""Twenty-five datagrams a second come from a living server; a second without any is a dead path."""
FIRST_RETRY_S = 0.1
MAX_RETRY_S = 2.0
CLOSE_WRONG_SERVER = 0x3


class ControlClient:
    """Keeps a control channel of `call` open; `run()` belongs in the caller's TaskGroup."""

    def __init__(self, call: CallControl, *, url: str, token: str, certificate_sha256_list: list[str]) -> None:
        """`url`, `token` and the digests come from the answer's `control`."""
        self.opened = asyncio.Event()
        """Set while a channel is open."""
        self.openings = 0
        """How often a channel was opened; a reopened one may be back before anyone saw `opened` cleared."""
        self._call = call
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or 4433
        self._certificate_sha256_list = frozenset(certificate_sha256_list)
        self._token: str | None = token
        self._has_token = asyncio.Event()
        self._has_token.set()
        self._ticket: SessionTicket | None = None
        self._connection: _ClientConnection | None = None

    def handle_token(self, token: str) -> None:
        """Take the newest token in, from the channel itself or from the data channel."""
        self._token = token
        self._has_token.set()

    async def run(self) -> None:
        """Open the channel, and again whenever it drops, until cancelled."""
        retry_s = FIRST_RETRY_S
        try:
            while True:
                await self._has_token.wait()
                if await self._open():
                    retry_s = FIRST_RETRY_S
                    await self._watch()
                else:
                    await asyncio.sleep(retry_s)
                    retry_s = min(MAX_RETRY_S, retry_s * 2)
        finally:
            self.opened.clear()
            if self._connection is not None:
                self._call.detach(self._connection)
                self._connection.end()

    async def _open(self) -> bool:
        token, self._token = self._token, None
        self._has_token.clear()
        if token is None:
            return False
        connection = await self._connect()
        connection.say_hello(token)
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                accepted = await connection.accepted
        except TimeoutError:
            accepted = None
        if accepted is None:
            connection.end()
            if connection.refused is False and self._token is None:
                self.handle_token(token)  # it never arrived, so it may still be good
            return False
        before, self._connection = self._connection, connection
        self.handle_token(accepted.next_token)
        self._call.attach(connection)
        connection.deliver_early()
        if before is not None:
            before.end()
        self.openings += 1
        self.opened.set()
        return True

    async def _watch(self) -> None:
        """Return when the open channel has ended or gone quiet."""
        loop = asyncio.get_running_loop()
        assert self._connection is not None
        ended = asyncio.ensure_future(self._connection.wait_closed())
        try:
            while not ended.done():
                heard_at = self._call.last_heard_at or loop.time()
                left_s = heard_at + SILENCE_S - loop.time()
                if left_s <= 0:
                    logger.info("the control channel went quiet")
                    break
                await asyncio.wait([ended], timeout=left_s)
        finally:
            ended.cancel()
        self.opened.clear()

    async def _connect(self) -> _ClientConnection:
        loop = asyncio.get_running_loop()
        configuration = QuicConfiguration(
            is_client=True,
            alpn_protocols=[ALPN],
            idle_timeout=IDLE_TIMEOUT_S,
            max_datagram_frame_size=65536,
            server_name="localhost",
            session_ticket=self._ticket,
            verify_mode=ssl.CERT_NONE,  # the digest of the certificate is compared instead, before the token is sent
        )
        # each ticket resumes one connection
        self._ticket = None
        quic = QuicConnection(configuration=configuration, session_ticket_handler=self._keep_ticket)
        address = (await loop.getaddrinfo(self._host, self._port, type=2))[0][4]
        _, connection = await loop.create_datagram_endpoint(
            lambda: _ClientConnection(quic, call=self._call, digests=self._certificate_sha256_list),
            local_addr=("::" if ":" in str(address[0]) else "0.0.0.0", 0),  # noqa: S104 the peer's route decides
        )
        connection.connect(cast(Any, address), transmit=False)
        return connection

    def _keep_ticket(self, ticket: SessionTicket) -> None:
        self._ticket = ticket


class _ClientConnection(QuicConnectionProtocol):
    """One connection of the client, and the carrier of its channel once accepted."""

    kind: CarrierKind = "quic"

    def __init__(self, quic: QuicConnection, *, call: CallControl, digests: frozenset[str]) -> None:
        super().__init__(quic)
        self.accepted: asyncio.Future[Accepted | None] = self._loop.create_future()
        self.refused = False
        self._call = call
        self._digests = digests
        self._stream_id: int | None = None
        self._hello: bytes | None = None
        self._early: Callable[[], None] | None = None
        self._line = b""
        self._open = False

    def say_hello(self, token: str) -> None:
        """Send the token as soon as the server is known.

        Never as 0-RTT data, though a resumed session could: aioquic's client does not repeat that after a Retry.
        """
        self._hello = encode(Hello(version=PROTOCOL_VERSION, token=token)) + b"\n"
        self.transmit()

    def deliver_early(self) -> None:
        """Hand over what came on the stream behind the server's first line."""
        self._open = True
        if self._line:
            line, self._line = self._line, b""
            self._call.handle_stream_data(self, line)

    def send_datagram(self, data: bytes) -> None:
        """Send `data` as a datagram."""
        self._quic.send_datagram_frame(data)
        self.transmit()

    def send_stream_data(self, data: bytes) -> None:
        """Send more of the reliable stream."""
        if self._stream_id is not None:
            self._quic.send_stream_data(self._stream_id, data)
            self.transmit()

    def end(self) -> None:
        """Close the connection and its socket."""
        self.close()
        if self._transport is not None:
            self._transport.close()

    def quic_event_received(self, event: QuicEvent) -> None:
        """Take in an event of aioquic."""
        match event:
            case HandshakeCompleted(session_resumed=resumed):
                self._handle_handshake(resumed=resumed)
            case StreamDataReceived(data=data) if self._open:
                self._call.handle_stream_data(self, data)
            case StreamDataReceived(data=data):
                self._handle_first_line(data)
            case DatagramFrameReceived(data=data):
                self._call.handle_datagram(self, data)
            case ConnectionTerminated():
                self.refused = True
                self._finish(None)
                self._call.detach(self)

    def _handle_handshake(self, *, resumed: bool) -> None:
        """A resumed session was with the server whose digest was right before; any other shows its certificate now."""
        certificate = self._quic.tls._peer_certificate
        if not resumed:
            der = certificate.public_bytes(serialization.Encoding.DER) if certificate else b""
            if hashlib.sha256(der).hexdigest() not in self._digests:
                logger.warning("the control channel's server shows a certificate that the call did not announce")
                self.close(error_code=CLOSE_WRONG_SERVER)
                self._finish(None)
                return
        self._send_hello()

    def _send_hello(self) -> None:
        if self._hello is not None and self._stream_id is None:
            self._stream_id = self._quic.get_next_available_stream_id()
            self._quic.send_stream_data(self._stream_id, self._hello)
            self._hello = None

    def _handle_first_line(self, data: bytes) -> None:
        self._line += data
        line, newline, rest = self._line.partition(b"\n")
        if newline and not self.accepted.done():
            accepted = decode_line(line)
            self._line = rest
            self._finish(accepted if isinstance(accepted, Accepted) else None)
        elif len(self._line) > 4 * MAX_MESSAGE_BYTES:
            self.close()

    def _finish(self, accepted: Accepted | None) -> None:
        if not self.accepted.done():
            self.accepted.set_result(accepted)
