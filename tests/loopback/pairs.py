"""Two real peer connections over 127.0.0.1, and a network between them that can be spoilt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np

from jitter.listen import AudioFrame
from transport.peer_connection import PeerConnection, TransportConfig

LOCAL = TransportConfig(hosts=("127.0.0.1",))


class Peer:
    """A peer connection with everything it tells kept."""

    def __init__(self, config: TransportConfig = LOCAL) -> None:
        self.connection = PeerConnection(config)
        self.frames: list[AudioFrame] = []
        self.messages: list[str] = []
        self.states: list[tuple[str, str]] = []
        self.connection.on_audio = lambda frames, now: self.frames.extend(frames)
        self.connection.on_message = self.messages.append
        self.connection.on_state = lambda state, reason: self.states.append((state, reason))

    @property
    def heard(self) -> np.ndarray:
        """All sound so far."""
        return np.concatenate([frame.samples for frame in self.frames]) if self.frames else np.zeros(0, np.int16)

    @property
    def state(self) -> str:
        return self.states[-1][0] if self.states else ""

    def impair_sending(self, drop: Callable[[bytes], bool]) -> None:
        """Let `drop` decide of each datagram that leaves, after encryption, whether it is lost."""
        transport: Any = self.connection._ice
        send = transport._send

        async def lossy(data: bytes) -> None:
            if not drop(data):
                await send(data)

        transport._send = lossy


def is_rtp(data: bytes) -> bool:
    """Whether a datagram is SRTP media and neither SRTCP, DTLS nor STUN (RFC 7983, RFC 5761)."""
    return len(data) > 12 and 128 <= data[0] < 192 and not 192 <= data[1] < 224


async def wait_for(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Return when `condition()` holds; fails after `timeout_s`."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def connect(caller: Peer, callee: Peer) -> None:
    """Exchange offer and answer, and wait until both are connected."""
    answer = await callee.connection.answer(await caller.connection.offer())
    await caller.connection.accept(answer)
    await wait_for(lambda: caller.state == callee.state == "connected")


@contextlib.asynccontextmanager
async def call(
    caller_config: TransportConfig = LOCAL, callee_config: TransportConfig = LOCAL
) -> AsyncIterator[tuple[Peer, Peer]]:
    """A call between two peers, closed at the end."""
    caller, callee = Peer(caller_config), Peer(callee_config)
    try:
        await connect(caller, callee)
        yield caller, callee
    finally:
        await caller.connection.close()
        await callee.connection.close()
