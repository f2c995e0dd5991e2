"""How exact the relay is, seen from outside: when packets come out against when the seed says they must.

    python -m bench.relay [--quick] [--json]

A load of calls (50 packets a second each way) goes through `python -m impair loss5_jitter30` in a process of its own.
Each packet carries its sending time; the kernel stamps its arrival. The link of the same seed, asked here, says which
packets must be lost and how late the others must be; what differs is the relay's own error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import math
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from impair.flows import Address, Network, PacketKind
from impair.ice import CandidateRewriter
from impair.link import Link
from impair.profile import Direction
from impair.profiles import find_profile
from impair.relay_process import RelayProcess
from impair.relay_stats import RelayStats
from impair.sockets import connected_socket, receive
from impair.waiting import PreciseSelector, sharpen_timers
from transport.config import TransportConfig
from transport.peer_connection import PeerConnection

SEED = 20
PROFILE = "loss5_jitter30"
PTIME_S = 0.02
PAYLOAD_BYTES = 160
_STAMP = struct.Struct("!IId")
_TRUSTED_SEND_S = 100e-6
"""A send that took longer was interrupted, and its stamp says little."""


@dataclass(slots=True)
class Half:
    """One direction of one flow: what the seed says, and what came."""

    link: Link
    kind: int
    sent: int = 0
    expected_s: list[float | None] = field(default_factory=list)
    trusted: list[bool] = field(default_factory=list)
    arrived: list[float | None] = field(default_factory=list)

    def next_packet(self, index: int, *, now: float) -> bytes:
        """The packet to send at `now`, its fate noted."""
        fate = self.link.handle_packet(PAYLOAD_BYTES, now=now, kind=self.kind)
        self.expected_s.append(fate.deliveries[0].at - now if fate.deliveries else None)
        self.trusted.append(False)
        self.arrived.append(None)
        self.sent += 1
        return _STAMP.pack(index, self.sent - 1, now).ljust(PAYLOAD_BYTES, b"\0")


@contextlib.contextmanager
def relay_process(profile: str, to: tuple[str, int]) -> Iterator[tuple[str, int]]:
    """A relay in a process of its own; gives the address it listens on."""
    command = [sys.executable, "-m", "impair", profile, "--listen", "0", "--to", f"{to[0]}:{to[1]}"]
    process = subprocess.Popen(
        [*command, "--seed", str(SEED), "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        host, _, port = json.loads(process.stdout.readline())["listen"].rpartition(":")
        yield host, int(port)
    finally:
        process.terminate()
        process.wait(timeout=10)


class Load:
    """Flows of packets both ways between here and here, through whatever stands at `via`."""

    def __init__(self, flows: int, target: socket.socket, via: tuple[str, int], profile: str) -> None:
        self._target = target
        self._stats = RelayStats()
        self._selector = PreciseSelector()
        self._selector.add(target, self._read_target)
        self._clients = [connected_socket(via) for _ in range(flows)]
        self._returns: dict[int, tuple[str, int]] = {}
        network = Network(profile=find_profile(profile), seed=SEED)
        codes = [ordinal * len(PacketKind) + PacketKind.OTHER for ordinal in range(flows)]
        self.up = [Half(network.profile.link("up", seed=SEED), code) for code in codes]
        self.down = [Half(network.profile.link("down", seed=SEED), code) for code in codes]
        for client, half in zip(self._clients, self.down, strict=True):
            self._selector.add(client, lambda client=client, half=half: self._read(client, half))

    def run(self, duration_s: float) -> None:
        """Send for so long, evenly spread over each 20 ms, then wait for the last to arrive."""
        count = len(self._clients)
        start = time.monotonic() + 0.05
        steps = int(duration_s / PTIME_S) * count
        for step in range(steps):
            due = start + step * PTIME_S / count
            self._read_until(due)
            index = step % count
            self._send(self._clients[index].send, self.up[index], index)
            back = self._returns.get(index)
            if back is not None:
                self._send(lambda packet, back=back: self._target.sendto(packet, back), self.down[index], index)
        self._read_until(time.monotonic() + 0.7)
        for client in self._clients:
            client.close()
        self._selector.close()

    def _read_until(self, due: float) -> None:
        while True:
            left = max(0.0, due - time.monotonic())
            for handler in self._selector.wait(left):
                handler()
            if left == 0.0:
                return

    def _send(self, send: Any, half: Half, index: int) -> None:
        begun = time.monotonic()
        send(half.next_packet(index, now=begun))
        half.trusted[-1] = time.monotonic() - begun < _TRUSTED_SEND_S

    def _read(self, sock: socket.socket, half: Half) -> None:
        while (received := receive(sock, self._stats)) is not None:
            _, number, _ = _STAMP.unpack_from(received[0])
            half.arrived[number] = received[2]
            self._note(half, number, received)

    def _read_target(self) -> None:
        while (received := receive(self._target, self._stats)) is not None:
            index, number, _ = _STAMP.unpack_from(received[0])
            self._returns.setdefault(index, received[1])
            self._note(self.up[index], number, received)

    @staticmethod
    def _note(half: Half, number: int, received: tuple[bytes, Any, float]) -> None:
        half.arrived[number] = received[2] - _STAMP.unpack_from(received[0])[2]


def measure(flows: int, duration_s: float, profile: str = PROFILE) -> dict[str, Any]:
    """The relay's error with that many busy flows: quantiles of |out − due| in ms, and every wrong fate."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as target:
        target.bind(("127.0.0.1", 0))
        target.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
        _stamp(target)
        with relay_process(profile, target.getsockname()) as via:
            load = Load(flows, target, via, profile)
            load.run(duration_s)
    errors_ms: list[float] = []
    wrong = sent = 0
    for half in load.up + load.down:
        sent += half.sent
        for expected, arrived, trusted in zip(half.expected_s, half.arrived, half.trusted, strict=True):
            wrong += (expected is None) != (arrived is None)
            if expected is not None and arrived is not None and trusted:
                errors_ms.append(abs(arrived - expected) * 1000)
    errors_ms.sort()
    low, high = quantile_interval(errors_ms, 0.99)
    return {
        "flows": flows, "sent": sent, "n": len(errors_ms), "wrong_fates": wrong, "p50_ms": quantile(errors_ms, 0.5),
        "p99_ms": quantile(errors_ms, 0.99), "p99_interval_ms": [low, high], "max_ms": errors_ms[-1],
    }  # fmt: skip


