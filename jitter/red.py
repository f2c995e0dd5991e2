"""Redundant audio data, RFC 2198: parse and build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAX_BLOCKS = 32
"""As libwebrtc's red_payload_splitter.cc."""
MAX_BLOCK_BYTES = 1023
MAX_OFFSET_TICKS = 16_383
BLOCK_OVERHEAD_BYTES = 4
"""Header of each redundant block; the primary's is one byte."""


class RedBlock(NamedTuple):
    """One block of a RED payload."""

    payload_type: int
    offset_ticks: int
    """How far before the packet's own timestamp its media lies; 0 for the primary."""
    payload: bytes


def parse_red(payload: bytes) -> tuple[RedBlock, ...] | None:
    """Return the blocks of a RED payload, the primary last; None if it is malformed."""
    headers: list[tuple[int, int, int]] = []
    at = 0
    size = len(payload)
    while True:
        if at >= size or len(headers) > MAX_BLOCKS:
            return None
        first = payload[at]
        if not first & 0x80:
            at += 1
            break
        if at + BLOCK_OVERHEAD_BYTES > size:
            return None
        word = int.from_bytes(payload[at + 1 : at + 4], "big")
        headers.append((first & 0x7F, word >> 10, word & 0x3FF))
        at += BLOCK_OVERHEAD_BYTES
    blocks = []
    for payload_type, offset, length in headers:
        if at + length > size:
            return None
        blocks.append(RedBlock(payload_type, offset, payload[at : at + length]))
        at += length
    blocks.append(RedBlock(first & 0x7F, 0, payload[at:]))
    return tuple(blocks)


def build_red(*, payload_type: int, primary: bytes, copies: Sequence[tuple[int, bytes]]) -> bytes:
    """Return a RED payload of `primary` and `copies` ((offset in ticks, payload), any order), all of `payload_type`.

    A copy that the format cannot carry (over 1023 bytes, 16383 ticks or 32 blocks, or empty) is left out.
    """
    headers = bytearray()
    bodies: list[bytes] = []
    for offset, copy in sorted(copies, reverse=True) if len(copies) > 1 else copies:
        if 0 < offset <= MAX_OFFSET_TICKS and 0 < len(copy) <= MAX_BLOCK_BYTES and len(bodies) < MAX_BLOCKS:
            headers += ((0x80 | payload_type) << 24 | offset << 10 | len(copy)).to_bytes(4, "big")
            bodies.append(copy)
    headers.append(payload_type)
    return b"".join((headers, *bodies, primary))
