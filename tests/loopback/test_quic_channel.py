"""The control channel over raw QUIC on 127.0.0.1: opening, refusing, dropping, coming back."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from typing import Any

import pytest
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated

from tests.loopback.control_helpers import ignore, make_side, running_client, running_server, until
from transport import quic_server
from transport.control_messages import EchoRequest, ReceiveReport, ReceiverTarget, SenderRepair, encode
from transport.messages import CallState
from transport.quic_client import _ClientConnection


class _UdpRelay:
    """Forwards UDP between clients and a server; `dead` drops all, `move()` gives every client another address."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.dead = False
        self.port = 0
        self._front: asyncio.DatagramTransport | None = None
        self._backs: dict[Any, socket.socket] = {}

    async def start(self) -> None:
        relay = self

        class Front(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: Any) -> None:
                if not relay.dead:
                    relay._back(addr).send(data)

        self._front, _ = await asyncio.get_running_loop().create_datagram_endpoint(Front, local_addr=("127.0.0.1", 0))
        self.port = self._front.get_extra_info("sockname")[1]

    def _back(self, addr: Any) -> socket.socket:
        if addr not in self._backs:
            back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            back.setblocking(False)
            back.connect(("127.0.0.1", self.server_port))
            asyncio.get_running_loop().add_reader(back, self._forward_back, back, addr)
            self._backs[addr] = back
        return self._backs[addr]

    def _forward_back(self, back: socket.socket, addr: Any) -> None:
        try:
            data = back.recv(2048)
        except OSError:
            return
        if not self.dead and self._front is not None:
            self._front.sendto(data, addr)

    def move(self) -> None:
        for back in self._backs.values():
            asyncio.get_running_loop().remove_reader(back)
            back.close()
        self._backs.clear()

    def close(self) -> None:
        self.move()
        if self._front is not None:
            self._front.close()


async def test_a_channel_opens_and_carries_echoes_reports_and_lines_both_ways() -> None:
    async with running_server() as server:
        phone, ours = make_side(), make_side()
        token = server.register(ours.control, send_out_of_band=ignore)
        async with running_client(server, phone, token):
            await until(lambda: bool(phone.listener.reports and ours.listener.reports))
            await until(lambda: phone.control.statistics().echoes > 3 and ours.control.statistics().echoes > 3)
            assert ours.control.send(ReceiverTarget(target_ms=90.0, reason="round trip"))
            assert phone.control.send(SenderRepair(red_offsets=[1], fec=True))
            await until(lambda: bool(phone.listener.messages and ours.listener.messages))
            assert phone.listener.messages == [ReceiverTarget(target_ms=90.0, reason="round trip")]
            assert ours.listener.messages == [SenderRepair(red_offsets=[1], fec=True)]
            rtt_ms = ours.control.statistics().min_ms
            assert rtt_ms is not None
            assert 0 <= rtt_ms < 100
        assert ours.listener.carriers[0] == "quic"
        await until(lambda: ours.listener.carriers == ["quic", None])


@pytest.mark.parametrize("kind", ["wrong", "used", "expired", "revoked"])
async def test_bad_tokens_are_refused_alike_and_nothing_is_said(kind: str) -> None:
    async with running_server(ttl_s=0.05 if kind == "expired" else None) as server:
        ours, phone, second = make_side(), make_side(), make_side()
        token = server.register(ours.control, send_out_of_band=ignore)
        if kind == "wrong":
            token = "A" * 43
        elif kind == "used":
            assert server.redeem(token) is ours.control
        elif kind == "expired":
            await asyncio.sleep(0.06)
        else:
            server.unregister("call")
        closes: list[tuple[int, str]] = []
        received: list[bytes] = []
        original = _ClientConnection.quic_event_received

        def spy(self: _ClientConnection, event: Any) -> None:
            if hasattr(event, "reason_phrase"):
                closes.append((event.error_code, event.reason_phrase))
            if hasattr(event, "data"):
                received.append(event.data)
            original(self, event)

        _ClientConnection.quic_event_received = spy  # type: ignore[method-assign]
        try:
            async with running_client(server, phone, token) as client:
                await until(lambda: bool(closes))
                assert not client.opened.is_set()
        finally:
            _ClientConnection.quic_event_received = original  # type: ignore[method-assign]
        assert closes == [(quic_server.CLOSE_REFUSED, "")]
        assert received == []
        assert ours.listener.carriers == []
        assert second.listener.carriers == []
        assert not server.strangers


