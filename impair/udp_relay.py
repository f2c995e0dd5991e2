"""A UDP relay with a network in it: one process, both directions, any number of flows, timed to well under 1 ms.

Each route listens on one port and sends to one address; every client address on it is a flow with a socket of its own
towards the target, so the target sees clients as distinct as they are. Runs in the thread that calls `run`; other
threads steer it through `call`.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TextIO, TypeVar

from impair.errors import RelayError
from impair.flows import Address, Flow, KindOrdinals, Network, PacketKind, flip_bits
from impair.profile import Direction
from impair.recorder import ArrivalRecorder
from impair.relay_stats import RelayStats
from impair.sockets import bound_socket, connected_socket, receive
from impair.waiting import PreciseSelector

T = TypeVar("T")

MAX_FLOWS = 4096
"""Beyond it the flow that has been silent longest makes room."""
MAX_QUEUED_BYTES = 64 * 2**20
"""What may be on its way at once, together; more is dropped and counted."""
_FLOW_IDLE_S = 120.0
_BURST = 32
"""Packets read from one socket before others and due packets get their turn."""
_BOOKKEEPING_BYTES = 200


@dataclass(slots=True, kw_only=True)
class Route:
    """One listening port and where it leads; `listener` tells which side of the call sends to the port."""

    number: int
    sock: socket.socket
    to: Address
    listener: Direction
    flows: dict[Address, _FlowSockets] = field(default_factory=dict)

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self.sock.getsockname()[:2]
        return host, port


@dataclass(slots=True)
class _FlowSockets:
    flow: Flow
    route: Route
    sock: socket.socket
    rebound_at: float | None = None
    """When it got another source port, until media came back to that."""

    def send_to_target(self, packet: bytes) -> None:
        self.sock.send(packet)

    def send_to_client(self, packet: bytes) -> None:
        self.route.sock.sendto(packet, self.flow.client)


class UdpRelay:
    """Relays packets through the network it is given.

    `log` takes one CSV row a packet (see LOG_HEADER); `recorders` hear each way's packets as they come in, so that the
    network in front of the relay becomes a trace.
    """

    LOG_HEADER = "flow,way,kind,at_us,size_bytes,delays_us,lost_by"

    def __init__(
        self, network: Network, *, log: TextIO | None = None, recorders: dict[Direction, ArrivalRecorder] | None = None
    ) -> None:
        self._network = network
        self._log = log
        self._recorders = recorders or {}
        self._selector = PreciseSelector()
        self._routes: list[Route] = []
        self._ordinals = KindOrdinals()
        self._flow_numbers = itertools.count()
        self._queue: list[tuple[float, int, Callable[[bytes], None], bytes]] = []
        self._order = itertools.count()
        self._queued_bytes = 0
        self._outage_until = 0.0
        self._calls: deque[Callable[[], None]] = deque()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._selector.add(self._wake_read, self._handle_calls)
        self._running = True
        self.stats = RelayStats()
        if log is not None:
            log.write(self.LOG_HEADER + "\n")

    # steering, from the relay's own thread; from others through `call`

    def add_route(self, listen: Address, to: Address, *, listener: Direction = "up") -> Address:
        """Listen there (port 0: any free one) and relay to `to`; gives the address it listens on."""
        sock = bound_socket(listen, to)
        route = Route(number=len(self._routes), sock=sock, to=to, listener=listener)
        self._routes.append(route)
        self._selector.add(sock, partial(self._read_route, route))
        return route.address

    def set_network(self, network: Network) -> None:
        """Change the network of every flow, now; what is on its way keeps its time of arrival."""
        self._network = network
        now = time.monotonic()
        for flow in self._flows():
            flow.flow.set_network(network, now=now)

    def begin_outage(self, duration_s: float) -> None:
        """Lose everything that comes in, both ways, for so long from now."""
        if not 0 <= duration_s < 1e6:
            raise RelayError(f"an outage lasts 0 s or more, not {duration_s:g}")
        self._outage_until = time.monotonic() + duration_s

    def rebind(self) -> int:
        """Give every flow another source port towards the target, as a NAT that forgot it; says how many."""
        count = 0
        for flow in self._flows():
            fresh = connected_socket(flow.route.to)
            self._selector.remove(flow.sock)
            flow.sock.close()
            flow.sock = fresh
            flow.rebound_at = time.monotonic()
            self._selector.add(fresh, partial(self._read_flow, flow))
            count += 1
        return count

    def report(self) -> dict[str, Any]:
        """What the relay did so far, as plain values for JSON."""
        return {
            "profile": self._network.profile.name,
            "seed": self._network.seed,
            "media": self._network.media,
            "routes": [
                {"listen": list(route.address), "to": list(route.to), "listener": route.listener}
                for route in self._routes
            ],
            "relay": self.stats.report() | {"queued_packets": len(self._queue), "queued_bytes": self._queued_bytes},
            "flows": [flow.flow.stats() for flow in self._flows()],
        }

    def call(self, function: Callable[[], T]) -> T:
        """Run this on the relay's thread between two packets and give its result; for other threads."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(function())
            except Exception as error:
                done.set_exception(error)

        if not self._running:
            raise RelayError("the relay has ended")
        self._calls.append(run)
        self._wake()
        return done.result(timeout=10)

    def stop(self) -> None:
        """End `run` soon; from any thread or a signal handler."""
        self._running = False
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b"!")

    def run(self) -> dict[str, Any]:
        """Relay until `stop`, then close every socket; gives the last report."""
        next_sweep = time.monotonic() + 1.0
        try:
            while self._running:
                now = time.monotonic()
                if now >= next_sweep:
                    self._sweep(now=now)
                    next_sweep = now + 1.0
                due = self._queue[0][0] if self._queue else next_sweep
                for handler in self._selector.wait(max(0.0, min(due, next_sweep) - now)):
                    handler()
                    self._send_due()
                self._send_due()
            return self.report()
        finally:
            self._close()

    # packets

    def _read_route(self, route: Route) -> None:
        for _ in range(_BURST):
            received = receive(route.sock, self.stats)
            if received is None:
                return
            packet, client, arrival = received
            flow = route.flows.get(client) or self._open_flow(route, client, now=arrival)
            if flow is not None:
                self._relay(packet, flow, route.listener, arrival, flow.send_to_target)

    def _read_flow(self, flow: _FlowSockets) -> None:
        for _ in range(_BURST):
            received = receive(flow.sock, self.stats)
            if received is None:
                return
            packet, _, arrival = received
            if flow.rebound_at is not None and PacketKind.of(packet) is PacketKind.RTP:
                self.stats.note_move(arrival - flow.rebound_at)
                flow.rebound_at = None
            way: Direction = "down" if flow.route.listener == "up" else "up"
            self._relay(packet, flow, way, arrival, flow.send_to_client)

    def _relay(
        self, packet: bytes, flow: _FlowSockets, way: Direction, arrival: float, send: Callable[[bytes], None]
    ) -> None:
        # The kernel's stamps come on the wall clock; converted, two packets a microsecond apart may change places.
        arrival = max(arrival, flow.flow.last_used)
        recorder = self._recorders.get(way)
        if recorder is not None:
            recorder.handle_packet(packet, now=arrival)
        fate, kind = flow.flow.handle_packet(packet, way, self._ordinals, now=arrival)
        if self._log is not None:
            self._write_log(flow.flow, way, kind, arrival, len(packet), fate.deliveries, fate.lost_by)
        if arrival < self._outage_until:
            self.stats.outage_lost += 1
            return
        for delivery in fate.deliveries:
            if self._queued_bytes > MAX_QUEUED_BYTES:
                self.stats.overflow_lost += 1
                return
            data = flip_bits(packet, delivery.flips)
            self._queued_bytes += len(data) + _BOOKKEEPING_BYTES
            heapq.heappush(self._queue, (delivery.at, next(self._order), send, data))

    def _send_due(self) -> None:
        queue = self._queue
        while queue:
            now = time.monotonic()
            due = queue[0][0]
            if due > now:
                return
            _, _, send, data = heapq.heappop(queue)
            self._queued_bytes -= len(data) + _BOOKKEEPING_BYTES
            if self._send(send, data):
                self.stats.note_sent(now - due)

    def _send(self, send: Callable[[bytes], None], data: bytes) -> bool:
        """Send; a refusal tells of a packet before, and keeps this one from leaving: once more, then."""
        for _ in range(2):
            try:
                send(data)
            except ConnectionRefusedError:
                self.stats.refused += 1
            except OSError:
                self.stats.socket_errors += 1
                return False
            else:
                return True
        return False

    def _write_log(
        self, flow: Flow, way: Direction, kind: int, arrival: float, size: int, deliveries: Any, lost_by: str | None
    ) -> None:
        assert self._log is not None
        at_us = flow.since_us(arrival)
        delays = ";".join(str(flow.since_us(delivery.at) - at_us) for delivery in deliveries)
        self._log.write(f"{flow.number},{way},{kind},{at_us},{size},{delays},{lost_by or ''}\n")

    # flows

    def _flows(self) -> list[_FlowSockets]:
        return [flow for route in self._routes for flow in route.flows.values()]

    def _open_flow(self, route: Route, client: Address, *, now: float) -> _FlowSockets | None:
        if sum(len(each.flows) for each in self._routes) >= MAX_FLOWS:
            self._close_flow(min(self._flows(), key=lambda flow: flow.flow.last_used))
        try:
            sock = connected_socket(route.to)
        except OSError:
            self.stats.socket_errors += 1
            return None
        flow = _FlowSockets(Flow(next(self._flow_numbers), client, self._network, now=now), route, sock)
        route.flows[client] = flow
        self._selector.add(sock, partial(self._read_flow, flow))
        return flow

    def _close_flow(self, flow: _FlowSockets) -> None:
        self._selector.remove(flow.sock)
        flow.sock.close()
        del flow.route.flows[flow.flow.client]

    def _sweep(self, *, now: float) -> None:
        for flow in self._flows():
            if now - flow.flow.last_used > _FLOW_IDLE_S:
                self._close_flow(flow)

    def _handle_calls(self) -> None:
        try:
            self._wake_read.recv(4096)
        except BlockingIOError:
            return
        while self._calls:
            self._calls.popleft()()

    def _close(self) -> None:
        for flow in self._flows():
            self._close_flow(flow)
        for route in self._routes:
            route.sock.close()
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()
        self._running = False


class RelayThread:
    """A relay on a thread of its own, for tests and short measurements; a process of its own keeps better time."""

    def __init__(self, network: Network) -> None:
        self.relay = UdpRelay(network)
        self._thread = threading.Thread(target=self.relay.run, name="impair-relay", daemon=True)

    def __enter__(self) -> UdpRelay:
        self._thread.start()
        return self.relay

    def __exit__(self, *_: object) -> None:
        self.relay.stop()
        self._thread.join(timeout=10)
