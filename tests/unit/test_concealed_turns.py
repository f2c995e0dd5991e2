"""A network's silence is not the caller's: lost packets through the listener and the real endpointer."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from jitter.controller import Controller
from jitter.frame import FrameKind
from jitter.listen import ListenReader
from jitter.packet import RtpPacket
from jitter.planner import Listener
from jitter.replay_speech import load_clip
from peer.endpointing import Endpointer, EndpointOptions, SpeechEnd, SpeechEvent, SpeechStart
from peer.engines.vad_silero import SileroVad
from peer.engines.vad_webrtc import WebRtcVad
from tests.speechlike import make_noise
from transport.opus import OpusDecoder, OpusEncoder

WAIT_MS = 400
LEAD_S = 0.6
VOICE_FROM_S, VOICE_UPTO_S = 8.15, 10.55
"""Of the clip, a stretch without a pause as long as the wait."""
VOICE_S = VOICE_UPTO_S - VOICE_FROM_S


def spoken_packets(*, tail_s: float) -> list[RtpPacket]:
    """Voice from LEAD_S on for VOICE_S, room noise before and behind, in 20 ms packets without FEC."""
    clip = load_clip(16_000)[round(VOICE_FROM_S * 16_000) : round(VOICE_UPTO_S * 16_000)]
    sound = np.concatenate((make_noise(LEAD_S), clip, make_noise(tail_s)))
    encoder = OpusEncoder(16_000, fec=False)
    return [
        RtpPacket(n, 960 * n, 111, 1, encoder.encode(sound[n * 320 : (n + 1) * 320]), 0.02 * n)
        for n in range(len(sound) // 320)
    ]


def events_of(packets: Iterable[RtpPacket]) -> tuple[list[tuple[float, SpeechEvent]], ListenReader]:
    """Every event with the time it was told at; packets come on time."""
    reader = ListenReader(OpusDecoder(16_000), controller=Controller(listener=Listener.LISTEN))
    endpointer = Endpointer(gate=WebRtcVad(), judge=SileroVad(), options=EndpointOptions(wait_ms=WAIT_MS))
    events: list[tuple[float, SpeechEvent]] = []

    def read(now: float) -> None:
        for frame in reader.poll(now=now):
            events.extend((now, event) for event in endpointer.handle_frame(frame, now=now))
        reader.poll_requests(now=now)

    for packet in packets:
        timer = reader.get_timer()
        while timer is not None and timer < packet.arrival:
            reader.handle_timer(now=timer)
            read(timer)
            timer = reader.get_timer()
        reader.handle_packet(packet, now=packet.arrival)
        read(packet.arrival)
    return events, reader


def ends(events: list[tuple[float, SpeechEvent]]) -> list[float]:
    return [told_at for told_at, event in events if isinstance(event, SpeechEnd)]


@pytest.mark.parametrize(
    ("at_s", "lost_s"),
    [(1.2, 0.2), (1.2, 0.6), (1.2, 1.2)],
    ids=["half the wait", "longer than the wait", "three times the wait"],
)
def test_packets_lost_in_mid_word_never_end_a_turn(at_s: float, lost_s: float) -> None:
    lost = range(round(at_s / 0.02), round((at_s + lost_s) / 0.02))
    events, reader = events_of(p for p in spoken_packets(tail_s=1.5) if p.sequence_number not in lost)
    assert reader.stats.concealed_samples == len(lost) * 320
    assert sum(isinstance(event, SpeechStart) for _, event in events) == 1
    assert len(ends(events)) == 1
    assert ends(events)[0] > LEAD_S + VOICE_S, "the turn ends after the voice, not in the gap"


def test_a_voice_that_is_lost_with_the_silence_behind_it_ends_only_by_silence_that_is_heard() -> None:
    gone_from, gone_upto = LEAD_S + VOICE_S - 0.2, LEAD_S + VOICE_S + 1.0
    lost = range(round(gone_from / 0.02), round(gone_upto / 0.02))
    events, _ = events_of(p for p in spoken_packets(tail_s=2.5) if p.sequence_number not in lost)
    assert len(ends(events)) == 1
    assert ends(events)[0] >= gone_upto + 0.1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_tenth_of_all_packets_lost_in_bursts_splits_no_turn(seed: int) -> None:
    random = np.random.default_rng(seed)
    lost: set[int] = set()
    while len(lost) < 12:
        first = int(random.integers(40, 140))
        lost |= set(range(first, first + int(random.integers(1, 6))))
    events, reader = events_of(p for p in spoken_packets(tail_s=1.5) if p.sequence_number not in lost)
    assert reader.stats.concealed_samples > 0
    assert len(ends(events)) == 1
    assert ends(events)[0] > LEAD_S + VOICE_S


def test_an_announced_pause_ends_a_turn_without_waiting_for_the_next_packet() -> None:
    """With DTX nothing comes for 400 ms; the silence is real and must be heard going by."""
    packets = spoken_packets(tail_s=0.3)
    count = len(packets)
    packets[-1] = RtpPacket(count - 1, 960 * (count - 1), 111, 1, b"\x08", 0.02 * (count - 1))
    refresh = RtpPacket(count, 960 * (count + 19), 111, 1, packets[10].payload, 0.02 * (count + 19))
    events, reader = events_of([*packets, refresh])
    assert reader.stats.concealed_samples == 0
    assert len(ends(events)) == 1
    assert ends(events)[0] < refresh.arrival - 0.05
    kinds = {FrameKind.COMFORT_NOISE}
    assert reader.stats.comfort_noise_samples >= 5 * 320, kinds
