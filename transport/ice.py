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
from aiortc import RTCIceServer
from aiortc.rtcicetransport import parse_stun_turn_uri

from transport import udp_socket
from transport.config import TransportConfig
from transport.errors import LocalProtocolError, NoAddressError

logger = logging.getLogger(__name__)

MAX_QUEUED_DATAGRAMS = 1024
"""Twenty seconds of audio: only a loop that stands still lets it fill; then the oldest go."""
MOVED_AFTER_S = 0.1
"""Media from one address alone for this long: on two paths at once it would come from both by turns."""
_MAX_ANSWERS = 64
_GATHER_TIMEOUT_S = 1.0
"""A STUN server that has not answered by then would only delay the call."""
_RELAY_TIMEOUT_S = 1.5
"""A relay takes two round trips, and one of a second is useless; an unreachable one must not keep a call waiting."""


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
        self.incoming_from: tuple[str, int] | None = None
        """Where it came from."""
        self.last_source: tuple[str, int] | None = None
        """Where the last datagram of media or data came from."""
        self.source_since: float | None = None
        """Since when all of them come from there."""
        self.dropped = 0
        """Datagrams thrown away because nothing read them."""

    def put_nowait(self, item: tuple[bytes, int] | None) -> None:
        """Take a datagram and its component; None ends the stream."""
        arrival = self._loop.time() if self.incoming_at is None else self.incoming_at
        if item is not None:
            if not item[0]:  # aiortc reads the first byte without looking, and would end the call
                return
            self.last_heard = arrival
            if self.incoming_from != self.last_source:
                self.last_source, self.source_since = self.incoming_from, arrival
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

    def __init__(self, receiver: Any) -> None:
        super().__init__(receiver)
        self.answered_at: dict[bytes, float] = {}
        """When the answer to a check of ours was received, by the check's transaction."""

    def datagram_received(self, data: bytes | str, addr: tuple[Any, ...]) -> None:
        """Take a datagram from the network, whatever it holds."""
        queue: Any = self.receiver._queue
        queue.incoming_at = arrival = getattr(self.transport, "arrival", None)
        queue.incoming_from = (addr[0], addr[1])
        if arrival is not None and (transaction := bytes(data[8:20])) in self.transactions:  # type: ignore[arg-type]
            if len(self.answered_at) > _MAX_ANSWERS:
                self.answered_at.clear()
            self.answered_at[transaction] = arrival
        try:
            super().datagram_received(data, addr)
        except Exception:  # anyone may send anything here, and aioice unpacks before it checks
            logger.debug("a datagram from %s was no STUN message and no media", addr[0])
        finally:
            queue.incoming_at = queue.incoming_from = None


def prepare(connection: Any, config: TransportConfig) -> DatagramQueue:
    """Make `connection` gather on the configured addresses and ports; returns its datagram queue."""
    queue = DatagramQueue(asyncio.get_running_loop())
    connection._queue = queue

    async def get_component_candidates(component: int, addresses: list[str], timeout: float = 5) -> list[Any]:
        if not connection.turn_server:
            return await _host_candidates(connection, component, addresses, config)
        # With no address, what remains of aioice's own gathering is the TURN relay.
        gather: Any = aioice.ice.Connection.get_component_candidates
        relay = gather(connection, component=component, addresses=[], timeout=min(timeout, _RELAY_TIMEOUT_S))
        hosts, relayed = await asyncio.gather(_host_candidates(connection, component, addresses, config), relay)
        return [*hosts, *relayed]

    connection.get_component_candidates = get_component_candidates
    connection.check_incoming = _follow_moves(connection, queue)
    return queue


def _follow_moves(connection: Any, queue: DatagramQueue) -> Any:
    """Return a `check_incoming` that goes where the peer has gone.

    A peer behind a NAT that gives it a new address goes on sending from there. A browser nominates that path by
    itself; aioice as the controlling side never does. So an authenticated check counts as a nomination where media
    has come from its address, and from no other, for a while.
    """
    check_incoming = connection.check_incoming

    def follow(message: Any, addr: tuple[str, int], protocol: Any) -> None:
        pair = connection._nominated.get(1)
        moved = (
            pair is not None
            and not connection.ice_controlling
            and addr not in (pair.remote_addr, None)
            and addr == queue.last_source
            and queue.source_since is not None
            and queue.last_heard is not None
            and queue.last_heard - queue.source_since >= MOVED_AFTER_S
        )
        if moved:
            logger.info("the peer has moved to another address")
            message.attributes["USE-CANDIDATE"] = None
        check_incoming(message, addr, protocol)

    return follow


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
        if connection.stun_server and ":" not in address and _reaches(address, connection.stun_server[0]):
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


def _reaches(address: str, server: str) -> bool:
    """Whether a socket on `address` can reach `server`: from loopback, only what is on loopback."""
    try:
        return ipaddress.ip_address(address).is_loopback == ipaddress.ip_address(server).is_loopback
    except ValueError:  # a name
        return not ipaddress.ip_address(address).is_loopback


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


def servers(config: TransportConfig) -> list[RTCIceServer]:
    """Return the STUN and TURN servers as aiortc takes them; raises LocalProtocolError for what is none."""
    for server in config.ice_servers:
        try:
            parse_stun_turn_uri(server.url)
        except ValueError:
            words = f"{server.url} is no ICE server; write stun:HOST:PORT or turn:HOST:PORT"
            raise LocalProtocolError(words) from None
    return [
        RTCIceServer(urls=server.url, username=server.username, credential=server.credential)
        for server in config.ice_servers
    ]


async def measure_rtt(connection: Any, *, attempts: int = 1) -> float | None:
    """Return the seconds one STUN check takes on the chosen path (RFC 7675), None where no answer came in 0.5 s.

    By the kernel's receive time, where the socket knows it: what our own loop is busy with is no part of the path.
    """
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
    answers: dict[bytes, float] = getattr(pair.protocol, "answered_at", {})
    return max(0.0, answers.pop(request.transaction_id, loop.time()) - began)
