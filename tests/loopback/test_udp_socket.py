"""Arrival times are the kernel's: a loop that stands still does not make network jitter."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import numpy as np
import pytest

from transport import udp_socket
from transport.udp_socket import StampedTransport, open_stamped

pytestmark = pytest.mark.skipif(not udp_socket.AVAILABLE, reason="SO_TIMESTAMPNS is Linux's")


class Keeper(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.got: list[tuple[bytes, float]] = []
        self.errors: list[Exception] = []
        self.transport: StampedTransport | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, StampedTransport)
        self.transport = transport

    def datagram_received(self, data: bytes, addr: object) -> None:
        assert self.transport is not None
        self.got.append((data, self.transport.arrival))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


async def test_arrivals_are_true_while_the_loop_stands_still() -> None:
    loop = asyncio.get_running_loop()
    keeper = Keeper()
    transport = open_stamped("127.0.0.1", 0, keeper)
    address = transport.get_extra_info("sockname")
    sent: list[float] = []

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for n in range(8):
                sent.append(time.monotonic())
                sender.sendto(bytes([n]), address)
                time.sleep(0.02)

    thread = threading.Thread(target=send)
    thread.start()
    time.sleep(0.25)  # the loop stands still, as under a burst of work
    thread.join()
    stalled_until = loop.time()
    await asyncio.sleep(0.02)
    transport.close()
    await asyncio.sleep(0)
    assert [data for data, _ in keeper.got] == [bytes([n]) for n in range(8)]
    arrivals = np.array([arrival for _, arrival in keeper.got])
    offset = loop.time() - time.monotonic()
    assert np.all(np.abs(arrivals - np.array(sent) - offset) < 0.015)
    assert arrivals[0] < stalled_until - 0.1
    assert keeper.lost


async def test_what_cannot_be_bound_says_so_and_leaves_no_socket() -> None:
    first = open_stamped("127.0.0.1", 0, Keeper())
    with pytest.raises(OSError):  # noqa: PT011
        open_stamped("127.0.0.1", first.get_extra_info("sockname")[1], Keeper())
    first.close()
    first.close()
    first.sendto(b"after the end", ("127.0.0.1", 9))
    await asyncio.sleep(0)


async def test_a_refused_port_is_an_error_told_not_raised() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        address = gone.getsockname()
    keeper = Keeper()
    transport = open_stamped("127.0.0.1", 0, keeper)
    for _ in range(3):
        transport.sendto(b"anybody?", address)
        await asyncio.sleep(0.01)
    transport.sendto(b"x" * 70_000, address)
    assert any(isinstance(error, OSError) for error in keeper.errors)
    other = Keeper()
    peer = open_stamped("127.0.0.1", 0, other)
    transport.sendto(b"you", peer.get_extra_info("sockname"))
    await asyncio.sleep(0.02)
    assert [data for data, _ in other.got] == [b"you"]
    transport.close()
    peer.abort()
    await asyncio.sleep(0)


def test_a_clock_that_was_set_is_not_believed() -> None:
    async def check() -> None:
        transport = open_stamped("127.0.0.1", 0, Keeper())
        now = asyncio.get_running_loop().time()
        for wall in (time.time() + 3600, time.time() - 3600):
            stamp = udp_socket._TIMESPEC.pack(int(wall), 0)
            arrival = transport._arrival([(socket.SOL_SOCKET, udp_socket.SO_TIMESTAMPNS, stamp)])
            assert abs(arrival - now) < 1.0
        assert abs(transport._arrival([]) - now) < 1.0
        transport.close()
        await asyncio.sleep(0)

    asyncio.run(check())
