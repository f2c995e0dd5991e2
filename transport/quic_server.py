"""The server of the control channels: raw QUIC for softphones and WebTransport for browsers on one UDP port.

Addresses are validated by Retry before any state is kept. Whoever does not show a good token soon is dropped with an
empty close, whatever was wrong with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import QuicServer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import (
    ConnectionTerminated,
    DatagramFrameReceived,
    ProtocolNegotiated,
    QuicEvent,
    StreamDataReceived,
)

from transport.certificates import CertificateRotation
from transport.control_call import CallControl
from transport.control_messages import (
    PROTOCOL_VERSION,
    Accepted,
    CarrierKind,
    Hello,
    NextToken,
    decode_line,
)
from transport.control_tokens import RENEW_S, TokenRegistry
from transport.webtransport import CONTROL_PATH, WebTransportCarrier

if TYPE_CHECKING:
    from aioquic.tls import SessionTicket

logger = logging.getLogger(__name__)

ALPN = f"antiphon/{PROTOCOL_VERSION}"
ALPN_HTTP3 = "h3"
HANDSHAKE_TIMEOUT_S = 5.0
"""From the first packet to a good token: three round trips, the longest of them by satellite."""
IDLE_TIMEOUT_S = 10.0
"""Ten echoes a second come from a living peer, so a hundred missing ones are an end."""
MAX_STRANGERS = 256
"""Connections without a token at any time; past that new ones are dropped at once, so strangers cost bounded memory."""
MAX_HELLO_BYTES = 512
MAX_TICKETS = 1000
CLOSE_REFUSED = 0x1
CLOSE_VERSION = 0x2


class ControlServer:
    """Serves the control channels of all calls; every call is registered first and gets its token from there."""

    def __init__(
        self, *, host: str, port: int, unix_time: Callable[[], float], retry: bool = True, ttl_s: float | None = None
    ) -> None:
        """`unix_time()` returns seconds since the epoch, for certificates; `port` 0 takes a free one."""
        self.tokens = TokenRegistry() if ttl_s is None else TokenRegistry(ttl_s=ttl_s)
        self.strangers: set[_ServerConnection] = set()
        self._host = host
        self._port = port
        self._retry = retry
        self._unix_time = unix_time
        self._rotation = CertificateRotation(unix_now=unix_time())
        self._calls: dict[str, CallControl] = {}
        self._out_of_band: dict[str, Callable[[NextToken], None]] = {}
        self._tickets: OrderedDict[bytes, SessionTicket] = OrderedDict()
        self._configuration = QuicConfiguration(
            is_client=False,
            alpn_protocols=[ALPN, ALPN_HTTP3],
            idle_timeout=IDLE_TIMEOUT_S,
            max_datagram_frame_size=65536,
        )
        self._server: QuicServer | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def port(self) -> int:
        """Return the UDP port that is served."""
        return self._port

    @property
    def certificate_sha256_list(self) -> list[str]:
        """Return the hex digests of the serving certificate and the next one, for `serverCertificateHashes`."""
        return self._rotation.certificate_sha256_list

    def url(self, host: str) -> str:
        """Return where a peer that reaches us as `host` finds the control channel."""
        return f"https://{f'[{host}]' if ':' in host else host}:{self._port}{CONTROL_PATH}"

    async def start(self) -> None:
        """Bind the port and serve."""
        self._loop = asyncio.get_running_loop()
        self._use_certificate()
        self._arm_rotation()
        transport, server = await self._loop.create_datagram_endpoint(
            lambda: QuicServer(
                configuration=self._configuration,
                create_protocol=self._create_connection,
                session_ticket_fetcher=self._take_ticket,
                session_ticket_handler=self._keep_ticket,
                retry=self._retry,
            ),
            local_addr=(self._host, self._port),
        )
        self._server = server
        self._port = transport.get_extra_info("sockname")[1]

    async def aclose(self) -> None:
        """Close every channel and the port."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for call_id in list(self._calls):
            self.unregister(call_id)
        for stranger in list(self.strangers):
            stranger.refuse()
        if self._server is not None:
            self._server.close()
            self._server = None
        await asyncio.sleep(0)

    def register(self, call: CallControl, *, send_out_of_band: Callable[[NextToken], None]) -> str:
        """Let channels of `call` be opened and return the first token; later ones also go by `send_out_of_band`."""
        assert self._loop is not None, "start() comes first"
        self._calls[call.call_id] = call
        self._out_of_band[call.call_id] = send_out_of_band
        self._arm(call.call_id, RENEW_S, lambda: self._renew(call.call_id))
        return self.tokens.issue(call.call_id, now=self._loop.time())

    def describe(self, call_id: str, host: str) -> dict[str, object]:
        """Return what a call's answer says of its channel: where, with which token, and the certificates to trust."""
        return {
            "url": self.url(host),
            "token": self._issue(call_id).next_token,
            "certificate_sha256_list": self.certificate_sha256_list,
        }

    def unregister(self, call_id: str) -> None:
        """Close the call's channel and burn its tokens."""
        self.tokens.revoke(call_id)
        self._out_of_band.pop(call_id, None)
        if timer := self._timers.pop(call_id, None):
            timer.cancel()
        if call := self._calls.pop(call_id, None):
            call.close()

    def redeem(self, token: str) -> CallControl | None:
        """Return the call that `token` opens and burn the token; None for any other."""
        assert self._loop is not None
        call_id = self.tokens.redeem(token, now=self._loop.time())
        return self._calls.get(call_id) if call_id is not None else None

    def accept(self, call: CallControl) -> Accepted:
        """Return the first line of a channel that `call` just opened; its token goes out of band, too."""
        next_token = self._issue(call.call_id)
        self._out_of_band[call.call_id](next_token)
        return Accepted(
            version=PROTOCOL_VERSION,
            call_id=call.call_id,
            next_token=next_token.next_token,
            token_ttl_ms=next_token.token_ttl_ms,
        )

    def _issue(self, call_id: str) -> NextToken:
        assert self._loop is not None
        token = self.tokens.issue(call_id, now=self._loop.time())
        return NextToken(next_token=token, token_ttl_ms=self.tokens.ttl_s * 1000)

    def _renew(self, call_id: str) -> None:
        token = self._issue(call_id)
        self._calls[call_id].hand_out_token(token)
        self._out_of_band[call_id](token)
        self._arm(call_id, RENEW_S, lambda: self._renew(call_id))

    def _arm(self, name: str, delay_s: float, callback: Callable[[], None]) -> None:
        assert self._loop is not None
        if timer := self._timers.pop(name, None):
            timer.cancel()
        self._timers[name] = self._loop.call_later(delay_s, callback)

    def _create_connection(self, quic: QuicConnection, stream_handler: Any = None) -> QuicConnectionProtocol:  # noqa: ARG002
        return _ServerConnection(quic, server=self)

    def _use_certificate(self) -> None:
        """aioquic reads the configuration anew for each connection, so open ones keep what they began with."""
        self._configuration.certificate = self._rotation.current.certificate
        self._configuration.private_key = self._rotation.current.private_key

    def _arm_rotation(self) -> None:
        """Look once an hour: a timer of seven days would not see the machine sleep."""
        if self._rotation.handle_timer(unix_now=self._unix_time()):
            self._use_certificate()
            logger.info("the next certificate of the control channel serves now")
        self._arm("", 3600.0, self._arm_rotation)

    def _keep_ticket(self, ticket: SessionTicket) -> None:
        self._tickets[ticket.ticket] = ticket
        while len(self._tickets) > MAX_TICKETS:
            self._tickets.popitem(last=False)

    def _take_ticket(self, label: bytes) -> SessionTicket | None:
        """Each ticket resumes once, which with one-time tokens leaves 0-RTT nothing to replay."""
        return self._tickets.pop(label, None)


