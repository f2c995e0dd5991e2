"""The relay's sockets: UDP, non-blocking, with the kernel's own time of arrival on every packet where it gives one."""

from __future__ import annotations

import socket
import struct
import sys
import time

from impair.errors import RelayError
from impair.flows import Address
from impair.relay_stats import RelayStats

_SO_TIMESTAMPNS = 35
_SO_RXQ_OVFL = 40
_SO_RCVBUFFORCE = 33 if sys.platform == "linux" else -1
_RECEIVE_BUFFER_BYTES = 4 * 2**20
_BELIEVABLE_WAIT_S = 2.0
"""A longer wait in the kernel is a step of the wall clock, in which these stamps come."""


def receive(sock: socket.socket, stats: RelayStats) -> tuple[bytes, Address, float] | None:
    """The next packet, its sender and when the kernel took it in (monotonic seconds); None when there is none."""
    if sock.fileno() < 0:
        return None
    try:
        packet, ancillary, _, sender = sock.recvmsg(65536, 128)
    except BlockingIOError:
        return None
    except OSError:
        stats.refused += 1
        return None
    now = time.monotonic()
    for level, kind, data in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("ll", data[:16])
            waited = time.time() - (seconds + nanoseconds * 1e-9)
            if 0 < waited < _BELIEVABLE_WAIT_S:
                now -= waited
        elif kind == _SO_RXQ_OVFL:
            stats.note_overflow(sock.fileno(), struct.unpack("I", data[:4])[0])
    return packet, sender[:2] if sender else ("", 0), now


def bound_socket(listen: Address, to: Address) -> socket.socket:
    """A socket that listens there; RelayError where it cannot, or where `to` cannot be reached from here."""
    family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.bind(listen)
        connected_socket(to).close()
    except OSError as error:
        sock.close()
        raise RelayError(f"cannot relay from {listen[0]}:{listen[1]} to {to[0]}:{to[1]}: {error.strerror}") from error
    _prepare(sock)
    return sock


def connected_socket(to: Address) -> socket.socket:
    """A socket of its own port that speaks with this address alone."""
    sock = socket.socket(socket.AF_INET6 if ":" in to[0] else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.connect(to)
    except OSError:
        sock.close()
        raise
    _prepare(sock)
    return sock


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    try:  # beyond the system's limit, where that is allowed
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    if sys.platform == "linux":
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sock.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
