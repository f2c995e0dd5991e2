"""A UDP endpoint for asyncio that knows when the kernel received each datagram (Linux).

asyncio's own reads one datagram a turn of the loop and has no time but the loop's: whatever keeps the loop busy
looks like network jitter then. Here the kernel's receive time (SO_TIMESTAMPNS) is brought onto the loop's clock, and
everything that waits is read in one turn. docs/decisions/0303-kernel-receive-times.md.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from typing import Any

SO_TIMESTAMPNS = 35
"""asm-generic/socket.h; Python's socket module does not name it."""
MAX_DATAGRAM_BYTES = 2048
"""Media, DTLS and STUN all keep under one Ethernet frame."""
MAX_READS_A_TURN = 64
MAX_AGE_S = 30.0
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size) if hasattr(socket, "CMSG_SPACE") else 0

AVAILABLE = sys.platform == "linux"


class StampedTransport(asyncio.DatagramTransport):
    """Reads and writes one UDP socket; `arrival` is the time of the datagram being delivered."""

    def __init__(self, sock: socket.socket, protocol: asyncio.DatagramProtocol) -> None:
        super().__init__({"socket": sock, "sockname": sock.getsockname()})
        self.arrival = 0.0
        """Seconds of `loop.time()`."""
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._protocol = protocol
        self._closing = False
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._loop.add_reader(sock.fileno(), self._read)
        protocol.connection_made(self)

    def sendto(self, data: Any, addr: Any = None) -> None:
        """Send one datagram; where the kernel has no room it is lost, as on any network."""
        if self._closing:
            return
        try:
            self._sock.sendto(data, addr)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._protocol.error_received(error)

    def is_closing(self) -> bool:
        """Whether `close` or `abort` was called."""
        return self._closing

    def close(self) -> None:
        """Close the socket; the protocol hears of it in the loop's next turn."""
        if self._closing:
            return
        self._closing = True
        self._loop.remove_reader(self._sock.fileno())
        self._loop.call_soon(self._finish)

    def abort(self) -> None:
        """Close; there is nothing in flight to wait for."""
        self.close()

    def _finish(self) -> None:
        self._sock.close()
        self._protocol.connection_lost(None)

    def _read(self) -> None:
        for _ in range(MAX_READS_A_TURN):
            if self._closing:
                return
            try:
                data, ancillary, _, address = self._sock.recvmsg(MAX_DATAGRAM_BYTES, _ANCILLARY_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._protocol.error_received(error)
                continue
            self.arrival = self._arrival(ancillary)
            self._protocol.datagram_received(data, address)

    def _arrival(self, ancillary: list[tuple[int, int, bytes]]) -> float:
        now = self._loop.time()
        for level, kind, value in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(value) >= _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack_from(value)
                waited = time.time() - (seconds + nanoseconds * 1e-9)
                # The kernel stamps by the wall clock: a step of it between the two readings must not count.
                if 0.0 <= waited < MAX_AGE_S:
                    return float(now - waited)
        return now


def open_stamped(host: str, port: int, protocol: asyncio.DatagramProtocol) -> StampedTransport:
    """Return an endpoint bound to `host` and `port` (0: any); raises OSError where that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.bind((host, port))
        return StampedTransport(sock, protocol)
    except OSError:
        sock.close()
        raise
