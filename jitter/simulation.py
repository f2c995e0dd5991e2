"""A trace of arrivals through a reader, in virtual time: the network, the sender's repair and its price. Pure.

Nothing reads ahead: a request leaves when the reader asks, is lost if the trace's packet of that moment is lost, and
its answer comes an RTT later plus the excess delay of a packet drawn from the trace, or is lost with that packet. A
change at the sender acts on packets sent half an RTT later. FEC and RED ride on the trace's own packets.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from jitter.controller import Controller
from jitter.frame import AudioFrame
from jitter.listen import ListenReader
from jitter.packet import RtpPacket
from jitter.playout import PlayoutReader
from jitter.red import build_red
from jitter.repair import FEC_OVERHEAD_PCT, RED_BLOCK_BYTES, REQUEST_BYTES, RETRANSMISSION_BYTES, RepairPlan

PAYLOAD_TYPE = 111
RED_PAYLOAD_TYPE = 63
SSRC = 0x5EED
TICKS_PER_MS = 48
PLAYOUT_FRAME_MS = 10
GIVE_UP_S = 1.0
"""After the last packet, as long as answers may still be on their way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePacket:
    """One row of a trace."""

    sequence: int
    sent_ms: float
    arrival_ms: float | None
    """None is lost."""
    size_bytes: int = 60
    ptime_ms: int = 20


class Speech(Protocol):
    """Where the payload of each packet comes from."""

    def payload(self, index: int, *, fec: bool) -> bytes:
        """Return the payload of packet `index`, with a copy of the frame before it if the sender has `fec` on."""
        ...


@dataclass(slots=True)
class Costs:
    """Bytes sent beyond the payload."""

    requests: int = 0
    retransmitted_bytes: int = 0


@dataclass(slots=True)
class SenderPlans:
    """Which plan the sender follows when."""

    since_s: list[float] = field(default_factory=list)
    plans: list[RepairPlan] = field(default_factory=list)

    def set(self, plan: RepairPlan, *, at: float) -> None:
        """Follow `plan` from `at` on; times must not go back."""
        self.since_s.append(at)
        self.plans.append(plan)

    def at(self, when: float) -> RepairPlan:
        """Return the plan in force at `when`, seconds."""
        return self.plans[max(bisect_right(self.since_s, when) - 1, 0)]


