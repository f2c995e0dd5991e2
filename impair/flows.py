"""The relay's bookkeeping, pure: which packet belongs to which flow, and what the flow's two links do to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from impair.link import Fate, Link
from impair.profile import Direction, MediaWays, Profile

Address = tuple[str, int]


class PacketKind(IntEnum):
    """Kinds of packets that draw their chance apart; told by the first two bytes (RFC 7983, RFC 5761)."""

    RTP = 0
    RTCP = 1
    OTHER = 2

    @classmethod
    def of(cls, packet: bytes) -> PacketKind:
        """The kind of this UDP payload; STUN, DTLS and QUIC are OTHER."""
        if len(packet) < 2 or not 128 <= packet[0] <= 191:
            return cls.OTHER
        return cls.RTCP if 64 <= packet[1] & 0x7F <= 95 else cls.RTP


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What the relay puts between the two sides: a profile, its seed, and which ways carry media to be disturbed."""

    profile: Profile
    seed: int = 0
    media: MediaWays = "both"


class Flow:
    """One client address on one route: a link each way and the ordinals of its kinds of packets."""

    __slots__ = ("_kind_codes", "_links", "_since", "client", "last_used", "number")

    def __init__(self, number: int, client: Address, network: Network, *, now: float) -> None:
        self.number = number
        self.client = client
        self.last_used = now
        self._kind_codes: list[int | None] = [None] * len(PacketKind)
        self.set_network(network, now=now)

    def set_network(self, network: Network, *, now: float) -> None:
        """Begin fresh links; their timed events count from now. What is on its way stays on its way."""
        self._since = now
        ways: tuple[Direction, Direction] = ("up", "down")
        self._links: dict[Direction, Link] = {
            way: network.profile.link(way, seed=network.seed, media=network.media, origin=now) for way in ways
        }

    def handle_packet(
        self, packet: bytes, direction: Direction, ordinals: KindOrdinals, *, now: float
    ) -> tuple[Fate, int]:
        """The packet's fate, and the code of its kind as the link was given it."""
        self.last_used = now
        kind = PacketKind.of(packet)
        code = self._kind_codes[kind]
        if code is None:
            code = self._kind_codes[kind] = ordinals.next_code(kind)
        return self._links[direction].handle_packet(len(packet), now=now, kind=code), code

    def since_us(self, at: float) -> int:
        """A moment in whole microseconds since the flow's links began: the time its links know."""
        return round((at - self._since) * 1e6)

    def stats(self) -> dict[str, Any]:
        """What both links did since the profile was set, as plain values for JSON."""
        return {
            "flow": self.number,
            "client": f"{self.client[0]}:{self.client[1]}",
            "carries_media": self._kind_codes[PacketKind.RTP] is not None,
            "since": self._since,
        } | {way: asdict(link.stats) for way, link in self._links.items()}


class KindOrdinals:
    """Numbers flows by kind: the first flow that carries RTP always draws the same losses, whatever came before it."""

    __slots__ = ("_used",)

    def __init__(self) -> None:
        self._used = [0] * len(PacketKind)

    def next_code(self, kind: PacketKind) -> int:
        """The code under which the next flow's packets of this kind are drawn; 0 = the first flow's RTP."""
        ordinal = self._used[kind]
        self._used[kind] += 1
        return ordinal * len(PacketKind) + kind


def flip_bits(packet: bytes, flips: tuple[int, ...]) -> bytes:
    """The packet with these bits inverted; bits beyond its end are left out."""
    if not flips:
        return packet
    changed = bytearray(packet)
    for bit in flips:
        if bit >> 3 < len(changed):
            changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)
