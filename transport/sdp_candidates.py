"""ICE candidates as text (RFC 8839 §5.1). Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

_CANDIDATE = re.compile(
    r"(?:a=)?(?:candidate:)?(?P<foundation>[A-Za-z0-9+/]{1,32}) (?P<component>\d{1,3}) (?P<protocol>[A-Za-z]+) "
    r"(?P<priority>\d{1,10}) (?P<address>[0-9A-Za-z.:%-]{1,128}) (?P<port>\d{1,5}) typ (?P<type>[a-z]+)(?: .*)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A UDP address at which the other side may be reached."""

    foundation: str
    priority: int
    address: str
    port: int
    type: str

    def to_sdp(self) -> str:
        """Return what stands after `candidate:`."""
        return f"{self.foundation} 1 udp {self.priority} {self.address} {self.port} typ {self.type}"


def is_candidate(text: str) -> bool:
    """Whether `text` is a candidate line at all, of use or not."""
    return _CANDIDATE.fullmatch(text.strip()) is not None


def parse_candidate(text: str) -> Candidate | None:
    """Return the candidate in `text`, None where it is malformed or of no use to us.

    Of no use are TCP, RTCP's component, and `.local` names (mDNS): a browser behind one still reaches us, and its
    checks tell us its address.
    """
    match = _CANDIDATE.fullmatch(text.strip())
    if match is None or match["component"] != "1" or match["protocol"].lower() != "udp":
        return None
    if match["type"] not in ("host", "srflx", "relay"):
        return None
    port, priority = int(match["port"]), int(match["priority"])
    try:
        address = str(ipaddress.ip_address(match["address"]))
    except ValueError:
        return None
    if not 0 < port < 65536 or priority >= 2**32:
        return None
    return Candidate(foundation=match["foundation"], priority=priority, address=address, port=port, type=match["type"])