class Simulation:
    """Runs one trace through one reader."""

    def __init__(
        self,
        trace: Sequence[TracePacket],
        reader: ListenReader | PlayoutReader,
        controller: Controller,
        speech: Speech,
        *,
        rtt_ms: float,
        seed: int = 0,
        start_plan: RepairPlan,
    ) -> None:
        """`start_plan` is what the sender does until the controller's first other wish has reached it."""
        self._trace = trace
        self._reader = reader
        self._controller = controller
        self._speech = speech
        self._rtt_s = rtt_ms / 1000
        self._random = Random(seed)
        self._sent_s = [packet.sent_ms / 1000 for packet in trace]
        self.timestamps = media_timestamps(trace)
        self._first_sequence = trace[0].sequence
        self._fastest_s = min(p.arrival_ms - p.sent_ms for p in trace if p.arrival_ms is not None) / 1000
        self._by_wire = {packet.sequence & 0xFFFF: index for index, packet in enumerate(trace)}
        self._wraps = len(trace) > 0x8000
        self._answers: list[tuple[float, int]] = []
        self._highest_index = 0
        self._plan = start_plan
        self.plans = SenderPlans()
        self.plans.set(start_plan, at=-1e9)
        self.costs = Costs()
        self.output: Callable[[AudioFrame], None] | None = None
        """Called with each AudioFrame put out, if anyone wants it."""

    def run(self) -> None:
        """Run the whole trace."""
        self._controller.handle_round_trip(rtt_ms=self._rtt_s * 1000, now=0.0)
        arrivals = sorted(
            (packet.arrival_ms / 1000, index)
            for index, packet in enumerate(self._trace)
            if packet.arrival_ms is not None
        )
        if isinstance(self._reader, PlayoutReader):
            self._run_playout(self._reader, arrivals)
        else:
            self._run_listen(self._reader, arrivals)

    def _run_playout(self, reader: PlayoutReader, arrivals: list[tuple[float, int]]) -> None:
        frame_s = PLAYOUT_FRAME_MS / 1000
        start = arrivals[0][0] + self._random.random() * frame_s
        end = arrivals[-1][0] + GIVE_UP_S
        frames = 0
        output, handle = self.output, self._deliver
        upcoming, at, count = arrivals[0][0], 0, len(arrivals)
        answers = self._answers
        while True:
            now = start + frames * frame_s
            while True:
                timer = reader.get_timer()
                until = now if timer is None or timer > now else timer
                if upcoming <= until and (not answers or upcoming <= answers[0][0]):
                    handle(arrivals[at][1], upcoming)
                    at += 1
                    upcoming = arrivals[at][0] if at < count else float("inf")
                elif answers and answers[0][0] <= until:
                    self._deliver_answer(*heapq.heappop(answers))
                elif until < now:
                    self._ask(reader.poll_requests(now=until), until)
                else:
                    break
            frame = reader.get_audio(now=now)
            if output is not None:
                output(frame)
            frames += 1
            if at >= count and (now > end or reader.is_empty):
                return

    def _run_listen(self, reader: ListenReader, arrivals: list[tuple[float, int]]) -> None:
        output, answers = self.output, self._answers
        at, count = 0, len(arrivals)
        end = arrivals[-1][0] + GIVE_UP_S
        while True:
            timer = reader.get_timer()
            upcoming = arrivals[at][0] if at < count else float("inf")
            answer = answers[0][0] if answers else float("inf")
            now = min(upcoming, answer)
            if timer is not None and timer < now:
                now = timer
                if now > end:
                    break
                reader.handle_timer(now=now)
                self._ask(reader.poll_requests(now=now), now)
            elif now == float("inf"):
                break
            elif upcoming <= answer:
                self._deliver(arrivals[at][1], now)
                at += 1
                self._ask(reader.poll_requests(now=now), now)
            else:
                self._deliver_answer(*heapq.heappop(answers))
            for frame in reader.poll(now=now):
                if output is not None:
                    output(frame)

    def _deliver(self, index: int, now: float) -> None:
        """Hand the trace's own packet over, with what the sender's plan put on it."""
        self._highest_index = max(self._highest_index, index)
        plan = self.plans.at(self._sent_s[index])
        payload = self._speech.payload(index, fec=plan.fec)
        payload_type = PAYLOAD_TYPE
        if plan.red_offsets:
            timestamp = self.timestamps[index]
            copies = [
                (timestamp - self.timestamps[index - offset], self._speech.payload(index - offset, fec=False))
                for offset in plan.red_offsets
                if offset <= index
            ]
            payload = build_red(payload_type=PAYLOAD_TYPE, primary=payload, copies=copies)
            payload_type = RED_PAYLOAD_TYPE
        self._hand_over(index, payload, payload_type, now)
        self._follow(now)

    def _deliver_answer(self, now: float, index: int) -> None:
        self._hand_over(index, self._speech.payload(index, fec=False), PAYLOAD_TYPE, now)

    def _hand_over(self, index: int, payload: bytes, payload_type: int, now: float) -> None:
        packet = RtpPacket(
            self._trace[index].sequence & 0xFFFF,
            self.timestamps[index] & 0xFFFFFFFF,
            payload_type,
            SSRC,
            payload,
            now,
        )
        self._reader.handle_packet(packet, now=now)

    def _follow(self, now: float) -> None:
        plan = self._controller.decision.plan
        if plan is not self._plan and plan != self._plan:
            self.plans.set(plan, at=now + self._rtt_s / 2)
        self._plan = plan

    def _ask(self, sequences: list[int], now: float) -> None:
        """Send one request for each of `sequences` (16 bit)."""
        for sequence in sequences:
            index = self._index(sequence)
            self.costs.requests += 1
            if index is None or self._lost_at(now) or self._sent_s[index] > now + self._rtt_s / 2:
                continue
            self.costs.retransmitted_bytes += self._trace[index].size_bytes + RETRANSMISSION_BYTES
            drawn = self._trace[self._random.randrange(len(self._trace))]
            if drawn.arrival_ms is not None:
                excess_s = (drawn.arrival_ms - drawn.sent_ms) / 1000 - self._fastest_s
                heapq.heappush(self._answers, (now + self._rtt_s + excess_s, index))

    def _index(self, sequence: int) -> int | None:
        """Return which packet of the trace a 16-bit sequence number means, near the newest; None for none."""
        if not self._wraps:
            return self._by_wire.get(sequence)
        near = self._trace[self._highest_index].sequence
        step = (sequence - near) & 0xFFFF
        index = near + (step - 0x10000 if step >= 0x8000 else step) - self._first_sequence
        return index if 0 <= index < len(self._trace) else None

    def _lost_at(self, now: float) -> bool:
        index = bisect_right(self._sent_s, now) - 1
        return self._trace[max(index, 0)].arrival_ms is None

    def overhead_pct(self) -> float:
        """Return what repair cost in % of the payload of all packets sent."""
        payload = sum(packet.size_bytes for packet in self._trace)
        extra = self.costs.requests * REQUEST_BYTES + float(self.costs.retransmitted_bytes)
        for index, (packet, sent) in enumerate(zip(self._trace, self._sent_s, strict=True)):
            plan = self.plans.at(sent)
            if plan.fec:
                extra += packet.size_bytes * FEC_OVERHEAD_PCT / 100
            for offset in plan.red_offsets:
                if offset <= index:
                    extra += self._trace[index - offset].size_bytes + RED_BLOCK_BYTES
        return 100 * extra / payload


def media_timestamps(trace: Sequence[TracePacket]) -> list[int]:
    """Return the media time of each packet, ticks: packet times add up, and a pause in sending shows as a gap."""
    timestamps = []
    timestamp = 0
    for index, packet in enumerate(trace):
        if index:
            before = trace[index - 1]
            ptime = before.ptime_ms * (packet.sequence - before.sequence)
            pause_ms = packet.sent_ms - before.sent_ms - ptime
            timestamp += round(ptime * TICKS_PER_MS)
            if pause_ms >= packet.ptime_ms:
                timestamp += round(pause_ms / packet.ptime_ms) * packet.ptime_ms * TICKS_PER_MS
        timestamps.append(timestamp)
    return timestamps
