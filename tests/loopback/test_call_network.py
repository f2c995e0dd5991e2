"""Two peers with their control channel: what is measured acts on what is sent, and losing the channel hurts nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from peer.softphone_call import CallOptions, SoftphoneCall
from peer.softphone_channel import SoftphoneChannel
from tests.loopback.control_helpers import running_server
from tests.loopback.local_server import server_process
from tests.loopback.pairs import LOCAL, Peer, connect, is_rtp, wait_for
from tests.sounds import speech_like
from transport.call_network import CallNetwork
from transport.control_messages import Decision, NextToken, ReceiverTarget, encode
from transport.messages import CallState
from transport.quic_client import ControlClient
from transport.quic_server import ControlServer


@dataclass
class Call:
    phone: Peer
    server: Peer
    phone_network: CallNetwork
    server_network: CallNetwork
    client: ControlClient | None
    control: ControlServer


@asynccontextmanager
async def _call(*, quic: bool = True) -> AsyncIterator[Call]:
    phone, server = Peer(LOCAL), Peer(LOCAL)
    async with running_server() as control:
        ours = CallNetwork(server.connection, call_id="call")
        theirs = CallNetwork(phone.connection, call_id="call")
        server.connection.on_message = lambda text: None if ours.handle_text(text) else server.messages.append(text)
        phone.connection.on_message = lambda text: None if theirs.handle_text(text) else phone.messages.append(text)
        token = control.register(ours.control, send_out_of_band=ours.send_out_of_band)
        client = None
        task: asyncio.Task[None] | None = None
        if quic:
            client = ControlClient(
                theirs.control,
                url=control.url("127.0.0.1"),
                token=token,
                certificate_sha256_list=control.certificate_sha256_list,
            )
            theirs.on_token = client.handle_token
            task = asyncio.create_task(client.run())
        try:
            await connect(phone, server)
            ours.start()
            theirs.start()
            if not quic:
                theirs.use_data_channel()
            yield Call(
                phone=phone, server=server, phone_network=theirs, server_network=ours, client=client, control=control
            )
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            theirs.close()
            ours.close()
            await phone.connection.close()
            await server.connection.close()


def _say(peer: Peer, seconds: float) -> None:
    peer.connection.playout.capture_frame(speech_like(seconds))
    peer.connection.playout.flush()


async def _measured(network: CallNetwork) -> None:
    await wait_for(lambda: network.control.statistics().echoes > 5)
    await wait_for(lambda: network._last_report_at > 0)


async def test_both_ends_measure_the_path_and_report_what_they_receive() -> None:
    async with _call() as call:
        _say(call.server, 3.0)
        _say(call.phone, 3.0)
        for network in (call.phone_network, call.server_network):
            await _measured(network)
            assert network.rtt_ms is not None
        report = call.phone_network.make_report(now=asyncio.get_running_loop().time())
        assert report is not None
        assert report.packets_received > 10
        assert call.server_network.control.carrier_kind == "quic"


async def test_without_quic_the_data_channel_carries_the_same() -> None:
    async with _call(quic=False) as call:
        _say(call.server, 2.0)
        await wait_for(lambda: call.server_network.control.statistics().echoes > 5)
        await wait_for(lambda: call.server_network._last_report_at > 0)
        assert call.server_network.control.carrier_kind == "data_channel"
        assert call.phone.messages == []


async def test_a_softphone_opens_the_channel_of_a_real_server() -> None:
    async with server_process() as (url, _), SoftphoneCall(CallOptions(url=url)) as call:
        channel = call.channel
        assert channel is not None
        await wait_for(lambda: channel.describe()["carrier"] == "quic")
        await wait_for(lambda: channel.describe()["rtt_ms"] is not None)


async def test_an_event_comes_once_whatever_carries_the_channel() -> None:
    for quic, over_channel in ((True, 1), (False, 0)):
        async with _call(quic=quic) as call:
            await wait_for(lambda: call.server_network.control.carrier_kind)
            told: list[object] = []
            call.phone_network.on_message = told.append
            event = CallState(state="listening")
            call.server_network.tell_event(event)
            await asyncio.sleep(0.3)
            assert [message for message in told if isinstance(message, CallState)] == [event] * over_channel
            assert call.phone.messages == []


async def test_the_far_end_of_a_call_may_be_told_how_much_to_hold() -> None:
    server, phone = Peer(LOCAL), Peer(replace(LOCAL, reader="playout"))
    try:
        await connect(phone, server)
        channel = SoftphoneChannel(phone.connection, call_id="call", offer=None)
        reader = phone.connection.reader
        channel.network.handle_control_message(ReceiverTarget(target_ms=140.0), now=0.0)
        assert reader.controller._manager.minimum_ms == 140.0
        channel.network.handle_control_message(ReceiverTarget(target_ms=None), now=0.0)
        assert reader.controller._manager.minimum_ms < 40.0
        channel.close()
    finally:
        await phone.connection.close()
        await server.connection.close()


async def test_loss_on_the_way_down_brings_copies_and_a_deeper_buffer_there(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="transport.call_network")
    async with _call() as call:
        targets: list[float | None] = []
        told: list[object] = []
        call.phone_network.on_receiver_target = targets.append
        call.phone_network.on_message = told.append
        source = random.Random(2)
        call.server.impair_sending(lambda data: is_rtp(data) and source.random() < 0.12)
        _say(call.server, 12.0)
        repair = call.server.connection.outbound_repair
        await wait_for(lambda: repair.red_offsets, timeout_s=12)
        await wait_for(lambda: targets and targets[-1], timeout_s=5)
        decisions = [message for message in told if isinstance(message, Decision)]
        assert {"plan", "expected_loss_pct"} <= {decision.output for decision in decisions}
        assert all("loss" in decision.reason for decision in decisions if decision.output == "plan")
        logged = [vars(record) for record in caplog.records if record.getMessage() == "decision"]
        assert {"plan", "expected_loss_pct"} <= {record["output"] for record in logged if record["call"] == "call"}
        call.server.connection.playout.clear_buffer(now=asyncio.get_running_loop().time())
        await wait_for(lambda: targets[-1] is None)


async def test_loss_on_the_way_up_is_asked_back_and_the_sender_told() -> None:
    async with _call() as call:
        source = random.Random(3)
        call.phone.impair_sending(lambda data: is_rtp(data) and source.random() < 0.12)
        _say(call.phone, 12.0)
        await wait_for(lambda: call.phone.connection.outbound_repair.red_offsets, timeout_s=15)
        stats = call.server.connection.reader.stats
        await wait_for(lambda: stats.red_packets_recovered + stats.retransmitted_packets_received > 5, timeout_s=10)


async def test_a_killed_channel_comes_back_by_itself_and_media_never_stops() -> None:
    async with _call() as call:
        assert call.client is not None
        _say(call.server, 40.0)
        await wait_for(lambda: call.client and call.client.openings == 1)
        await wait_for(lambda: len(call.phone.heard) > 8000)
        carrier = call.server_network.control._carrier
        assert carrier is not None
        heard = len(call.phone.heard)
        carrier.close()
        await wait_for(lambda: call.client and call.client.openings == 2)
        await wait_for(lambda: len(call.phone.heard) > heard + 16_000)
        assert call.phone.state == call.server.state == "connected"


async def test_a_token_over_the_data_channel_opens_the_next_channel() -> None:
    async with _call() as call:
        assert call.client is not None
        await wait_for(call.client.opened.is_set)
        tokens: list[str] = []
        call.phone_network.on_token = tokens.append
        call.server_network.send_out_of_band(NextToken(next_token="0123456789abcdef" * 2))
        await wait_for(lambda: "0123456789abcdef" * 2 in tokens)


async def test_what_a_hostile_peer_says_on_the_data_channel_changes_nothing() -> None:
    async with _call(quic=False) as call:
        source = random.Random(1)
        for _ in range(300):
            call.phone.connection.send_message('{"type":"report","seq":1,"at_us":1,"packets_lost":9007199254740991}')
            call.phone.connection.send_message("".join(map(chr, source.choices(range(32, 1000), k=50))))
        call.phone.connection.send_message(encode(ReceiverTarget(target_ms=4000.0)).decode())
        _say(call.server, 2.0)
        await wait_for(lambda: len(call.phone.heard) > 16_000)
        assert call.server.state == "connected"
