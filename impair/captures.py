"""UDP payloads with their times out of pcap and pcapng files; pure, and patient with damaged ones."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from impair.errors import TraceError


class CapturedPacket(NamedTuple):
    """One UDP payload: when (seconds), and both ports."""

    at: float
    source_port: int
    destination_port: int
    payload: bytes


_PCAP_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1e-6),
    b"\xa1\xb2\xc3\xd4": (">", 1e-6),
    b"\x4d\x3c\xb2\xa1": ("<", 1e-9),
    b"\xa1\xb2\x3c\x4d": (">", 1e-9),
}
_PCAPNG_MAGIC = b"\x0a\x0d\x0d\x0a"
_ETHERNET, _NULL, _RAW, _SLL, _SLL2 = 1, 0, 101, 113, 276


def read_capture(data: bytes) -> Iterator[CapturedPacket]:
    """UDP payloads of a capture in its order; what is not UDP over IP is passed over, a cut-off end ends it."""
    if data[:4] in _PCAP_MAGICS:
        frames = _pcap_frames(data)
    elif data[:4] == _PCAPNG_MAGIC:
        frames = _pcapng_frames(data)
    else:
        raise TraceError("this is neither a pcap nor a pcapng file")
    for at, link_type, frame in frames:
        ip = _ip_of(link_type, frame)
        packet = _udp_of(ip) if ip else None
        if packet is not None:
            yield CapturedPacket(at, *packet)


def _pcap_frames(data: bytes) -> Iterator[tuple[float, int, bytes]]:
    order, unit = _PCAP_MAGICS[data[:4]]
    if len(data) < 24:
        return
    link_type = struct.unpack_from(order + "I", data, 20)[0] & 0x0FFFFFFF
    offset = 24
    while offset + 16 <= len(data):
        seconds, fraction, length, _ = struct.unpack_from(order + "IIII", data, offset)
        offset += 16
        if offset + length > len(data):
            return
        yield seconds + fraction * unit, link_type, data[offset : offset + length]
        offset += length


def _pcapng_frames(data: bytes) -> Iterator[tuple[float, int, bytes]]:
    order = "<"
    interfaces: list[tuple[int, float]] = []
    offset = 0
    while offset + 12 <= len(data):
        if data[offset : offset + 4] == _PCAPNG_MAGIC:
            order = "<" if data[offset + 8 : offset + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces = []
        kind, length = struct.unpack_from(order + "II", data, offset)
        if length < 12 or offset + length > len(data):
            return
        body = data[offset + 8 : offset + length - 4]
        if kind == 1 and len(body) >= 8:  # interface description
            interfaces.append((struct.unpack_from(order + "H", body)[0], _time_unit(order, body[8:])))
        elif kind == 6 and len(body) >= 20:  # enhanced packet
            number, high, low, size = struct.unpack_from(order + "IIII", body)
            if number < len(interfaces):
                link_type, unit = interfaces[number]
                yield ((high << 32) | low) * unit, link_type, body[20 : 20 + size]
        offset += length


def _time_unit(order: str, options: bytes) -> float:
    """The interface's if_tsresol option (code 9), else microseconds."""
    offset = 0
    while offset + 4 <= len(options):
        code, length = struct.unpack_from(order + "HH", options, offset)
        if code == 9 and length == 1 and offset + 4 < len(options):
            value = options[offset + 4]
            return float(2.0 ** -(value & 0x7F) if value & 0x80 else 10.0**-value)
        if code == 0:
            break
        offset += 4 + (length + 3) // 4 * 4
    return 1e-6


def _ip_of(link_type: int, frame: bytes) -> bytes | None:
    if link_type == _ETHERNET:
        kind, offset = frame[12:14], 14
        while kind in {b"\x81\x00", b"\x88\xa8"}:  # VLAN tags
            kind, offset = frame[offset + 2 : offset + 4], offset + 4
        return frame[offset:] if kind in {b"\x08\x00", b"\x86\xdd"} else None
    skip = {_NULL: 4, _RAW: 0, _SLL: 16, _SLL2: 20}.get(link_type)
    return None if skip is None else frame[skip:]


def _udp_of(ip: bytes) -> tuple[int, int, bytes] | None:
    if len(ip) < 20:
        return None
    if ip[0] >> 4 == 4:
        header = (ip[0] & 15) * 4
        fragment = struct.unpack_from("!H", ip, 6)[0] & 0x1FFF
        protocol, udp = ip[9], ip[header:] if not fragment else b""
    elif ip[0] >> 4 == 6:
        protocol, udp = ip[6], ip[40:]
    else:
        return None
    if protocol != 17 or len(udp) < 8:
        return None
    source, destination, length = struct.unpack_from("!HHH", udp)
    return source, destination, udp[8 : max(8, length)]
