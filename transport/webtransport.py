"""WebTransport for browsers on aioquic's HTTP/3, with what today's Chromium, Firefox and Safari ask of a server.

The session's CONNECT carries the one-time token in its path, so that the channel costs no round trip of its own and a
stranger gets the same 404 as for any other path. The server opens the reliable stream, because Safari may not.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DatagramReceived, DataReceived, H3Event, HeadersReceived
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import QuicEvent, StreamDataReceived, StreamReset

from transport.control_call import CallControl
from transport.control_messages import CarrierKind

CONTROL_PATH = "/control"
SETTING_WT_MAX_SESSIONS = 0x14E9CD29
"""draft-ietf-webtrans-http3-13; Safari 26.4 opens no session without it. More than one would ask for flow control."""
SETTING_WT_ENABLED = 0x2C7CF000
"""draft-ietf-webtrans-http3-15's name for the same."""


class _H3WithWebTransport(H3Connection):
    """aioquic announces draft-02 (what Chromium and Firefox want); this adds what newer browsers look for."""

    def __init__(self, quic: QuicConnection) -> None:
        super().__init__(quic, enable_webtransport=True)

    def _get_local_settings(self) -> dict[int, int]:
        return super()._get_local_settings() | {SETTING_WT_MAX_SESSIONS: 1, SETTING_WT_ENABLED: 1}


class WebTransportCarrier:
    """The one control session of a browser's HTTP/3 connection; `redeem(token)` opens it or returns None."""

    kind: CarrierKind = "webtransport"

    def __init__(
        self, quic: QuicConnection, *, redeem: Callable[[str], CallControl | None], transmit: Callable[[], None]
    ) -> None:
        self._quic = quic
        self._h3 = _H3WithWebTransport(quic)
        self._redeem = redeem
        self._transmit = transmit
        self._session_id: int | None = None
        self._stream_id: int | None = None
        self.call: CallControl | None = None

    def handle_event(self, event: QuicEvent) -> bool:
        """Take in a QUIC event; True if a session was opened by it."""
        if isinstance(event, StreamDataReceived) and event.stream_id == self._stream_id:
            # aioquic takes what comes back on a stream that we opened for the frames of a request
            if self.call is not None:
                self.call.handle_stream_data(self, event.data)
            return False
        if isinstance(event, StreamReset) and event.stream_id == self._session_id:
            self._end_session()
        opened = False
        for http_event in self._h3.handle_event(event):
            opened |= self._handle_http_event(http_event)
        return opened

    def send_datagram(self, data: bytes) -> None:
        """Send `data` as a datagram of the session."""
        if self._session_id is not None:
            self._h3.send_datagram(self._session_id, data)
            self._transmit()

    def send_stream_data(self, data: bytes) -> None:
        """Send more of the stream that the server opened."""
        if self._stream_id is not None:
            self._quic.send_stream_data(self._stream_id, data)
            self._transmit()

    def close(self) -> None:
        """End the connection, and with it the session."""
        self._quic.close()
        self._transmit()

    def _handle_http_event(self, event: H3Event) -> bool:
        match event:
            case HeadersReceived(headers=headers, stream_id=stream_id):
                return self._handle_request(dict(headers), stream_id)
            case DatagramReceived(data=data, stream_id=stream_id) if stream_id == self._session_id and self.call:
                self.call.handle_datagram(self, data)
            case DataReceived(stream_id=stream_id, stream_ended=True) if stream_id == self._session_id:
                self._end_session()
        return False

    def _handle_request(self, headers: dict[bytes, bytes], stream_id: int) -> bool:
        call = None
        if self.call is None and headers.get(b":method") == b"CONNECT" and headers.get(b":protocol") == b"webtransport":
            call = self._redeem(token_in_path(headers.get(b":path", b"").decode(errors="replace")))
        if call is None:
            self._h3.send_headers(stream_id=stream_id, headers=[(b":status", b"404")], end_stream=True)
            self._transmit()
            return False
        self._h3.send_headers(
            stream_id=stream_id, headers=[(b":status", b"200"), (b"sec-webtransport-http3-draft", b"draft02")]
        )
        self._session_id = stream_id
        self._stream_id = self._h3.create_webtransport_stream(stream_id)
        self.call = call
        return True

    def _end_session(self) -> None:
        if self.call is not None:
            self.call.detach(self)
        self.close()


def token_in_path(path: str) -> str:
    """Return the token of `/control?token=…`, or an empty string, which opens nothing."""
    try:
        parts = urlsplit(path)
        tokens = parse_qs(parts.query, max_num_fields=4).get("token", [])
    except ValueError:
        return ""
    return tokens[0] if parts.path == CONTROL_PATH and len(tokens) == 1 else ""