async def test_a_client_that_shows_no_token_is_told_nothing_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quic_server, "HANDSHAKE_TIMEOUT_S", 0.5)
    heard: list[Any] = []

    class Stranger(QuicConnectionProtocol):
        def quic_event_received(self, event: Any) -> None:
            if hasattr(event, "data") or hasattr(event, "reason_phrase"):
                heard.append(event)

    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=[quic_server.ALPN], verify_mode=ssl.CERT_NONE, max_datagram_frame_size=65536
    )
    async with running_server() as server:
        ours = make_side()
        server.register(ours.control, send_out_of_band=ignore)
        async with connect("127.0.0.1", server.port, configuration=configuration, create_protocol=Stranger) as stranger:
            for _ in range(20):
                stranger._quic.send_datagram_frame(encode(EchoRequest(seq=1, sent_us=1)))
            stranger._quic.send_datagram_frame(encode(ReceiveReport(seq=1, at_us=1)))
            stranger._quic.send_stream_data(0, encode(ReceiverTarget(target_ms=200.0)))
            stranger.transmit()
            await until(lambda: bool(heard))
        assert [(type(event), event.error_code, event.reason_phrase) for event in heard] == [
            (ConnectionTerminated, quic_server.CLOSE_REFUSED, "")
        ]
        assert ours.listener.carriers == []
        assert ours.listener.reports == []
        assert ours.listener.messages == []


async def test_a_server_with_another_certificate_never_gets_the_token() -> None:
    async with running_server() as server:
        ours, phone = make_side(), make_side()
        token = server.register(ours.control, send_out_of_band=ignore)
        async with running_client(server, phone, token, digests=["00" * 32]):
            await asyncio.sleep(0.5)
            assert ours.listener.carriers == []
        assert server.redeem(token) is ours.control


async def test_a_dead_path_reopens_by_itself_on_its_return_and_resumes() -> None:
    async with running_server() as server:
        relay = _UdpRelay(server.port)
        await relay.start()
        phone, ours = make_side(), make_side()
        token = server.register(ours.control, send_out_of_band=ignore)
        async with running_client(server, phone, token, port=relay.port) as client:
            await until(client.opened.is_set)
            await until(lambda: ours.control.statistics().echoes > 2)
            relay.dead = True
            await until(lambda: not client.opened.is_set())
            relay.dead = False
            await until(lambda: client.openings == 2)
            await until(lambda: len(phone.listener.carriers) >= 2 and ours.control.statistics().echoes > 2)
            assert phone.listener.carriers[-1] == "quic"
            assert len(ours.listener.carriers) >= 2
        relay.close()


async def test_a_killed_connection_comes_back_with_the_next_token() -> None:
    async with running_server() as server:
        phone, ours = make_side(), make_side()
        token = server.register(ours.control, send_out_of_band=ignore)
        async with running_client(server, phone, token) as client:
            for opened in range(1, 4):
                await until(lambda: client.openings == opened)  # noqa: B023
                carrier = ours.control._carrier
                assert carrier is not None
                carrier.close()
            await until(lambda: client.openings == 4)
        assert ours.listener.carriers.count("quic") == 4


async def test_a_client_that_moves_keeps_its_channel_and_loses_its_round_trip() -> None:
    async with running_server() as server:
        relay = _UdpRelay(server.port)
        await relay.start()
        phone, ours = make_side(), make_side()
        token = server.register(ours.control, send_out_of_band=ignore)
        async with running_client(server, phone, token, port=relay.port):
            await until(lambda: ours.control.statistics().echoes > 5)
            channel = ours.control._channel
            assert channel is not None
            resets = 0
            reset = channel.estimator.reset

            def count() -> None:
                nonlocal resets
                resets += 1
                reset()

            channel.estimator.reset = count  # type: ignore[method-assign]
            relay.move()
            await until(lambda: resets == 1)
            before = len(ours.listener.reports)
            await until(lambda: len(ours.listener.reports) > before + 2)
            assert ours.listener.carriers == ["quic"]
        relay.close()


