"""Candidate rewriting: no address of either side survives, and what cannot be relayed is left out."""

from __future__ import annotations

import asyncio

import pytest

from impair.errors import RelayError
from impair.flows import Address
from impair.ice import MAX_ROUTES, CandidateRewriter
from impair.profile import Direction

OFFER = """\
v=0
o=- 1 1 IN IP4 192.0.2.7
s=-
t=0 0
a=group:BUNDLE 0 1
m=audio 40000 UDP/TLS/RTP/SAVPF 111
c=IN IP4 192.0.2.7
a=rtcp:40001 IN IP4 192.0.2.7
a=candidate:1 1 udp 2122260223 192.0.2.7 40000 typ host generation 0 network-id 1
a=candidate:2 1 tcp 1518280447 192.0.2.7 9 typ host tcptype active
a=candidate:3 1 udp 1686052607 203.0.113.5 50000 typ srflx raddr 192.0.2.7 rport 40000 generation 0
a=candidate:4 1 UDP 2122260222 fd00::7 40002 typ host
a=candidate:5 1 udp 2122260221 1f3e.local 40003 typ host
a=ice-ufrag:abcd
a=end-of-candidates
m=application 40000 UDP/DTLS/SCTP webrtc-datachannel
c=IN IP4 192.0.2.7
a=candidate:1 1 udp 2122260223 192.0.2.7 40000 typ host
m=video 0 UDP/TLS/RTP/SAVPF 96
""".replace("\n", "\r\n")


class Relays:
    def __init__(self) -> None:
        self.opened: list[tuple[Address, Direction]] = []

    async def add_route(self, to: Address, way: Direction) -> Address:
        self.opened.append((to, way))
        return "127.0.0.1", 9000 + len(self.opened)


def rewrite(sdp: str) -> tuple[str, Relays]:
    relays = Relays()
    return asyncio.run(CandidateRewriter(relays.add_route).offer(sdp)), relays


def test_every_udp_candidate_leads_through_its_relay() -> None:
    out, relays = rewrite(OFFER)
    assert relays.opened == [
        (("192.0.2.7", 40000), "down"),
        (("203.0.113.5", 50000), "down"),
        (("fd00::7", 40002), "down"),
    ]
    lines = out.split("\r\n")
    assert "a=candidate:1 1 udp 2122260223 127.0.0.1 9001 typ host generation 0 network-id 1" in lines
    assert "a=candidate:3 1 udp 1686052607 127.0.0.1 9002 typ srflx raddr 127.0.0.1 rport 9002 generation 0" in lines
    assert sum(line.startswith("a=candidate:1 ") for line in lines) == 2
    assert [line for line in lines if line.startswith("m=")] == [
        "m=audio 9 UDP/TLS/RTP/SAVPF 111",
        "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
        "m=video 0 UDP/TLS/RTP/SAVPF 96",
    ]
    body = out.replace("o=- 1 1 IN IP4 192.0.2.7", "")
    for address in ("192.0.2.7", "203.0.113.5", "fd00::7", ".local", "tcptype"):
        assert address not in body
    assert "a=ice-ufrag:abcd\r\na=end-of-candidates\r\n" in out


def test_an_offer_without_usable_candidates_gets_one_that_keeps_the_agent_waiting() -> None:
    bare = "\r\n".join(line for line in OFFER.split("\r\n") if " udp " not in line.lower() or ".local" in line)
    out, relays = rewrite(bare)
    assert relays.opened == [(("127.0.0.1", 9), "down")]
    first_section = out.partition("m=application")[0]
    assert first_section.rstrip().endswith("a=candidate:nowhere 1 udp 1 127.0.0.1 9001 typ host")


def test_an_answer_without_candidates_stays_so() -> None:
    relays = Relays()
    answer = "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=ice-ufrag:x\r\n"
    assert asyncio.run(CandidateRewriter(relays.add_route).answer(answer)) == answer
    assert relays.opened == []


@pytest.mark.parametrize(
    "line",
    ["candidate:1 1 udp 1 ff02::1 5 typ host", "candidate:1 1 udp 1 0.0.0.0 5 typ host", "nonsense", "",
     "candidate:1 1 udp 1 192.0.2.1 0 typ host", "candidate:1 1 udp 1 192.0.2.1 70000 typ host"],
)  # fmt: skip
def test_useless_candidates_are_left_out(line: str) -> None:
    assert asyncio.run(CandidateRewriter(Relays().add_route).candidate(line, "up")) is None


async def test_behind_a_nat_the_target_is_told_no_address_of_the_caller() -> None:
    relays = Relays()
    rewriter = CandidateRewriter(relays.add_route, behind_nat=True)
    out = await rewriter.offer(OFFER)
    assert [line for line in out.split("\r\n") if line.startswith("a=candidate")] == [
        "a=candidate:nowhere 1 udp 1 127.0.0.1 9001 typ host"
    ]
    assert await rewriter.candidate("candidate:1 1 udp 1 192.0.2.1 5 typ host", "down") is None
    assert "127.0.0.1 9002 typ host" in await rewriter.answer(OFFER)


async def test_relays_are_not_opened_without_bound() -> None:
    rewriter = CandidateRewriter(Relays().add_route)
    for port in range(1, MAX_ROUTES + 1):
        await rewriter.relay_to(("192.0.2.1", port), "up")
    await rewriter.relay_to(("192.0.2.1", 1), "up")
    with pytest.raises(RelayError, match="no more than"):
        await rewriter.relay_to(("192.0.2.2", 1), "up")
