"""The softphone's control channel: QUIC where it gets through, the call's data channel where it does not."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import msgspec

from jitter.delay import MIN_DELAY_MS
from jitter.playout import PlayoutReader
from transport.call_network import CallNetwork
from transport.peer_connection import PeerConnection
from transport.quic_client import ControlClient

FALL_BACK_S: Final = 3.0
"""QUIC opens in three round trips; past this something on the way drops UDP to the control port."""


class ControlOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The `control` of a call's answer."""

    url: str
    token: str
    certificate_sha256_list: list[str]


class SoftphoneChannel:
    """Telemetry and repair of one call, as its client; `run` belongs in a task, `close` ends all but that."""

    def __init__(self, connection: PeerConnection, *, call_id: str, offer: object) -> None:
        """`offer` is the answer's `control` as it came; anything else than a `ControlOffer` leaves the data channel."""
        self.network: Final = CallNetwork(connection, call_id=call_id)
        self._client: ControlClient | None = None
        self._connection: Final = connection
        self.network.on_receiver_target = self._set_least_delay
        with contextlib.suppress(msgspec.ValidationError):
            control = msgspec.convert(offer, ControlOffer)
            self._client = ControlClient(
                self.network.control,
                url=control.url,
                token=control.token,
                certificate_sha256_list=control.certificate_sha256_list,
            )
            self.network.on_token = self._client.handle_token

    def _set_least_delay(self, target_ms: float | None) -> None:
        """Hold speech for as long as the server's repair needs, as a browser does for its `jitterBufferTarget`."""
        if isinstance(self._connection.reader, PlayoutReader):
            self._connection.reader.controller.bound(minimum_ms=target_ms or MIN_DELAY_MS)

    def start(self) -> None:
        """Begin to act on what is measured; media may flow."""
        self.network.start()

    def handle_text(self, text: str) -> bool:
        """Take in a message of the data channel; False where it is none of the control channel's."""
        return self.network.handle_text(text)

    async def run(self) -> None:
        """Keep a channel open until cancelled."""
        if self._client is None:
            self.network.use_data_channel()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._client.run())
            await asyncio.sleep(FALL_BACK_S)
            self.network.use_data_channel()

    def describe(self) -> dict[str, Any]:
        """Return what is known of the path, for the log."""
        statistics = self.network.control.statistics()
        return {"carrier": self.network.control.carrier_kind, "rtt_ms": statistics.p50_ms}

    def close(self) -> None:
        """Stop acting and end the channel."""
        self.network.close()