async def test_the_certificate_rotates_without_restart_and_open_channels_live_on() -> None:
    async with running_server() as server:
        phone, ours, late = make_side(), make_side("a"), make_side("b")
        token = server.register(ours.control, send_out_of_band=ignore)
        announced = server.certificate_sha256_list
        async with running_client(server, phone, token) as client:
            await until(client.opened.is_set)
            server._unix_time = lambda: server._rotation.get_timer() + 1
            server._arm_rotation()
            assert server.certificate_sha256_list[0] == announced[1]
            late_token = server.register(late.control, send_out_of_band=ignore)
            async with running_client(server, make_side("b"), late_token, digests=announced) as second:
                await until(second.opened.is_set)
            assert ours.control.carrier_kind == "quic"


async def test_noise_floods_and_halves_of_packets_leave_the_server_and_the_call_unharmed() -> None:
    async with running_server() as server:
        phone, ours = make_side(), make_side()
        token = server.register(ours.control, send_out_of_band=ignore)
        async with running_client(server, phone, token) as client:
            await until(client.opened.is_set)
            source = random.Random(3)
            noise = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            for _ in range(3000):
                noise.sendto(source.randbytes(source.choice([0, 1, 20, 60, 1200, 1452])), ("127.0.0.1", server.port))
            noise.close()
            await asyncio.sleep(0.2)
            carrier = phone.control._carrier
            assert carrier is not None
            for size in (0, 1, 500, 1100):
                carrier.send_datagram(source.randbytes(size))
            for _ in range(300):
                carrier.send_datagram(b'{"type":"report","seq":1,"at_us":1}')
            before = len(ours.listener.reports)
            await until(lambda: len(ours.listener.reports) > before + 3)
            assert client.opened.is_set()
            channel = ours.control._channel
            assert channel is not None
            assert channel.counters.malformed > 0
            assert channel.counters.over_rate > 0
            assert ours.control.send(CallState(state="listening"))
            await until(lambda: CallState(state="listening") in phone.listener.messages)


async def test_a_flooding_peer_loses_its_channel_only() -> None:
    async with running_server() as server:
        rude, other, phone = make_side("rude"), make_side("other"), make_side("other")
        rude_phone = make_side("rude")
        rude_token = server.register(rude.control, send_out_of_band=ignore)
        token = server.register(other.control, send_out_of_band=ignore)
        async with running_client(server, phone, token), running_client(server, rude_phone, rude_token) as client:
            await until(client.opened.is_set)
            carrier = rude_phone.control._carrier
            assert carrier is not None
            carrier.send_stream_data(b"x" * 100_000)
            await until(lambda: rude.listener.carriers[:2] == ["quic", None])
            before = len(other.listener.reports)
            await until(lambda: len(other.listener.reports) > before + 3)
            assert other.listener.carriers == ["quic"]


async def test_a_reopened_channel_resumes_the_tls_session() -> None:
    async with running_server() as server:
        phone, ours = make_side(), make_side()
        token = server.register(ours.control, send_out_of_band=ignore)
        resumed: list[tuple[bool, bool]] = []
        original = _ClientConnection.quic_event_received

        def spy(self: _ClientConnection, event: Any) -> None:
            if hasattr(event, "session_resumed"):
                resumed.append((event.session_resumed, event.early_data_accepted))
            original(self, event)

        _ClientConnection.quic_event_received = spy  # type: ignore[method-assign]
        try:
            async with running_client(server, phone, token) as client:
                await until(client.opened.is_set)
                await until(lambda: client._ticket is not None)
                carrier = ours.control._carrier
                assert carrier is not None
                carrier.close()
                await until(lambda: ours.listener.carriers.count("quic") == 2)
        finally:
            _ClientConnection.quic_event_received = original  # type: ignore[method-assign]
        assert resumed[0] == (False, False)
        assert resumed[1][0]


async def test_many_strangers_cost_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quic_server, "MAX_STRANGERS", 3)
    async with running_server() as server:
        ours = make_side()
        server.register(ours.control, send_out_of_band=ignore)
        connections = []
        for _ in range(8):
            side = make_side()
            client_context = running_client(server, side, "A" * 43)
            connections.append((client_context, await client_context.__aenter__()))
        await asyncio.sleep(0.5)
        assert len(server.strangers) <= 4
        for context, _ in connections:
            await context.__aexit__(None, None, None)
