"""The receiving side's own clock: a hole is filled when its time has come, and after the end nothing moves."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from jitter.frame import FrameKind
from jitter.listen import AudioFrame
from jitter.packet import RtpPacket
from tests.loopback.pairs import wait_for
from tests.sounds import speech_like
from transport.config import TransportConfig
from transport.errors import LocalProtocolError
from transport.inbound_audio import InboundAudio
from transport.opus import OpusEncoder

VOICE = speech_like(1.0)


def packets(count: int) -> list[RtpPacket]:
    encoder = OpusEncoder(fec=False)
    now = asyncio.get_running_loop().time()
    return [
        RtpPacket(n, 960 * n, 111, 7, encoder.encode(VOICE[n * 960 : (n + 1) * 960]), now + 0.0001 * n)
        for n in range(count)
    ]


def make() -> tuple[InboundAudio, list[AudioFrame]]:
    audio = InboundAudio(TransportConfig())
    frames: list[AudioFrame] = []
    audio.on_audio = lambda some, now: frames.extend(some)
    return audio, frames


async def test_a_hole_is_filled_by_the_timer_though_nothing_more_comes() -> None:
    audio, frames = make()
    for packet in packets(8):
        if packet.sequence_number != 6:
            audio.handle_packet(packet, now=packet.arrival)
    assert len(frames) == 6
    await wait_for(lambda: len(frames) == 8)
    assert [frame.kind for frame in frames[6:]] == [FrameKind.CONCEALED, FrameKind.DECODED]
    assert [frame.position_samples for frame in frames] == [320 * n for n in range(8)]
    assert audio.concealed_pct == pytest.approx(12.5)
    audio.close()


async def test_a_packet_that_comes_in_time_closes_the_hole_and_the_timer_with_it() -> None:
    audio, frames = make()
    sent = packets(8)
    for packet in [*sent[:5], *sent[6:], sent[5]]:
        audio.handle_packet(packet, now=packet.arrival)
    assert {frame.kind for frame in frames} == {FrameKind.DECODED}
    assert len(frames) == 8
    await asyncio.sleep(0.15)
    assert len(frames) == 8
    audio.close()


async def test_after_close_the_timer_is_dead() -> None:
    audio, frames = make()
    for packet in packets(8):
        if packet.sequence_number != 6:
            audio.handle_packet(packet, now=packet.arrival)
    audio.close()
    await asyncio.sleep(0.2)
    assert len(frames) == 6


async def test_checks_give_the_controller_a_round_trip_until_something_better_does() -> None:
    audio, _ = make()
    for rtt_ms in (20, 30, 500, 25, 22, 21, 24, 23, 26, 27):
        audio.handle_check(rtt_ms / 1000, now=1.0)
    assert audio.controller._rtt_ms == pytest.approx(30)
    audio.handle_round_trip(44.0, now=2.0)
    audio.handle_check(0.9, now=3.0)
    assert audio.controller._rtt_ms == 44.0
    audio.close()


async def test_ears_and_machines_are_two_configurations() -> None:
    listening, _ = make()
    with pytest.raises(LocalProtocolError, match="playout"):
        listening.get_audio(now=0.0)
    ears = InboundAudio(TransportConfig(reader="playout", receive_rate_hz=48_000))
    told: list[AudioFrame] = []
    ears.on_audio = lambda frames, now: told.extend(frames)
    for packet in packets(30):
        ears.handle_packet(packet, now=packet.arrival)
    start = asyncio.get_running_loop().time()
    heard = np.concatenate([ears.get_audio(now=start + n * 0.01).samples for n in range(60)])
    assert len(heard) == 60 * 480
    assert np.abs(heard).max() > 1000
    assert told == []
    ears.close()
    listening.close()


async def test_a_loop_that_stood_still_itself_does_not_raise_the_delay() -> None:
    """Packets that waited in the socket while the loop was busy are read late, and the network was not."""
    audio, _ = make()
    sent = packets(40)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for packet in sent[:10]:
        audio.handle_packet(replace(packet, arrival=begun + 0.02 * packet.sequence_number), now=loop.time())
    time.sleep(0.3)  # the loop cannot run: nothing is read meanwhile
    now = loop.time()
    for packet in sent[10:20]:
        audio.handle_packet(replace(packet, arrival=now), now=now)
    delays = audio.controller.history.delays_ms()
    assert audio.controller._stalled_until > now
    assert float(delays[10:20].max()) <= audio.controller.decision.spread_ms
    audio.close()


async def test_a_loop_that_runs_leaves_lateness_to_the_network() -> None:
    audio, _ = make()
    sent = packets(3)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    audio._beat.cancel()
    audio._beat = loop.call_at(begun + 3600, audio._handle_beat)  # no slow machine may look like a stall here
    audio.handle_packet(replace(sent[0], arrival=begun), now=begun)
    audio.handle_packet(replace(sent[1], arrival=begun + 0.5), now=begun + 0.5)
    assert float(audio.controller.history.delays_ms()[1]) == pytest.approx(480, abs=1)
    audio.close()
