"""Points any SDP through a relay: every candidate's address becomes that of a relay that leads to it. Pure.

Both descriptions are rewritten. The caller then knows only relays that lead to the system under test, and that system
only relays that lead back, so no check finds a way around: not even where an answer has no candidates at all and the
system sends its checks to those of the offer.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from impair.errors import RelayError
from impair.flows import Address
from impair.profile import Direction

AddRoute = Callable[[Address, Direction], Awaitable[Address]]
"""Opens a relay to an address for packets that go up (to the system under test) or down; gives where it listens."""

_CANDIDATE = re.compile(
    r"^(?P<prefix>(?:a=)?candidate:)(?P<foundation>\S+) (?P<component>\d+) (?P<protocol>\S+) (?P<priority>\d+) "
    r"(?P<address>\S+) (?P<port>\d+) typ (?P<type>\S+)(?P<rest>.*)$"
)
_MEDIA = re.compile(r"^m=(\S+) \d+ (.*)$")
_NOWHERE: Address = ("127.0.0.1", 9)
"""The discard port: what stands there keeps an agent waiting for its peer's checks, and answers nothing."""
MAX_ROUTES = 1024


@dataclass(slots=True)
class CandidateRewriter:
    """Rewrites the descriptions and candidates of one call; the same address always leads through the same relay."""

    add_route: AddRoute
    behind_nat: bool = False
    """The target is told no address of the caller and learns it from his checks, so that a rebind of the relay moves
    him for real; a target whose answer has no candidates needs to be told."""
    answers_have_candidates: bool = True
    """Whether the last answer named any that can be relayed to."""
    _routes: dict[tuple[Address, Direction], Address] = field(default_factory=dict)

    async def offer(self, sdp: str) -> str:
        """The caller's offer, its candidates reached through relays that lead down to him."""
        return await self._description(sdp, "down", keep_waiting=True)

    async def answer(self, sdp: str) -> str:
        """The answer of the system under test, its candidates reached through relays that lead up to it."""
        rewritten = await self._description(sdp, "up", keep_waiting=False)
        self.answers_have_candidates = "\r\na=candidate:" in rewritten
        return rewritten

    async def candidate(self, line: str, way: Direction) -> str | None:
        """One candidate line, trickled by the side that packets going this way reach; None where it is of no use."""
        match = _CANDIDATE.match(line.strip())
        address = _usable(match) if match else None
        if match is None or address is None or (self.behind_nat and way == "down"):
            return None
        relay = await self.relay_to(address, way)
        rest = re.sub(r" r(addr|port) \S+", "", match["rest"])
        kind = match["type"]
        related = "" if kind == "host" else f" raddr {relay[0]} rport {relay[1]}"
        head = f"{match['prefix']}{match['foundation']} {match['component']} {match['protocol']} {match['priority']}"
        return f"{head} {relay[0]} {relay[1]} typ {kind}{related}{rest}"

    async def _description(self, sdp: str, way: Direction, *, keep_waiting: bool) -> str:
        """The description with every candidate rewritten; default addresses give way to candidates alone."""
        lines: list[str] = []
        hidden = self.behind_nat and way == "down"
        placed = False
        section_end: list[int] = []
        for line in sdp.splitlines():
            media = _MEDIA.match(line)
            if media is not None:
                section_end.append(len(lines))
                is_refused = line.split(" ")[1] == "0"
                lines.append(line if is_refused else f"m={media[1]} 9 {media[2]}")
            elif line.startswith("c="):
                lines.append("c=IN IP4 0.0.0.0")
            elif line.startswith("a=rtcp:"):
                lines.append("a=rtcp:9 IN IP4 0.0.0.0")
            elif line.startswith("a=candidate:") and not hidden:
                rewritten = await self.candidate(line, way)
                if rewritten is not None:
                    lines.append(rewritten)
                    placed = True
            elif not line.startswith("a=candidate:"):
                lines.append(line)
        if keep_waiting and not placed and section_end:
            lines.insert(_end_of_first_section(lines, section_end), "a=" + await self.nowhere(way))
        return "\r\n".join(lines) + "\r\n"

    async def nowhere(self, way: Direction) -> str:
        """A candidate that leads nowhere: some agents fail at once where they are given none to check."""
        relay = await self.relay_to(_NOWHERE, way)
        return f"candidate:nowhere 1 udp 1 {relay[0]} {relay[1]} typ host"

    async def relay_to(self, address: Address, way: Direction) -> Address:
        """Where a relay to this address listens; RelayError beyond MAX_ROUTES."""
        relay = self._routes.get((address, way))
        if relay is None:
            if len(self._routes) >= MAX_ROUTES:
                raise RelayError(f"no more than {MAX_ROUTES} addresses are relayed to")
            relay = self._routes[address, way] = await self.add_route(address, way)
        return relay


def _usable(match: re.Match[str]) -> Address | None:
    """The address of a UDP candidate that is an address: TCP and `.local` names cannot be relayed to."""
    if match["protocol"].lower() != "udp":
        return None
    try:
        address = ipaddress.ip_address(match["address"])
    except ValueError:
        return None
    port = int(match["port"])
    if not 0 < port < 65536 or address.is_unspecified or address.is_multicast:
        return None
    return str(address), port


def _end_of_first_section(lines: list[str], starts: list[int]) -> int:
    """Where the first media section ends: before the next one, or at the end."""
    return starts[1] if len(starts) > 1 else len(lines)
