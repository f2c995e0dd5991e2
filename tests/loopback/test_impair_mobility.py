"""Calls of ours through the relay when the network changes under them: outages, a new address, and none any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np

from impair.flows import Address
from impair.ice import CandidateRewriter
from impair.profile import Direction
from impair.relay_process import RelayProcess
from transport.config import TransportConfig
from transport.peer_connection import PeerConnection

CONFIG = TransportConfig(hosts=("127.0.0.1",), disconnected_after_s=4.0, failed_after_s=8.0)


@dataclass
class End:
    connection: PeerConnection
    packets: int = 0
    states: list[tuple[str, str]] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.connection.on_packet = self._count
        self.connection.on_state = self._note

    def _count(self, *_: object) -> None:
        self.packets += 1

    def _note(self, state: str, reason: str) -> None:
        self.states.append((state, reason))
        if state in {"connected", "failed", "closed"}:
            self.over.set()

    async def speak(self) -> None:
        generator = np.random.default_rng(1)
        while True:
            if self.connection.playout.queued_ms < 200:
                self.connection.playout.capture_frame(generator.normal(0, 500, 4800).astype(np.int16))
            await asyncio.sleep(0.05)


@asynccontextmanager
async def call(relay: RelayProcess) -> AsyncIterator[tuple[End, End]]:
    """A caller behind a NAT and a server, connected and both speaking."""

    async def add_route(to: Address, way: Direction) -> Address:
        return await relay.add_route(to, way)

    rewriter = CandidateRewriter(add_route, behind_nat=True)
    caller, server = End(PeerConnection(CONFIG)), End(PeerConnection(CONFIG))
    speaking: list[asyncio.Task[None]] = []
    try:
        offer = await rewriter.offer(await caller.connection.offer())
        await caller.connection.accept(await rewriter.answer(await server.connection.answer(offer)))
        for end in (caller, server):
            await asyncio.wait_for(end.over.wait(), 30)
            end.over.clear()
            speaking.append(asyncio.create_task(end.speak()))
        await until_more(caller, server)
        yield caller, server
    finally:
        for task in speaking:
            task.cancel()
        await asyncio.gather(*speaking, return_exceptions=True)
        await asyncio.gather(caller.connection.close("over"), server.connection.close("over"))


async def until_more(*ends: End, packets: int = 30) -> None:
    """Wait until each has received so many more."""
    goals = [end.packets + packets for end in ends]
    async with asyncio.timeout(60):
        while any(end.packets < goal for end, goal in zip(ends, goals, strict=True)):
            await asyncio.sleep(0.02)


async def test_media_goes_on_both_ways_after_the_caller_s_address_changed() -> None:
    async with RelayProcess("none") as relay, call(relay) as (caller, server):
        for _ in range(2):
            assert await relay.rebind() >= 1
            await until_more(caller, server, packets=100)
        moves = (await relay.stats())["relay"]["moves_ms"]
    assert len(moves) >= 2
    assert not any(state == "failed" for state, _ in caller.states + server.states)


async def test_media_comes_back_after_an_outage_that_is_not_too_long() -> None:
    async with RelayProcess("none") as relay, call(relay) as (caller, server):
        await relay.begin_outage(2.0)
        await asyncio.sleep(2.0)
        await until_more(caller, server)
        assert (await relay.stats())["relay"]["outage_lost"] > 50
    assert not any(state == "failed" for state, _ in caller.states + server.states)


async def test_an_outage_without_end_ends_the_call_and_both_sides_say_why() -> None:
    async with RelayProcess("none") as relay, call(relay) as (caller, server):
        await relay.begin_outage(1000)
        for end in (caller, server):
            await asyncio.wait_for(end.over.wait(), 60)
            assert [state for state, _ in end.states][-2:] == ["disconnected", "failed"]
            assert "nothing heard" in end.states[-1][1]
