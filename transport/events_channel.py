"""The data channel "events" of a call: text messages both ways, whichever side opened it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from aiortc import RTCDataChannel, RTCPeerConnection

logger = logging.getLogger(__name__)

LABEL = "events"
MAX_WAITING_MESSAGES = 256
"""Messages kept until the channel opens; then the oldest go."""
MAX_BUFFERED_BYTES = 256 * 1024
"""What a peer that reads nothing may cost us; beyond it messages are dropped."""
MAX_MESSAGE_CHARS = 16 * 1024
"""A longer message than this from the peer is ignored."""


class EventsChannel:
    """Sends and receives text; messages sent before the channel is open wait for it."""

    def __init__(self, peer_connection: RTCPeerConnection) -> None:
        self.on_message: Callable[[str], None] | None = None
        self.dropped = 0
        self._peer_connection = peer_connection
        self._channel: RTCDataChannel | None = None
        self._waiting: deque[str] = deque(maxlen=MAX_WAITING_MESSAGES)
        peer_connection.on("datachannel", self._adopt)

    @property
    def is_open(self) -> bool:
        """Whether a message would leave now."""
        return self._channel is not None and self._channel.readyState == "open"

    def create(self) -> None:
        """Open the channel from our side, unless there is one."""
        if self._channel is None:
            self._adopt(self._peer_connection.createDataChannel(LABEL))

    def send(self, text: str) -> None:
        """Send `text`, at once or when the channel opens."""
        channel = self._channel
        if channel is None or channel.readyState == "connecting":
            self.dropped += len(self._waiting) == MAX_WAITING_MESSAGES
            self._waiting.append(text)
        elif channel.readyState != "open" or channel.bufferedAmount > MAX_BUFFERED_BYTES:
            self.dropped += 1
        else:
            channel.send(text)

    async def drain(self, timeout_s: float) -> None:
        """Wait until what was sent has left, as before a close; `timeout_s` at most."""
        channel = self._channel
        if channel is None or channel.readyState != "open" or not channel.bufferedAmount:
            return
        left = asyncio.get_running_loop().create_future()

        def on_low() -> None:
            if not left.done():
                left.set_result(None)

        channel.on("bufferedamountlow", on_low)
        channel.on("close", on_low)
        await asyncio.wait([left], timeout=timeout_s)
        left.cancel()

    def _adopt(self, channel: RTCDataChannel) -> None:
        if channel.label != LABEL:
            return
        channel.on("message", self._receive)
        if self._channel is not None and self._channel.readyState in ("connecting", "open"):
            return  # both sides opened one: we send on the first and hear on both
        self._channel = channel
        if channel.readyState == "open":
            self._flush()
        else:
            channel.on("open", self._flush)

    def _flush(self) -> None:
        while self._waiting and self.is_open:
            self.send(self._waiting.popleft())

    def _receive(self, data: str | bytes) -> None:
        if isinstance(data, str) and len(data) <= MAX_MESSAGE_CHARS and self.on_message is not None:
            self.on_message(data)
