"""Copies and answers on real connections: what is sent, what is asked for again, and what an answer is worth."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest

from jitter.red import parse_red
from tests.loopback.pairs import Peer, call, is_rtp, wait_for
from tests.sounds import speech_like
from transport.opus import OpusDecoder

VOICE = speech_like(2.0)


def _say(peer: Peer) -> None:
    peer.connection.playout.capture_frame(VOICE)
    peer.connection.playout.flush()


async def test_copies_travel_with_later_packets_and_stop_when_told() -> None:
    async with call() as (caller, callee):
        repair = caller.connection.outbound_repair
        assert repair.can_red
        payload_types: list[int] = []
        blocks: list[list[int]] = []
        primaries: list[bytes] = []
        copies: list[bytes] = []

        def watch(packet, now):  # type: ignore[no-untyped-def]
            payload_types.append(packet.payload_type)
            if packet.payload_type == 63:
                parsed = parse_red(packet.payload)
                assert parsed is not None
                blocks.append([block.offset_ticks for block in parsed])
                primaries.append(parsed[-1].payload)
                copies.extend(block.payload for block in parsed[:-1] if block.offset_ticks == 960)

        callee.connection.on_packet = watch
        repair.set_red_offsets([1, 3])
        _say(caller)
        await wait_for(lambda: len(blocks) > 60)
        assert [2880, 960, 0] in blocks
        assert 0.3 < np.mean([len(copy) for copy in copies]) / np.mean([len(each) for each in primaries]) < 0.9
        assert all(OpusDecoder().duration_samples(copy) == 320 for copy in copies)
        repair.set_red_offsets([])
        await wait_for(lambda: payload_types[-1] != 63)
        assert 0.5 < repair.counters.copy_bytes / repair.counters.media_bytes < 1.9


async def test_a_requested_packet_is_sent_again_once_and_not_when_too_old() -> None:
    async with call() as (caller, callee):
        numbers: list[int] = []
        callee.connection.on_packet = lambda packet, now: numbers.append(packet.sequence_number)
        repair = caller.connection.outbound_repair
        repair.answer_gap_s = 0.5
        repair.answer_within_s = 1.0
        first: list[list[int]] = []
        repair.on_requests = lambda requested, now: first.append([number & 0xFFFF for number in requested])
        caller.impair_sending(lambda data: is_rtp(data) and len(numbers) == 20 and not repair.counters.requests)
        _say(caller)
        await wait_for(lambda: len(numbers) == 20)
        await asyncio.sleep(0.05)
        wanted = numbers[-1] + 1 & 0xFFFF
        for _ in range(3):
            await callee.connection.request_packets([wanted])
        await wait_for(lambda: wanted in numbers and repair.counters.requests == 3)
        assert repair.packets_resent == 1
        assert first == [[wanted]]
        repair.answer_within_s = 0.0
        await callee.connection.request_packets([numbers[-1]])
        await wait_for(lambda: repair.counters.requests == 4)
        assert repair.packets_resent == 1


async def test_what_a_copy_has_brought_already_is_not_sent_again() -> None:
    async with call() as (caller, callee):
        numbers: list[int] = []
        callee.connection.on_packet = lambda packet, now: numbers.append(packet.sequence_number)
        repair = caller.connection.outbound_repair
        repair.answer_within_s = 1.0
        repair.set_red_offsets([1])
        _say(caller)
        await wait_for(lambda: len(numbers) > 30)
        covered = numbers[-6]
        await callee.connection.request_packets([covered])
        await wait_for(lambda: repair.counters.requests == 1)
        assert repair.packets_resent == 0
        lost = [numbers[-5], numbers[-4]]
        await callee.connection.request_packets(lost)
        await wait_for(lambda: repair.counters.requests == 2)
        assert repair.packets_resent == 1


@pytest.mark.parametrize("share", [0.2])
async def test_a_lossy_path_is_mended_by_requests(share: float) -> None:
    async with call() as (caller, callee):
        source = random.Random(1)
        caller.impair_sending(lambda data: is_rtp(data) and source.random() < share)
        seen: set[int] = set()

        def watch(packet, now):  # type: ignore[no-untyped-def]
            if seen:
                missing.extend(range(max(seen) + 1, packet.sequence_number))
            seen.add(packet.sequence_number)

        missing: list[int] = []
        callee.connection.on_packet = watch
        caller.connection.outbound_repair.answer_within_s = 1.0
        _say(caller)
        asked = 0
        for _ in range(60):
            if len(missing) > asked:
                await callee.connection.request_packets(missing[asked:])
                asked = len(missing)
            await asyncio.sleep(0.03)
        assert asked > 5
        assert sum(number in seen for number in missing[:asked]) > asked / 2
