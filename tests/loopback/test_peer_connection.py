"""Two peers talk: sound and messages arrive whole, loss is repaired, a cut voice stops, and nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from aiortc import RTCConfiguration, RTCDataChannel, RTCPeerConnection, RTCSessionDescription
from aiortc.rtcconfiguration import RTCBundlePolicy

from jitter.listen import FrameKind
from tests.loopback.pairs import LOCAL, Peer, call, connect, is_rtp, wait_for
from tests.sounds import rms, speech_like, tone
from transport.errors import LocalProtocolError, NoAddressError, RemoteProtocolError
from transport.opus import is_dtx
from transport.outbound_stream import OutboundPacket
from transport.peer_connection import TransportConfig
from transport.playout_queue import PlayedPosition

VOICE = speech_like(2.0)


def say(peer: Peer, samples: np.ndarray, text: str = "") -> None:
    peer.connection.playout.capture_frame(samples, text=text)
    peer.connection.playout.flush()


def share_found(heard: np.ndarray, said: np.ndarray, *, missed_slots: int = 0) -> float:
    """Share of the loud 100 ms pieces of `said` (48 kHz) that are in `heard` (16 kHz) within 0.2 s of their place.

    A busy machine moves pieces: each slot that its sender leaves out, by 20 ms.
    """
    slack = 3200 + 320 * missed_slots
    wanted, track = said[::3].astype(np.float64), np.pad(heard.astype(np.float64), 2 * slack)
    size = 1 << (len(track) + len(wanted)).bit_length()
    spectrum = np.fft.rfft(track, size) * np.conj(np.fft.rfft(wanted, size))
    start = int(np.argmax(np.fft.irfft(spectrum, size)[: len(track)]))
    found = []
    for at in range(0, len(wanted) - 1599, 1600):
        piece = wanted[at : at + 1600]
        span = track[max(0, start + at - slack) : start + at + slack + 1600]
        if rms(piece.astype(np.int16)) > 1000 and len(span) >= 1600:
            energy = np.concatenate([[0.0], np.cumsum(span**2)])
            norms = np.sqrt((energy[1600:] - energy[:-1600]) * np.sum(piece**2)) + 1.0
            found.append(bool(np.max(np.correlate(span, piece, "valid") / norms) > 0.8))
    return sum(found) / len(found)


async def test_speech_arrives_whole_and_in_time_both_ways() -> None:
    async with call() as (caller, callee):
        say(caller, VOICE)
        say(callee, tone(1.0, 440))
        await wait_for(lambda: len(caller.heard) > 22_000 and len(callee.heard) > 40_000)
        missed = caller.connection.stats().missed_slots
        assert share_found(callee.heard, VOICE, missed_slots=missed) > 0.8
        middle = caller.heard[8000:12_000].astype(np.float64)
        assert abs(np.argmax(np.abs(np.fft.rfft(middle * np.hanning(4000)))) * 4 - 440) <= 4
        for peer in (caller, callee):
            position = 0
            for frame in peer.frames:
                assert frame.position_samples == position
                position += len(frame.samples)
            kinds = {frame.kind for frame in peer.frames}
            assert kinds <= {FrameKind.DECODED, FrameKind.COMFORT_NOISE, FrameKind.CONCEALED}


async def test_stats_and_reports_tell_of_a_clean_path() -> None:
    async with call() as (caller, callee):
        say(caller, VOICE)
        await wait_for(lambda: callee.connection.stats().rtt_ms is not None)
        await wait_for(lambda: caller.connection._reports.reports and caller.connection._reports.rtt_s is not None)
        stats = callee.connection.stats()
        assert stats.packets_received > 20
        assert (stats.packets_lost, stats.packets_malformed, stats.datagrams_dropped) == (0, 0, 0)
        assert stats.ice_rtt_ms is not None
        assert 0 <= stats.ice_rtt_ms < 500
        assert stats.first_packet_at is not None
        assert caller.connection.stats().remote_loss_pct == 0
        assert caller.connection.stats().packets_sent >= stats.packets_received


async def test_loss_is_counted_on_both_sides_and_fec_fills_it() -> None:
    without_requests = replace(LOCAL, nack=False)
    async with call(without_requests, without_requests) as (caller, callee):
        caller.connection.encoder.set_expected_loss(20)
        lost = 0
        seen = 0

        def drop(data: bytes) -> bool:
            nonlocal lost, seen
            if not is_rtp(data) or len(data) < 40:
                return False
            seen += 1
            lost += seen % 8 == 0
            return seen % 8 == 0

        caller.impair_sending(drop)
        say(caller, speech_like(4.0, seed=2))
        await wait_for(lambda: seen > 140)
        await wait_for(lambda: callee.connection.stats().packets_lost >= lost - 1)
        kinds = [frame.kind for frame in callee.frames]
        assert kinds.count(FrameKind.FEC) > 0.5 * lost
        assert kinds.count(FrameKind.FEC) + kinds.count(FrameKind.CONCEALED) >= lost - 1
        positions = [frame.position_samples for frame in callee.frames]
        assert positions == list(np.cumsum([0] + [len(frame.samples) for frame in callee.frames])[:-1])
        await wait_for(lambda: caller.connection.stats().remote_packets_lost > 0)


async def test_clear_buffer_stops_the_sound_within_two_packets() -> None:
    async with call() as (caller, callee):
        sent: list[OutboundPacket] = []
        caller.connection.on_packet_sent = lambda packet, now: sent.append(packet)
        say(caller, tone(10.0, 440), text="ten seconds of words that nobody will hear to their end")
        await wait_for(lambda: sum(packet.is_speech for packet in sent) >= 40)
        position = caller.connection.playout.clear_buffer(now=0.0)
        at = len(sent)
        assert isinstance(position, PlayedPosition)
        assert position.samples == 960 * sum(packet.is_speech for packet in sent)
        await asyncio.sleep(0.5)
        assert sum(packet.is_speech for packet in sent[at:]) <= 1
        assert callee.heard[-1600:].any() == (rms(callee.heard[-1600:]) > 0)
        assert rms(callee.heard[-1600:]) < 100


async def test_silence_costs_next_to_nothing_and_speech_after_it_is_whole() -> None:
    async with call() as (caller, callee):
        sent: list[OutboundPacket] = []
        caller.connection.on_packet_sent = lambda packet, now: sent.append(packet)
        await wait_for(lambda: sent and is_dtx(sent[-1].payload))
        before = len(sent)
        await asyncio.sleep(1.2)
        assert 2 <= len(sent) - before <= 4
        say(caller, VOICE)
        start = len(sent)
        await wait_for(lambda: len(sent) > start)
        assert sent[start].is_speech
        await wait_for(lambda: not caller.connection.playout.playing)
        await asyncio.sleep(0.3)
        missed = caller.connection.stats().missed_slots
        assert share_found(callee.heard, VOICE, missed_slots=missed) > 0.8


async def test_messages_go_both_ways_even_those_sent_before_the_channel_is_open() -> None:
    caller, callee = Peer(), Peer()
    caller.connection.send_message("early caller")
    callee.connection.send_message("early callee")
    try:
        await connect(caller, callee)
        await wait_for(lambda: caller.messages and callee.messages)
        caller.connection.send_message("späte Grüße")
        callee.connection.send_message("x" * 16_000)
        await wait_for(lambda: len(caller.messages) == len(callee.messages) == 2)
        assert callee.messages == ["early caller", "späte Grüße"]
        assert caller.messages == ["early callee", "x" * 16_000]
    finally:
        await caller.connection.close()
        await callee.connection.close()


async def test_where_the_caller_opens_no_channel_the_answerer_does() -> None:
    callee = Peer(TransportConfig())
    caller = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
    opened: list[str] = []

    def greet(channel: RTCDataChannel) -> None:
        opened.append(channel.label)
        channel.send("heard you")

    caller.on("datachannel", greet)
    caller.addTransceiver("audio")  # first: aiortc stops a transport that audio shares with an earlier channel
    caller.createDataChannel("something else")
    try:
        await caller.setLocalDescription(await caller.createOffer())
        answer = await callee.connection.answer(caller.localDescription.sdp)
        callee.connection.send_message("waiting")
        await caller.setRemoteDescription(RTCSessionDescription(sdp=answer, type="answer"))
        await wait_for(lambda: callee.messages == ["heard you"])
        assert opened == ["events"]
    finally:
        await caller.close()
        await callee.connection.close()


async def test_the_last_message_before_close_still_arrives_and_the_peer_learns_the_end() -> None:
    caller, callee = Peer(), Peer()
    await connect(caller, callee)
    await wait_for(lambda: callee.connection._events.is_open)
    callee.connection.send_message("goodbye")
    await callee.connection.close("hung up")
    assert callee.states[-1] == ("closed", "hung up")
    await wait_for(lambda: caller.state == "closed")
    assert caller.states[-1] == ("closed", "remote ended the call")
    assert caller.messages == ["goodbye"]
    await caller.connection.close()
    assert [state for state, _ in caller.states] == ["connecting", "connected", "closed"]


async def test_a_peer_that_vanishes_is_found_out_and_one_that_comes_back_is_welcome() -> None:
    quick = replace(LOCAL, disconnected_after_s=0.7, failed_after_s=3.0)
    async with call(quick, LOCAL) as (caller, callee):
        cut = True
        network = callee.connection._ice._connection._protocols[0].transport
        send = network.sendto
        network.sendto = lambda data, addr: None if cut else send(data, addr)
        await wait_for(lambda: caller.state == "disconnected", 4.0)
        cut = False
        await wait_for(lambda: caller.state == "connected", 4.0)
        cut = True
        await wait_for(lambda: caller.state == "failed", 8.0)
        assert "nothing heard" in caller.states[-1][1]


async def test_a_call_nobody_answers_fails_in_time() -> None:
    caller, callee = Peer(replace(LOCAL, connect_timeout_s=0.5)), Peer()
    try:
        answer = await callee.connection.answer(await caller.connection.offer())
        await callee.connection.close()
        await caller.connection.accept(answer)
        await wait_for(lambda: caller.state == "failed", 5.0)
        assert "no connection" in caller.states[-1][1]
    finally:
        await caller.connection.close()


async def test_candidates_may_trickle() -> None:
    caller, callee = Peer(), Peer()
    try:
        offer = await caller.connection.offer()
        bare = "".join(line for line in offer.splitlines(keepends=True) if not line.startswith("a=candidate"))
        candidates = {line[2:] for line in offer.splitlines() if line.startswith("a=candidate")}
        for candidate in candidates:
            await callee.connection.add_candidate(candidate, "0", 0)  # before the offer: kept for it
        answer = await callee.connection.answer(bare)
        later = [line[2:] for line in answer.splitlines() if line.startswith("a=candidate")]
        await caller.connection.accept(
            "".join(line for line in answer.splitlines(keepends=True) if not line.startswith("a=candidate"))
        )
        for candidate in later:
            await caller.connection.add_candidate(candidate, "0", 0)
        await caller.connection.add_candidate(None)
        await caller.connection.add_candidate("candidate:1 1 udp 1 abc-def.local 9 typ host")
        with pytest.raises(RemoteProtocolError, match="no ICE candidate"):
            await caller.connection.add_candidate("candidate:hello", "0", 0)
        await wait_for(lambda: caller.state == callee.state == "connected")
    finally:
        await caller.connection.close()
        await callee.connection.close()


async def test_media_stays_in_the_port_range_and_a_full_range_says_so() -> None:
    probe, transport = None, None
    transport, probe = await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    taken = transport.get_extra_info("sockname")[1]
    del probe
    config = replace(LOCAL, udp_ports=(taken, taken + 1))
    try:
        first, second = Peer(config), Peer(config)
        offer = await first.connection.offer()
        assert f" {taken + 1} typ host" in offer
        with pytest.raises(NoAddressError, match=f"{taken}-{taken + 1}"):
            await second.connection.offer()
        await second.connection.close()
        await first.connection.close()
    finally:
        transport.close()


async def test_a_public_address_is_named_beside_the_local_one() -> None:
    async with call(callee_config=replace(LOCAL, public_address="192.0.2.7")) as (caller, _):
        remote = {candidate.ip for candidate in caller.connection._ice.getRemoteCandidates()}
        assert remote == {"127.0.0.1", "192.0.2.7"}


async def test_one_peer_connection_holds_one_call() -> None:
    async with call() as (caller, callee):
        offer = await Peer().connection.offer()
        with pytest.raises(LocalProtocolError):
            await callee.connection.answer(offer)
        assert caller.state == "connected"


async def test_an_exception_in_a_callback_stays_in_this_house(caplog: pytest.LogCaptureFixture) -> None:
    async with call() as (caller, callee):

        def fail(*_: object) -> None:
            raise ValueError("a bug above")

        callee.connection.on_audio = fail
        callee.connection.on_message = fail
        caller.connection.send_message("boom")
        say(caller, VOICE)
        await wait_for(lambda: callee.connection.stats().packets_received > 50)
        assert callee.state == "connected"
        assert "a bug above" in caplog.text


async def test_ears_get_ten_milliseconds_whenever_they_ask() -> None:
    async with call(LOCAL, replace(LOCAL, reader="playout", receive_rate_hz=48_000)) as (caller, callee):
        loop = asyncio.get_running_loop()
        say(caller, tone(1.5, 440))
        heard: list[np.ndarray] = []
        began = loop.time()
        for n in range(220):
            await asyncio.sleep(began + n * 0.01 - loop.time())
            frame = callee.connection.get_audio(now=loop.time())
            assert frame.samples.shape == (480,)
            heard.append(frame.samples)
        loud = [rms(samples) > 500 for samples in heard]
        assert 130 <= sum(loud) <= 190
        first = loud.index(True)
        middle = np.concatenate(heard[first + 30 : first + 110]).astype(np.float64)
        spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
        assert abs(np.argmax(spectrum) * 48_000 / len(middle) - 440) < 5
        assert callee.frames == []
        with pytest.raises(LocalProtocolError):
            caller.connection.get_audio(now=loop.time())


async def test_lost_packets_are_asked_for_and_come_again() -> None:
    async with call() as (caller, callee):
        rng = random.Random(5)
        caller.impair_sending(lambda data: is_rtp(data) and rng.random() < 0.1)
        for _ in range(4):
            say(caller, VOICE)
        await wait_for(lambda: callee.connection.reader.stats.retransmitted_packets_received > 3, 15.0)
        assert caller.connection.outbound_repair.packets_resent > 3


def count_resources() -> tuple[int, int, int]:
    gc.collect()
    return len(asyncio.all_tasks()), threading.active_count(), len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
async def test_ended_calls_leave_no_task_thread_or_descriptor() -> None:
    async with call():
        pass
    await asyncio.sleep(0.05)
    before = count_resources()
    for ended_by in ("caller", "callee", "both", "a task that is cancelled", "nobody answered", "bad offer"):
        caller, callee = Peer(), Peer()
        if ended_by == "nobody answered":
            await caller.connection.accept(await callee.connection.answer(await caller.connection.offer()))
        elif ended_by == "bad offer":
            with pytest.raises(RemoteProtocolError):
                await callee.connection.answer("v=0\r\n")
        else:
            await connect(caller, callee)
            say(caller, tone(0.3, 440))
            await asyncio.sleep(0.1)
        if ended_by == "callee":
            await callee.connection.close()
            await caller.connection.close()
        elif ended_by == "a task that is cancelled":
            hanging_up = asyncio.ensure_future(caller.connection.close())
            await asyncio.sleep(0)
            hanging_up.cancel()
            await asyncio.wait([hanging_up])
            await callee.connection.close()
            await caller.connection.close()
        elif ended_by == "both":
            await asyncio.gather(caller.connection.close(), callee.connection.close(), caller.connection.close())
        else:
            await caller.connection.close()
            await callee.connection.close()
    del caller, callee
    await asyncio.sleep(0.1)
    assert count_resources() == before
