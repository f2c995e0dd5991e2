"""Redundant audio data, RFC 2198: parse and build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_BLOCKS = 32
"""As libwebrtc's red_payload_splitter.cc."""
MAX_BLOCK_BYTES = 1023
MAX_OFFSET_TICKS = 16_383
BLOCK_OVERHEAD_BYTES = 4
"""Header of each redundant block; the primary's is one byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedBlock:
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
        blocks.append(RedBlock(payload_type=payload_type, offset_ticks=offset, payload=payload[at : at + length]))
        at += length
    blocks.append(RedBlock(payload_type=first & 0x7F, offset_ticks=0, payload=payload[at:]))
    return tuple(blocks)


def build_red(*, payload_type: int, primary: bytes, copies: Sequence[tuple[int, bytes]]) -> bytes:
    """Return a RED payload of `primary` and `copies` ((offset in ticks, payload), any order), all of `payload_type`.

    A copy that the format cannot carry (over 1023 bytes, 16383 ticks or 32 blocks, or empty) is left out.
    """
    kept = [
        (offset, copy)
        for offset, copy in sorted(copies, reverse=True)
        if 0 < offset <= MAX_OFFSET_TICKS and 0 < len(copy) <= MAX_BLOCK_BYTES
    ][:MAX_BLOCKS]
    header = b"".join(
        bytes([0x80 | payload_type]) + (offset << 10 | len(copy)).to_bytes(3, "big") for offset, copy in kept
    )
    return header + bytes([payload_type]) + b"".join(copy for _, copy in kept) + primary
