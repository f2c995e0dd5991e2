"""Addresses: a peer that moves in mid-call is followed, STUN tells the outside address, outages end or heal."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import aioice.stun
import pytest

from tests.loopback.pairs import LOCAL, Peer, call, wait_for
from tests.sounds import rms, speech_like
from transport import ice
from transport.errors import LocalProtocolError
from transport.peer_connection import IceServer, PeerConnection
from transport.udp_socket import open_stamped

VOICE = speech_like(2.0)


class Forwarder(asyncio.DatagramProtocol):
    """Gives what a new socket receives to the old one's protocol: to the far end, the address has changed."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.protocol.datagram_received(data, addr)


def move(peer: Peer) -> int:
    """Let `peer` send from a new port and no longer hear on the old one; return the new port."""
    protocol = peer.connection._ice._connection._protocols[0]
    protocol.transport.close()
    protocol.connection_lost = lambda exc: None
    protocol.transport = open_stamped("127.0.0.1", 0, Forwarder(protocol))
    port: int = protocol.transport.get_extra_info("sockname")[1]
    return port


@pytest.mark.parametrize("speaking", [True, False])
async def test_a_caller_that_gets_a_new_address_is_followed_within_three_seconds(speaking: bool) -> None:
    async with call() as (caller, callee):
        if speaking:
            for _ in range(5):
                caller.connection.playout.capture_frame(VOICE)
        callee.connection.playout.capture_frame(VOICE)
        await wait_for(lambda: len(caller.heard) > 8000)
        before = len(caller.heard)
        port = move(caller)
        await wait_for(lambda: callee.connection._ice._connection._nominated[1].remote_addr[1] == port, 3.0)
        for _ in range(3):
            callee.connection.playout.capture_frame(VOICE)
        await wait_for(lambda: len(caller.heard) > before + 16_000, 3.0)
        await asyncio.sleep(0.3)
        assert (caller.state, callee.state) == ("connected", "connected")
        # The moved protocol cannot be closed by aioice: its `connection_lost` is ours.
        caller.connection._ice._connection._protocols[0].transport.close()
        caller.connection._ice._connection._protocols.clear()


async def test_a_call_over_ipv6() -> None:
    try:
        open_stamped("::1", 0, asyncio.DatagramProtocol()).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    six = replace(LOCAL, hosts=("::1",))
    async with call(six, six) as (caller, callee):
        caller.connection.playout.capture_frame(VOICE)
        await wait_for(lambda: len(callee.heard) > 16_000)
        assert caller.connection._ice._connection._nominated[1].remote_addr[0] == "::1"


async def test_checks_of_a_stranger_or_from_a_second_path_move_nothing() -> None:
    async with call() as (caller, callee):
        for _ in range(3):
            caller.connection.playout.capture_frame(VOICE)
        await wait_for(lambda: callee.connection.stats().packets_received > 20)
        connection = callee.connection._ice._connection
        nominated = connection._nominated[1]
        other = open_stamped("127.0.0.1", 0, asyncio.DatagramProtocol())
        # An authentic check from a second address, while media goes on from the first.
        client = caller.connection._ice._connection
        request = client.build_request(client._nominated[1], nominate=False)
        request.add_message_integrity(client.remote_password.encode())
        other.sendto(bytes(request), ("127.0.0.1", connection._protocols[0].local_candidate.port))
        await asyncio.sleep(0.3)
        assert connection._nominated[1] is nominated
        other.close()
        await asyncio.sleep(0)


async def test_an_outage_of_two_seconds_heals_by_itself() -> None:
    async with call() as (caller, callee):
        for _ in range(4):
            caller.connection.playout.capture_frame(VOICE)
        await wait_for(lambda: len(callee.heard) > 8000)
        sockets = [peer.connection._ice._connection._protocols[0].transport for peer in (caller, callee)]
        for transport in sockets:
            transport.sendto = lambda data, addr=None: None
        await asyncio.sleep(2.0)
        for transport in sockets:
            del transport.sendto
        restored = asyncio.get_running_loop().time()
        await wait_for(lambda: (callee.connection.stats().last_packet_at or 0) > restored, 1.0)
        await wait_for(lambda: rms(callee.frames[-1].samples) > 100, 1.0)
        assert [state for state, _ in caller.states] == ["connecting", "connected"]


class StunServer(asyncio.DatagramProtocol):
    """Answers binding requests as if the caller stood behind 198.51.100.7."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        request = aioice.stun.parse_message(data)
        response = aioice.stun.Message(
            message_method=aioice.stun.Method.BINDING,
            message_class=aioice.stun.Class.RESPONSE,
            transaction_id=request.transaction_id,
        )
        response.attributes["XOR-MAPPED-ADDRESS"] = ("198.51.100.7", addr[1])
        self.transport.sendto(bytes(response), addr)


async def test_a_stun_server_tells_the_outside_address_and_a_dead_one_delays_a_call_by_a_second_at_most() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(StunServer, local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    config = replace(LOCAL, ice_servers=(IceServer(url=f"stun:127.0.0.1:{port}"),))
    peer = PeerConnection(config)
    offer = await peer.offer()
    assert " 198.51.100.7 " in offer
    assert "typ srflx" in offer
    await peer.close()
    transport.close()
    peer = PeerConnection(config)
    began = loop.time()
    offer = await peer.offer()
    assert loop.time() - began < 3.0
    assert "typ host" in offer
    assert "typ srflx" not in offer
    await peer.close()


async def test_a_relay_that_does_not_answer_keeps_no_call_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ice._RELAY_TIMEOUT_S < 2
    monkeypatch.setattr(ice, "_RELAY_TIMEOUT_S", 0.1)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
    url = f"turn:127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    peer = PeerConnection(replace(LOCAL, ice_servers=(IceServer(url=url, username="u", credential="p"),)))
    async with asyncio.timeout(4.0):  # aioice itself waits for five seconds
        offer = await peer.offer()
    assert "typ host" in offer
    assert "typ relay" not in offer
    await peer.close()
    transport.close()


async def test_a_senseless_ice_server_is_named() -> None:
    with pytest.raises(LocalProtocolError, match="http://example"):
        PeerConnection(replace(LOCAL, ice_servers=(IceServer(url="http://example"),)))


async def test_a_round_trip_is_the_paths_and_not_our_loops() -> None:
    async with call() as (caller, callee):
        connection = caller.connection._ice._connection
        pair = connection._nominated[1]
        answers = pair.protocol.answered_at
        before = set(answers)
        began = asyncio.get_running_loop().time()
        probe = asyncio.ensure_future(ice.measure_rtt(connection))
        await asyncio.sleep(0)  # the check leaves; now both loops, which are one, answer and then stand still

        def stand_still_once_answered() -> None:
            if not set(answers) - before:
                asyncio.get_running_loop().call_soon(stand_still_once_answered)
            else:
                time.sleep(0.2)

        stand_still_once_answered()
        rtt_s = await probe
        assert rtt_s is not None
        assert rtt_s < asyncio.get_running_loop().time() - began - 0.19
        assert callee.state == "connected"