class _RawCarrier:
    """The control channel of a softphone: the client's first stream, and datagrams."""

    kind: CarrierKind = "quic"

    def __init__(self, connection: _ServerConnection, *, stream_id: int) -> None:
        self._connection = connection
        self._stream_id = stream_id

    def send_datagram(self, data: bytes) -> None:
        self._connection.quic.send_datagram_frame(data)
        self._connection.transmit()

    def send_stream_data(self, data: bytes) -> None:
        self._connection.quic.send_stream_data(self._stream_id, data)
        self._connection.transmit()

    def close(self) -> None:
        self._connection.close()


class _ServerConnection(QuicConnectionProtocol):
    """One client: a stranger until its token was good, then the carrier of its call."""

    def __init__(self, quic: QuicConnection, *, server: ControlServer) -> None:
        super().__init__(quic)
        self.quic = quic
        self._server = server
        self._call: CallControl | None = None
        self._carrier: _RawCarrier | WebTransportCarrier | None = None
        self._web: WebTransportCarrier | None = None
        self._hello = b""
        self._peer_address: Any = None
        self._deadline = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self.refuse)
        server.strangers.add(self)
        if len(server.strangers) > MAX_STRANGERS:
            self._loop.call_soon(self.refuse)

    def datagram_received(self, data: bytes | str, addr: Any) -> None:
        """Take in a UDP datagram; a peer that moved has another round trip."""
        super().datagram_received(data, addr)
        address = self.quic.get_peer_address()
        if address != self._peer_address and self._call is not None and self._carrier is not None:
            if self._peer_address is not None:
                self._call.handle_path_changed(self._carrier)
            self._peer_address = address

    def quic_event_received(self, event: QuicEvent) -> None:
        """Take in an event of aioquic."""
        if isinstance(event, ConnectionTerminated):
            self._handle_terminated()
        elif isinstance(event, ProtocolNegotiated) and event.alpn_protocol == ALPN_HTTP3:
            self._web = WebTransportCarrier(self.quic, redeem=self._server.redeem, transmit=self._transmit_soon)
        elif self._web is not None:
            if self._web.handle_event(event) and self._web.call is not None:
                self._open(self._web.call, self._web)
        elif isinstance(event, StreamDataReceived):
            self._handle_raw_stream(event)
        elif isinstance(event, DatagramFrameReceived) and self._call is not None and self._carrier is not None:
            self._call.handle_datagram(self._carrier, event.data)

    def _handle_raw_stream(self, event: StreamDataReceived) -> None:
        if event.stream_id != 0:
            return
        if self._call is not None and self._carrier is not None:
            self._call.handle_stream_data(self._carrier, event.data)
            return
        self._hello += event.data
        line, newline, rest = self._hello.partition(b"\n")
        if not newline:
            if len(self._hello) > MAX_HELLO_BYTES or event.end_stream:
                self.refuse()
            return
        hello = decode_line(line) if len(line) <= MAX_HELLO_BYTES else None
        call = self._server.redeem(hello.token) if isinstance(hello, Hello) else None
        if call is None or not isinstance(hello, Hello):
            self.refuse()
        elif hello.version != PROTOCOL_VERSION:
            self.close(error_code=CLOSE_VERSION, reason_phrase=f"this server speaks version {PROTOCOL_VERSION}")
        else:
            self._hello = b""
            self._open(call, _RawCarrier(self, stream_id=event.stream_id))
            if rest and self._carrier is not None:
                call.handle_stream_data(self._carrier, rest)

    def _open(self, call: CallControl, carrier: _RawCarrier | WebTransportCarrier) -> None:
        self._deadline.cancel()
        self._server.strangers.discard(self)
        self._call, self._carrier = call, carrier
        self._peer_address = self.quic.get_peer_address()
        call.attach(carrier, first=self._server.accept(call))

    def refuse(self) -> None:
        """Drop a stranger without a word; nothing happens to a peer whose token was good."""
        if self._call is None:
            self._deadline.cancel()
            self._server.strangers.discard(self)
            self.close(error_code=CLOSE_REFUSED)

    def _handle_terminated(self) -> None:
        self._deadline.cancel()
        self._server.strangers.discard(self)
        if self._call is not None and self._carrier is not None:
            self._call.detach(self._carrier)
