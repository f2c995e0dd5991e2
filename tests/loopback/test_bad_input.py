"""What a hostile or broken peer may send: the call, and every other call, goes on."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pylibsrtp
import pytest

from tests.loopback.pairs import LOCAL, Peer, call, wait_for
from tests.sounds import speech_like
from transport.errors import LocalProtocolError, RemoteProtocolError
from transport.peer_connection import PeerConnection

VOICE = speech_like(1.0)


async def still_works(caller: Peer, callee: Peer) -> None:
    """Sound and a message get through, and nobody noticed."""
    before = len(callee.heard)
    caller.connection.playout.capture_frame(VOICE)
    caller.connection.playout.flush()
    caller.connection.send_message("after")
    await wait_for(lambda: len(callee.heard) - before > 14_000 and "after" in callee.messages)
    assert caller.state == callee.state == "connected"


async def test_anyone_may_throw_junk_at_the_media_port() -> None:
    async with call() as (caller, callee):
        rng = random.Random(7)
        port = callee.connection._ice._connection._protocols[0].local_candidate.port
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("127.0.0.1", port))
        heads = [b"", b"\x00", b"\x00\x01\x00\x00\x21\x12\xa4\x42", b"\x16\xfe\xfd", b"\x80\x6f", b"\x80\xc8", b"\x40"]
        for n in range(2000):
            transport.sendto(heads[n % len(heads)] + rng.randbytes(rng.randrange(0, 100)))
            if n % 100 == 0:
                await asyncio.sleep(0)
        transport.sendto(b"")  # a datagram of no bytes at all
        # A STUN message that is well formed outside and broken inside: attributes cut short.
        for kind in (0x0006, 0x0020, 0x0009, 0x8028, 0x0024, 0x802A):
            attribute = kind.to_bytes(2, "big") + b"\x00\x01\xff\x00\x00\x00"
            transport.sendto(
                b"\x00\x01" + len(attribute).to_bytes(2, "big") + b"\x21\x12\xa4\x42" + b"t" * 12 + attribute
            )
        await asyncio.sleep(0.05)
        transport.close()
        await still_works(caller, callee)


async def test_malformed_rtp_and_rtcp_from_the_peer_itself_hurt_nothing() -> None:
    async with call() as (caller, callee):
        rng = random.Random(8)
        dtls: Any = caller.connection._dtls
        own = caller.connection._pc.getSenders()[0]._ssrc
        for n in range(1500):
            first = rng.choice([0x80, 0x81, 0x90, 0x9F, 0xA0, 0xBF])
            second = rng.choice([96, 96, 63, 0, 127, 200, 201, 202, 203, 204, 205, 206, 207]) if n % 3 else 96 | 0x80
            if second == 203:
                continue  # a BYE is well meant: it has a test of its own
            # Not our own SSRC in RTP: its encryption would then take the true packets for replays.
            ssrc = rng.choice([own if second >= 200 else 7, 7, 7, rng.getrandbits(32)]).to_bytes(4, "big")
            head = bytes([first, second]) + (n & 0xFFFF).to_bytes(2, "big") + rng.randbytes(4) + ssrc
            with contextlib.suppress(pylibsrtp.Error):  # some it will not even encrypt
                await dtls._send_rtp(head + rng.randbytes(rng.randrange(0, 60)))
            if n % 50 == 0:
                await asyncio.sleep(0.001)
        await wait_for(lambda: callee.connection.stats().packets_received > 100)
        await still_works(caller, callee)
        table = callee.connection._dtls._rtp_router.ssrc_table
        assert len(table) <= 16
        assert len(callee.connection._tap._receiver._RTCRtpReceiver__remote_streams) <= 16


async def test_header_extensions_of_the_wrong_length_are_counted_and_dropped() -> None:
    async with call() as (caller, callee):
        dtls: Any = caller.connection._dtls
        header = b"\x90\x60\x00\x01" + b"\x00" * 4 + b"ssrc"
        # One-byte extensions (RFC 8285): id 2 is the audio level, one byte long; here it has four.
        await dtls._send_rtp(header + b"\xbe\xde\x00\x02" + b"\x23abcd\x00\x00\x00" + b"payload")
        await wait_for(lambda: callee.connection.stats().packets_malformed == 1)
        await still_works(caller, callee)


async def test_broken_sctp_and_messages_hurt_nothing() -> None:
    async with call() as (caller, callee):
        await wait_for(lambda: caller.connection._events.is_open and callee.connection._events.is_open)
        rng = random.Random(9)
        dtls: Any = caller.connection._dtls
        for _ in range(200):
            await dtls._send_data(rng.randbytes(rng.randrange(1, 200)))
        channel: Any = caller.connection._events._channel
        channel.send(b"\x00\xff binary")
        channel.send("x" * 100_000)
        caller.connection._pc.createDataChannel("something else").on("open", lambda: None)
        await asyncio.sleep(0.1)
        assert callee.messages == []
        await still_works(caller, callee)


async def test_a_bye_from_a_peer_that_is_still_there_does_not_end_the_call() -> None:
    async with call() as (caller, callee):
        ssrc = caller.connection._pc.getSenders()[0]._ssrc.to_bytes(4, "big")
        caller.connection.playout.capture_frame(VOICE)
        await wait_for(lambda: callee.connection.stats().packets_received > 5)
        await caller.connection._dtls._send_rtp(b"\x81\xcb\x00\x01" + ssrc)
        await wait_for(lambda: callee.connection._bye_at is not None)
        await wait_for(lambda: callee.connection._bye_at is None)
        await still_works(caller, callee)


async def test_bad_offers_are_refused_and_the_next_good_one_is_a_call() -> None:
    source = Peer()
    good = await source.connection.offer()
    bad = [
        good.replace("m=audio", "m=video"),
        good.replace("opus", "speex"),
        good[: good.index("m=audio")],
        good.replace("a=fingerprint", "a=nothing"),
        good[:500],
    ]
    for offer in bad:
        callee = PeerConnection(LOCAL)
        with pytest.raises(RemoteProtocolError):
            await callee.answer(offer)
        await callee.close()
        with pytest.raises(LocalProtocolError):
            await callee.answer(good)
    await source.connection.close()
    async with call() as (caller, callee_peer):
        await still_works(caller, callee_peer)


async def test_hundreds_of_damaged_offers_are_answered_or_refused_and_leave_nothing() -> None:
    source = Peer()
    whole = await source.connection.offer()
    await source.connection.close()
    rng = random.Random(10)
    answered = 0
    for _ in range(150):
        damaged = list(whole)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randint(0, 8)] = rng.choice(["", "0", "9999999", " ", "\r\n", "é", "a=mid:0"])
        callee = PeerConnection(LOCAL)
        with contextlib.suppress(RemoteProtocolError):
            answered += (await callee.answer("".join(damaged))).startswith("v=0")
        await callee.close()
    assert answered > 20
    await asyncio.sleep(0.05)
    assert len(asyncio.all_tasks()) == 1