def _stamp(sock: socket.socket) -> None:
    sock.setblocking(False)
    if sys.platform == "linux":
        sock.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS


def quantile(values: list[float], part: float) -> float:
    """The value of a sorted list that this part does not exceed."""
    return values[min(len(values) - 1, math.ceil(part * len(values)) - 1)]


def quantile_interval(values: list[float], part: float) -> tuple[float, float]:
    """95 % interval of a quantile of a sorted list, by order statistics (binomial, normal approximation)."""
    n = len(values)
    half = 1.96 * math.sqrt(n * part * (1 - part))
    return values[max(0, math.floor(n * part - half))], values[min(n - 1, math.ceil(n * part + half))]


def round_trip_ms(count: int, *, through_relay: bool) -> list[float]:
    """Round trips of single packets to an echo, straight or through the profile `none`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo, contextlib.ExitStack() as stack:
        echo.bind(("127.0.0.1", 0))
        via = stack.enter_context(relay_process("none", echo.getsockname())) if through_relay else echo.getsockname()
        client = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        client.connect(via)
        client.settimeout(1)
        echo.settimeout(1)
        trips = []
        for _ in range(count):
            begun = time.monotonic()
            client.send(b"\0" * PAYLOAD_BYTES)
            packet, sender = echo.recvfrom(2048)
            echo.sendto(packet, sender)
            client.recv(2048)
            trips.append((time.monotonic() - begun) * 1000)
            time.sleep(PTIME_S)
        return trips


async def call_round_trips_ms(seconds: float) -> tuple[list[float], list[float]]:
    """ICE round trips, one a second, of two real calls held at once: straight, and through the profile `none`."""
    async with RelayProcess("none", seed=SEED) as relay:

        async def add_route(to: Address, way: Direction) -> Address:
            return await relay.add_route(to, way)

        rewriter = CandidateRewriter(add_route)
        ends = [PeerConnection(TransportConfig(hosts=("127.0.0.1",))) for _ in range(4)]
        try:
            await ends[0].accept(await ends[1].answer(await ends[0].offer()))
            offer = await rewriter.offer(await ends[2].offer())
            await ends[2].accept(await rewriter.answer(await ends[3].answer(offer)))
            trips: tuple[list[float], list[float]] = ([], [])
            for _ in range(round(seconds)):
                await asyncio.sleep(1.0)
                for end, kept in ((ends[0], trips[0]), (ends[2], trips[1])):
                    trip = end.stats().ice_rtt_ms
                    if trip is not None:
                        kept.append(trip)
            return trips
        finally:
            await asyncio.gather(*(end.close("measured") for end in ends))


def main() -> None:
    """Measure, print a table, and with --json one object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m bench.relay", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 s a measurement instead of 60 s")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    priority = sharpen_timers()
    gc.freeze()
    duration_s = 10.0 if options.quick else 60.0
    print(f"scheduling: {priority}")
    rows = [measure(flows, duration_s) for flows in (1, 100)]
    print(f"{'flows':>5} {'n':>7} {'p50 ms':>8} {'p99 ms':>8} {'95 % interval':>16} {'max ms':>8} {'wrong fates':>12}")
    for row in rows:
        low, high = row["p99_interval_ms"]
        print(
            f"{row['flows']:5} {row['n']:7} {row['p50_ms']:8.3f} {row['p99_ms']:8.3f} {low:7.3f} – {high:6.3f}"
            f" {row['max_ms']:8.3f} {row['wrong_fates']:7} of {row['sent']}"
        )
    trips = 100 if options.quick else 500
    straight, through = (round_trip_ms(trips, through_relay=relay) for relay in (False, True))
    call_trips = asyncio.run(call_round_trips_ms(15 if options.quick else 60))
    call_added_ms = statistics.median(call_trips[1]) - statistics.median(call_trips[0])
    added_ms = statistics.median(through) - statistics.median(straight)
    print(f"round trip through `none`: {added_ms:.3f} ms more than straight (medians of {trips})")
    print(f"round trip of a call through `none`: {call_added_ms:.3f} ms more (medians of {len(call_trips[1])})")
    result = {
        "flows": rows[1]["flows"], "error_p99_ms": rows[1]["p99_ms"], "one_flow_error_p99_ms": rows[0]["p99_ms"],
        "none_added_rtt_ms": added_ms, "call_added_rtt_ms": call_added_ms, "priority": priority, "rows": rows,
    }  # fmt: skip
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
