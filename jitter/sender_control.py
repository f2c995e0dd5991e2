"""What the sender of speech does about the network that it sends into, from what the far end reports. Pure.

The far end of a call is often a browser: it tells how many packets it received and lacks, not which. From that and the
round trip come the repair to send, how far the far end should hold speech back for it, how long a request to repeat is
worth answering, and how far ahead speech has to be made. One path's plan is judged as the receiver's own is
(`jitter.repair`), on a stand-in path with the measured share and length of losses.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from jitter.loss_level import LossLevel
from jitter.repair import Delays, RepairPlan, needs_ms

MS_PER_CONCEALED_PCT = 100.0
"""What a percent of lost speech is worth in delay, to ears: under 177 ms the E-model (G.107) takes 0.024 points for a
millisecond, and 95 / (1 + Bpl) = 3.6 for the first percent of loss, with G.711's concealment (Bpl 25): 150 ms; Opus
conceals better. libwebrtc's 20 are for what repair does not bring back; here repair is what is chosen."""
MS_PER_OVERHEAD_PCT = 0.05
"""Breaks ties: a copy (108 %) has to earn 5 ms."""
SWITCH_GAIN_MS = 15.0
"""A plan of as many copies replaces another only if it is this much better, or noise would flip them."""
DWELL_S = 5.0
"""And not before the other was tried for so long."""
LESS_REPAIR_AFTER_S = 3.0
"""How long less must have looked enough; with `LossLevel`'s ten seconds a clean path is free of it in 13 s."""
FEC_ALWAYS = RepairPlan(fec=True)
"""In-band FEC costs 4 % and is there when the first packet is lost."""
TARGET_MARGIN_MS = 20.0
"""A frame that comes at its very deadline is late for NetEQ, which decides 10 ms at a time."""
MAX_TARGET_MS = 500.0
TARGET_ROOM_MS = 60.0
"""Past one answer and what it needs to be asked for, waiting longer brings little back."""
LOSS_WORTH_WAITING = 0.01
"""Below this the far end's own judgement of jitter is all its buffer needs."""
TARGET_KEPT_S = 12.0
"""Two waits can be as good as each other; without a shorter round trip the longer is kept for so long."""
RISE_ANYWAY_S = 15.0
TARGET_STEP_MS = 20.0
"""Smaller changes of the far end's target are not worth a message: NetEQ moves in steps of a packet."""
MIN_BITRATE_BPS, MAX_BITRATE_BPS = 24_000, 28_000
COPY_LOSS = 0.03
"""A copy doubles the bits: below this, FEC for 4 % and a few answers do nearly as well."""
HEAVY_LOSS = 0.12
"""Five seconds of at least this much earn more copies; one copy and answers carry 10 %."""
LEAVE_SHARE = 0.67
"""What was begun at a share is kept until two thirds of it."""
NO_COPY: tuple[tuple[int, ...], ...] = ((),)
ONE_COPY: tuple[tuple[int, ...], ...] = ((1,), (2,), (3,), (4,))
MORE_COPIES: tuple[tuple[int, ...], ...] = ((1, 2), (1, 3), (2, 4), (1, 2, 3), (1, 3, 5), (2, 4, 6))
"""Copies that stand apart outlive a burst; the farther ones need as much more buffer."""
CONGESTED_MS = 150.0
"""A queue this long in front of our packets, while they are lost, says that more bits lose more packets."""
PTIME_MS = 20.0
LATE_MARGIN = 1.5
"""The estimate is rough, and copies on a path that loses nothing cost more than a late decision."""
MIN_LEAD_MS = 400.0
LEAD_CHUNKS = 1.8
ANSWER_LIMIT_MS = 1000.0
"""libwebrtc asks for no packet older than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarEndReport:
    """What the far end says of the speech it gets; running totals."""

    packets_received: int
    """Of all kinds, answers to requests included, as W3C's packetsReceived."""
    packets_missing: int
    """Expected less received, as W3C's packetsLost; duplicates may make it negative."""
    packets_resent: int = 0
    """What we had sent again, half a round trip before the report was made."""
    network_lost: int | None = None
    """Packets that did not come by themselves, where the far end knows."""
    jitter_ms: float = 0.0
    spread_ms: float = 0.0
    """95th percentile of delay over the fastest; 0 where unknown."""
    mean_burst: float | None = None
    """Mean length of losses in packets, where the far end knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderOutputs:
    """What to do now."""

    plan: RepairPlan = FEC_ALWAYS
    expected_loss_pct: int = 1
    bitrate_bps: int = MAX_BITRATE_BPS
    receiver_target_ms: float | None = None
    """The far end's jitterBufferTarget; None leaves it to itself."""
    answer_within_ms: float = 400.0
    """A packet this old is not sent again."""
    answer_gap_ms: float = 20.0
    """A packet sent again is not sent once more within this."""
    lead_extra_ms: float = 0.0
    """RTT p90 + p95 of jitter, see `lead_ms`."""

    def lead_ms(self, chunk_ms: float) -> float:
        """Return how far ahead of its sound speech has to be asked for while a piece of `chunk_ms` is being made."""
        return max(MIN_LEAD_MS, LEAD_CHUNKS * chunk_ms + self.lead_extra_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChanged:
    """One output is another now, and why."""

    at: float
    output: str
    before: str
    after: str
    reason: str


class SenderControl:
    """Feed it reports, the round trip and whether we speak; read `outputs`, and `next_event()` for what changed."""

    def __init__(self, *, can_red: bool = True, can_nack: bool = True) -> None:
        """`can_red` and `can_nack`: whether the far end takes copies, and asks for what it misses."""
        self.outputs = SenderOutputs()
        self._can_red = can_red
        self._can_nack = can_nack
        self._level = LossLevel()
        self._expected = self._resent = self._lost = 0
        self._overtaken = 0.0
        self._bursts: deque[int] = deque(maxlen=50)
        self._last_requested: int | None = None
        self._rtt_p50_ms = 0.0
        self._rtt_p90_ms = 0.0
        self._queue_ms = 0.0
        self._jitter_ms = 0.0
        self._spread_ms = 0.0
        self._reported_burst: float | None = None
        self._speaking = False
        self._wait_ms = 0.0
        self._target_needed_at = float("-inf")
        self._target_circumstances = (float("-inf"), 0.0, 0.0)
        self._less_since: float | None = None
        self._plan_since = float("-inf")
        self._events: deque[OutputChanged] = deque(maxlen=256)

    @property
    def loss_share(self) -> float:
        """The level of loss that is acted on, 0..1."""
        return self._level.share

    def handle_report(self, report: FarEndReport, *, now: float) -> None:
        """Take in the far end's report, and act on it."""
        sent, lost = self._totals(report)
        counted = report.network_lost is not None
        self._level.handle_totals(sent=sent, lost=lost, now=now, told_at_once=counted)
        self._jitter_ms = report.jitter_ms
        self._spread_ms = report.spread_ms
        self._reported_burst = report.mean_burst
        self._decide(now)

    def _totals(self, report: FarEndReport) -> tuple[int, int]:
        """Return how many packets were sent and how many of them the network lost, both only ever rising.

        A browser counts answers as received, so what of all that was sent did not come is lost. But it asks for packets
        that are merely late as well, and SRTP drops the answers to those: with differences of delay spread as
        exponentials of the jitter's mean, half of exp(-20 ms / jitter) of the packets are overtaken.
        """
        expected = max(0, report.packets_received + report.packets_missing)
        if report.network_lost is not None:
            return expected, report.network_lost
        new_expected = max(0, expected - self._expected)
        new_resent = max(0, report.packets_resent - self._resent)
        self._expected, self._resent = max(expected, self._expected), report.packets_resent
        overtaken = 0.5 * math.exp(-PTIME_MS / report.jitter_ms) if report.jitter_ms > 1.0 else 0.0
        self._overtaken += min(float(new_resent), LATE_MARGIN * overtaken * new_expected)
        answers = max(0, report.packets_resent - int(self._overtaken))
        self._lost = max(self._lost, report.packets_missing + answers)
        return expected + answers, self._lost

    def handle_requests(self, sequence_numbers: list[int]) -> None:
        """Take in which packets (unwrapped, ascending, each once) the far end lacks: they tell how long losses are."""
        for number in sequence_numbers:
            if self._last_requested is not None and number <= self._last_requested:
                continue
            if self._last_requested == number - 1 and self._bursts:
                self._bursts[-1] += 1
            else:
                self._bursts.append(1)
            self._last_requested = number

    def handle_round_trip(self, *, p50_ms: float, p90_ms: float, queue_ms: float = 0.0, now: float) -> None:
        """Take in the round trip of the media's path; `queue_ms`: one-way delay variation towards the far end, p95."""
        self._rtt_p50_ms, self._rtt_p90_ms, self._queue_ms = p50_ms, p90_ms, queue_ms
        self._decide(now)

    def set_speaking(self, speaking: bool, *, now: float) -> None:
        """Say whether speech is on its way: only then may the far end be asked to hold it back."""
        if speaking != self._speaking:
            self._speaking = speaking
            self._decide(now)

    def next_event(self) -> OutputChanged | None:
        """Return the oldest change that was not read yet, or None."""
        return self._events.popleft() if self._events else None

    def _decide(self, now: float) -> None:
        share = self._level.share
        plan, reason = self._choose(share, now)
        target_ms = self._target_ms(now)
        self._apply(
            replace(
                self.outputs,
                plan=plan,
                expected_loss_pct=self._expected_loss_pct(share),
                bitrate_bps=MIN_BITRATE_BPS if plan.red_offsets or self._congested else MAX_BITRATE_BPS,
                receiver_target_ms=target_ms,
                answer_within_ms=min(ANSWER_LIMIT_MS, max(400.0, 3.5 * self._rtt_p90_ms)),
                answer_gap_ms=max(20.0, 0.9 * self._rtt_p50_ms),
                lead_extra_ms=self._rtt_p90_ms + max(self._spread_ms, 2 * self._jitter_ms),
            ),
            reason,
            now,
        )

    @property
    def _congested(self) -> bool:
        return self._queue_ms > CONGESTED_MS and self._level.share > 0.01

    def _choose(self, share: float, now: float) -> tuple[RepairPlan, str]:
        """More copies at once, fewer after a while, and others of the same number only if they are clearly better."""
        current = self.outputs.plan
        burst = self._mean_burst()
        circumstances = f"loss {100 * share:.1f} %, bursts of {burst:.1f}, RTT {self._rtt_p90_ms:.0f} ms"
        best, cost_ms, wait_ms = self._best_plan(share, burst, now)
        current_cost_ms, current_wait_ms = self._cost(current, share, burst)
        more = (len(best.red_offsets), best.nack) > (len(current.red_offsets), current.nack)
        less = len(best.red_offsets) < len(current.red_offsets)
        if not less or self._less_since is None:
            self._less_since = now if less else None
        rested = now - self._plan_since >= DWELL_S
        if less:
            changes = self._congested or now - (self._less_since or now) >= LESS_REPAIR_AFTER_S
        else:
            changes = more or (best != current and rested and current_cost_ms - cost_ms > SWITCH_GAIN_MS)
        if not changes:
            self._wait_ms = current_wait_ms
            return current, circumstances
        self._plan_since, self._less_since, self._wait_ms = now, None, wait_ms
        return best, circumstances

    def _best_plan(self, share: float, burst: float, now: float) -> tuple[RepairPlan, float, float]:
        held = len(self.outputs.plan.red_offsets)
        sets: tuple[tuple[int, ...], ...] = NO_COPY
        if self._can_red and not self._congested:
            if self._level.sustained(now=now) > HEAVY_LOSS or (held > 1 and share > LEAVE_SHARE * HEAVY_LOSS):
                sets = MORE_COPIES
            elif share >= COPY_LOSS or (held and share > LEAVE_SHARE * COPY_LOSS):
                sets = ONE_COPY
        plans = [RepairPlan(fec=True, nack=self._can_nack, red_offsets=offsets) for offsets in sets]
        judged = [(*self._cost(plan, share, burst), plan) for plan in plans]
        cost_ms, wait_ms, plan = min(judged, key=lambda entry: entry[0])
        return plan, cost_ms, wait_ms

    def _cost(self, plan: RepairPlan, share: float, burst: float) -> tuple[float, float]:
        return _judge(
            plan,
            loss_pct=round(100 * share) if share > 0.02 else round(200 * share) / 2,
            burst=round(2 * burst) / 2,
            rtt_ms=round(self._rtt_p90_ms / 40) * 40.0,
            jitter_ms=round(self._jitter_ms / 10) * 10.0,
        )

    def _expected_loss_pct(self, share: float) -> int:
        """Return 1, 5, 10, 15 or 20, the next above the level; what held stays within 4 points of it."""
        held = self.outputs.expected_loss_pct
        if share < 0.01 or abs(100 * share - held) > 4.0 or held == 1:
            return 1 if share < 0.01 else min(20, 5 * math.ceil(20 * share))
        return held

    def _mean_burst(self) -> float:
        if self._reported_burst is not None:
            return max(1.0, self._reported_burst)
        if len(self._bursts) < 5:
            return 1.0
        return sum(self._bursts) / len(self._bursts)

    def _target_ms(self, now: float) -> float | None:
        """Return what the far end should hold: up at once, down with the round trip or when less was enough."""
        repairs = self._level.share >= LOSS_WORTH_WAITING or self.outputs.plan.red_offsets
        if not self._speaking or not repairs or self._wait_ms <= 0:
            return None
        target_ms = min(MAX_TARGET_MS, self._rtt_p90_ms + TARGET_ROOM_MS, self._wait_ms + TARGET_MARGIN_MS)
        before = self.outputs.receiver_target_ms
        if before is None or (target_ms > before + TARGET_STEP_MS and self._may_rise(now)):
            return self._set_target(target_ms, now)
        if target_ms > before - TARGET_STEP_MS:
            self._target_needed_at = now
        shorter = self._rtt_p90_ms < self._target_circumstances[2] - TARGET_STEP_MS
        falls = shorter or now - self._target_needed_at > TARGET_KEPT_S
        return self._set_target(target_ms, now) if falls else before

    def _set_target(self, target_ms: float, now: float) -> float:
        self._target_needed_at = now
        self._target_circumstances = (now, self._level.share, self._rtt_p90_ms)
        return target_ms

    def _may_rise(self, now: float) -> bool:
        """While loss and round trip only fall, fewer copies raise nothing: what would need it is on its way out."""
        since, share, rtt_ms = self._target_circumstances
        return self._level.share > share or self._rtt_p90_ms > rtt_ms + TARGET_STEP_MS or now - since > RISE_ANYWAY_S

    def _apply(self, outputs: SenderOutputs, reason: str, now: float) -> None:
        before, self.outputs = self.outputs, outputs
        for name in ("plan", "expected_loss_pct", "bitrate_bps", "receiver_target_ms"):
            old, new = getattr(before, name), getattr(outputs, name)
            if old != new:
                self._events.append(
                    OutputChanged(at=now, output=name, before=_show(old), after=_show(new), reason=reason)
                )


def _show(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) else "" if value is None else str(value)


@lru_cache(maxsize=4096)
def _judge(plan: RepairPlan, *, loss_pct: float, burst: float, rtt_ms: float, jitter_ms: float) -> tuple[float, float]:
    """Return (cost, best wait) of `plan` in ms: the wait, what is still concealed after it, and the bits."""
    delays = _stand_in(loss_pct, burst, jitter_ms)
    needs = np.sort(needs_ms(delays, plan, ptime_ms=20.0, rtt_ms=rtt_ms, ask_after_ms=20.0 + 2 * jitter_ms))
    count = len(needs)
    waits = np.append(0.0, needs[np.isfinite(needs)])
    concealed_pct = 100 * (1 - np.searchsorted(needs, waits, side="right") / count)
    costs = waits + MS_PER_CONCEALED_PCT * concealed_pct
    best = int(np.argmin(costs))
    return float(costs[best]) + MS_PER_OVERHEAD_PCT * plan.overhead_pct(loss_pct / 100), float(waits[best])


@lru_cache(maxsize=256)
def _stand_in(loss_pct: float, burst: float, jitter_ms: float, packets: int = 1500) -> Delays:
    """Return half a minute of a path with these losses (Gilbert) and exponential extra delays, seeded."""
    random = np.random.default_rng(2198)
    share = min(0.95, loss_pct / 100)
    delays = random.exponential(jitter_ms, packets) if jitter_ms else np.zeros(packets)
    if share <= 0:
        return delays
    leave = min(1 / max(1.0, burst), 1 - share)
    cycles = int(packets * share * leave) + 50
    runs = np.empty(2 * cycles, np.int64)
    runs[0::2] = random.geometric(share * leave / (1 - share), cycles)
    runs[1::2] = random.geometric(leave, cycles)
    lost = np.resize(np.repeat(np.arange(2 * cycles) % 2 == 1, runs), packets)
    delays[lost] = np.inf
    return delays
