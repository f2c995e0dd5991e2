"""What we ask of aioice beyond its API: our addresses and ports, a bounded queue of stamped datagrams, round trips.

aioice 0.13 gathers on every interface but loopback, on any port, and puts datagrams into a queue without bound and
without the time they came. Each private name used here is held by tests/unit/test_canaries.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections import deque
from collections.abc import Iterable
from typing import Any

import aioice.candidate
import aioice.ice
import aioice.stun
import aioice.turn

from transport import udp_socket
from transport.config import TransportConfig
from transport.errors import NoAddressError

logger = logging.getLogger(__name__)

MAX_QUEUED_DATAGRAMS = 1024
"""Twenty seconds of audio: only a loop that stands still lets it fill; then the oldest go."""
_GATHER_TIMEOUT_S = 3.0


class DatagramQueue:
    """Stands in for `aioice.ice.Connection._queue`: bounded, and it knows when each datagram left the socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[tuple[tuple[bytes, int] | None, float]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.last_arrival = 0.0
        """When the datagram that `get` returned last was received, seconds of `loop.time()`."""
        self.last_heard: float | None = None
        """When any datagram came in last."""
        self.incoming_at: float | None = None
        """When the datagram that is about to be put was received, where the socket knows."""
        self.dropped = 0
        """Datagrams thrown away because nothing read them."""

    def put_nowait(self, item: tuple[bytes, int] | None) -> None:
        """Take a datagram and its component; None ends the stream."""
        arrival = self._loop.time() if self.incoming_at is None else self.incoming_at
        if item is not None:
            if not item[0]:  # aiortc reads the first byte without looking, and would end the call
                return
            self.last_heard = arrival
            if len(self._items) >= MAX_QUEUED_DATAGRAMS:
                self._items.popleft()
                self.dropped += 1
        self._items.append((item, arrival))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> tuple[bytes, int] | None:
        """Return the next datagram; there is one reader."""
        while not self._items:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        item, self.last_arrival = self._items.popleft()
        return item


class SafeStunProtocol(aioice.ice.StunProtocol):
    """aioice's UDP endpoint, which no datagram can make raise."""

    def datagram_received(self, data: bytes | str, addr: tuple[Any, ...]) -> None:
        """Take a datagram from the network, whatever it holds."""
        queue: Any = self.receiver._queue
        queue.incoming_at = getattr(self.transport, "arrival", None)
        try:
            super().datagram_received(data, addr)
        except Exception:  # anyone may send anything here, and aioice unpacks before it checks
            logger.debug("a datagram from %s was no STUN message and no media", addr[0])
        finally:
            queue.incoming_at = None


def prepare(connection: Any, config: TransportConfig) -> DatagramQueue:
    """Make `connection` gather on the configured addresses and ports; returns its datagram queue."""
    queue = DatagramQueue(asyncio.get_running_loop())
    connection._queue = queue

    async def get_component_candidates(component: int, addresses: list[str], timeout: int = 5) -> list[Any]:
        candidates = await _host_candidates(connection, component, addresses, config)
        if connection.turn_server:
            # With no address, what remains of aioice's own gathering is the TURN relay.
            gather = aioice.ice.Connection.get_component_candidates
            candidates += await gather(connection, component=component, addresses=[], timeout=timeout)
        return candidates

    connection.get_component_candidates = get_component_candidates
    return queue


async def _host_candidates(
    connection: Any, component: int, addresses: Iterable[str], config: TransportConfig
) -> list[Any]:
    hosts = config.hosts or ("127.0.0.1", *addresses)
    candidates = []
    queries = []
    for host in dict.fromkeys(hosts):
        protocol = await _open(connection, host, config.udp_ports)
        if protocol is None:
            continue
        address, port = protocol.transport.get_extra_info("sockname")[:2]
        protocol.local_candidate = aioice.Candidate(
            foundation=aioice.candidate.candidate_foundation("host", "udp", address),
            component=component,
            transport="udp",
            priority=_priority(component, address),
            host=address,
            port=port,
            type="host",
        )
        connection._protocols.append(protocol)
        candidates.append(protocol.local_candidate)
        if connection.stun_server and ":" not in address and not ipaddress.ip_address(address).is_loopback:
            queries.append(aioice.ice.server_reflexive_candidate(protocol, connection.stun_server))
    if not candidates:
        ports = f", ports {config.udp_ports[0]}-{config.udp_ports[1]}" if config.udp_ports else ""
        raise NoAddressError(f"no UDP port for media is free on {', '.join(hosts)}{ports}")
    if queries:
        candidates += await _answered(queries)
    return candidates


async def _answered(queries: list[Any]) -> list[Any]:
    """Return the server-reflexive candidates that came back in time."""
    done, pending = await asyncio.wait([asyncio.ensure_future(query) for query in queries], timeout=_GATHER_TIMEOUT_S)
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)
    return [task.result()[0] for task in done if task.exception() is None]


def _priority(component: int, address: str) -> int:
    # Loopback last: where both sides share it, it works; where they do not, nothing waits for its checks.
    preference = 1 if ipaddress.ip_address(address).is_loopback else 65535
    return int(aioice.candidate.candidate_priority(component, "host", preference))


async def _open(connection: Any, host: str, udp_ports: tuple[int, int] | None) -> SafeStunProtocol | None:
    loop = asyncio.get_running_loop()
    for port in range(udp_ports[0], udp_ports[1] + 1) if udp_ports else (0,):
        try:
            if udp_socket.AVAILABLE:
                protocol = SafeStunProtocol(connection)
                transport: asyncio.DatagramTransport = udp_socket.open_stamped(host, port, protocol)
            else:
                transport, protocol = await loop.create_datagram_endpoint(
                    lambda: SafeStunProtocol(connection), local_addr=(host, port)
                )
        except OSError as error:
            logger.debug("no media socket on %s port %d: %s", host, port, error)
            continue
        with contextlib.suppress(OSError):
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, aioice.turn.UDP_SOCKET_BUFFER_SIZE
            )
        return protocol
    return None


async def measure_rtt(connection: Any, *, attempts: int = 1) -> float | None:
    """Return the seconds one STUN check takes on the chosen path (RFC 7675), None where no answer came in 0.5 s."""
    loop = asyncio.get_running_loop()
    pair = connection._nominated.get(1)
    if pair is None or connection.remote_password is None:
        return None
    request = connection.build_request(pair, nominate=False)
    began = loop.time()
    try:
        await pair.protocol.request(
            request,
            pair.remote_addr,
            integrity_key=connection.remote_password.encode(),
            retransmissions=attempts - 1,
        )
    except (aioice.stun.TransactionError, OSError):
        return None
    return loop.time() - began
