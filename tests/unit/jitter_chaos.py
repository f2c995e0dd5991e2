"""Arbitrary packet sequences, and the walk of a reader through them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from jitter.frame import AudioFrame
from jitter.listen import ListenReader
from jitter.packet import RtpPacket
from jitter.playout import PlayoutReader
from jitter.red import build_red
from tests.unit.jitter_fakes import payload

RED = 63


@dataclass(frozen=True, slots=True)
class Step:
    """One packet of a hostile sender or network."""

    index: int
    wait_ms: float
    ms: int = 20
    fec: bool = False
    corrupt: bool = False
    ssrc: int = 1
    skip_ticks: int = 0
    red: bool = False
    garbage: bytes | None = None


steps = st.lists(
    st.builds(
        Step,
        index=st.one_of(st.integers(0, 60), st.integers(0, 300), st.sampled_from([2999, 3001, 32_767, 32_768, 65_535])),
        wait_ms=st.one_of(st.just(20.0), st.just(0.0), st.floats(0, 300)),
        ms=st.sampled_from([20, 20, 20, 20, 10, 60, 120]),
        fec=st.booleans(),
        corrupt=st.booleans(),
        ssrc=st.sampled_from([1, 1, 1, 1, 1, 2]),
        skip_ticks=st.sampled_from([0, 0, 0, 0, 480, 19_200, 10_000_000, 2**31]),
        red=st.booleans(),
        garbage=st.one_of(st.none(), st.none(), st.none(), st.binary(max_size=12)),
    ),
    max_size=60,
)


def random_steps(random: Random, count: int) -> list[Step]:
    """The like of `steps` without hypothesis's cost, mostly a stream that moves on."""
    made = []
    at = 0
    for _ in range(count):
        at += random.choice([1, 1, 1, 1, 1, 1, 0, 2, 3, -1, -3, 7])
        if random.random() < 0.002:
            at += random.choice([500, 3000, 20_000, -40])
        made.append(
            Step(
                index=max(at, 0),
                wait_ms=random.choice([20.0, 20.0, 20.0, 0.0, 5.0, 60.0, 300.0 * random.random()]),
                ms=20 if random.random() < 0.98 else random.choice([10, 40, 60, 120]),
                fec=random.random() < 0.4,
                corrupt=random.random() < 0.01,
                ssrc=1 if random.random() < 0.999 else random.choice([1, 2, 3]),
                skip_ticks=0 if random.random() < 0.995 else random.choice([480, 19_200, 10_000_000, 2**31]),
                red=random.random() < 0.3,
                garbage=random.randbytes(random.randrange(9)) if random.random() < 0.01 else None,
            )
        )
    return made


def as_packets(made: list[Step]) -> list[RtpPacket]:
    """The packets of the steps, in order of arrival."""
    packets = []
    now = 0.0
    for step in made:
        now += step.wait_ms / 1000
        body = payload(step.index, ms=step.ms, fec=step.fec, corrupt=step.corrupt)
        if step.red:
            copies = [(offset * step.ms * 48, payload(max(step.index - offset, 0), ms=step.ms)) for offset in (1, 3)]
            body = build_red(payload_type=111, primary=body, copies=copies)
        packets.append(
            RtpPacket(
                sequence_number=(65_500 + step.index) & 0xFFFF,
                timestamp=(2**32 - 9000 + step.index * 20 * 48 + step.skip_ticks) & 0xFFFFFFFF,
                payload_type=RED if step.red else 111,
                ssrc=step.ssrc,
                payload=body if step.garbage is None else step.garbage,
                arrival=now,
            )
        )
    return packets


def listen_through(reader: ListenReader, packets: list[RtpPacket]) -> list[AudioFrame]:
    """All frames a listener gets, its timers served as a loop would."""
    frames: list[AudioFrame] = []
    for packet in packets:
        timer = reader.get_timer()
        for _ in range(100):
            if timer is None or timer >= packet.arrival:
                break
            reader.handle_timer(now=timer)
            frames += reader.poll(now=timer)
            reader.poll_requests(now=timer)
            timer = reader.get_timer()
        reader.handle_packet(packet, now=packet.arrival)
        assert len(reader._buffer) <= 200
        assert len(reader._intake.planner._missing) <= 250
        frames += reader.poll(now=packet.arrival)
        reader.poll_requests(now=packet.arrival)
    return frames


def play_through(reader: PlayoutReader, packets: list[RtpPacket], *, frame_s: float = 0.01) -> list[AudioFrame]:
    """All frames a loudspeaker gets, and half a second more."""
    frames: list[AudioFrame] = []
    tick = 0
    for packet in packets:
        while tick * frame_s < packet.arrival:
            reader.poll_requests(now=tick * frame_s)
            frames.append(reader.get_audio(now=tick * frame_s))
            tick += 1
        reader.handle_packet(packet, now=packet.arrival)
        assert len(reader._intake.buffer) <= 200
    for _ in range(50):
        frames.append(reader.get_audio(now=tick * frame_s))
        tick += 1
    return frames
