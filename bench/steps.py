"""How everything the controller puts out follows a step of the path: when, and how often it turns back."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from bench.intervals import quantile_interval
from bench.lines import Callee, Exchange, lines
from impair.relay_process import RelayProcess
from peer.engines.base import Samples

RATE_HZ = 48_000
SAMPLE_S = 0.05
SETTLE_S = 12.0
LEAD_IN_S = 2.0
"""How much of what was before a step is kept with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One thing the controller puts out, as a number; `grain`: the least change that counts as one."""

    name: str
    unit: str
    grain: float
    read: Callable[[Callee], float]


OUTPUTS: tuple[Output, ...] = (
    Output(name="round trip, p90", unit="ms", grain=8.0, read=lambda c: c.network.rtt_ms or 0.0),
    Output(
        name="copies sent", unit="", grain=0.5, read=lambda c: float(len(c.network.sender.outputs.plan.red_offsets))
    ),
    Output(name="expected loss", unit="%", grain=0.5, read=lambda c: float(c.network.sender.outputs.expected_loss_pct)),
    Output(name="bitrate", unit="kb/s", grain=0.5, read=lambda c: c.network.sender.outputs.bitrate_bps / 1000),
    Output(
        name="far end's buffer", unit="ms", grain=1.0, read=lambda c: c.network.sender.outputs.receiver_target_ms or 0.0
    ),
    Output(name="answers until", unit="ms", grain=20.0, read=lambda c: c.network.sender.outputs.answer_within_ms),
    Output(name="prepared ahead of a chunk of 1 s", unit="ms", grain=10.0, read=lambda c: c.network.lead_ms(1000.0)),
    Output(
        name="our hole deadline", unit="ms", grain=1.0, read=lambda c: c.connection.controller.decision.hole_deadline_ms
    ),
    Output(name="copies asked for", unit="", grain=0.5, read=lambda c: float(len(c.network.asked.red_offsets))),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKind:
    """A pair of paths to change between, and what tells that the change was followed."""

    name: str
    file_name: str
    profiles: tuple[str, str]
    output: str
    up: Callable[[float], bool]
    down: Callable[[float], bool]
    hold_up_s: float = 14.0
    hold_down_s: float = 20.0
    cycles: int = 2
    """With five calls, ten steps each way."""


KINDS: tuple[StepKind, ...] = (
    StepKind(
        name="round trip 40 to 200 ms",
        file_name="rtt",
        profiles=("rtt40", "rtt200"),
        output="round trip, p90",
        up=lambda value: value >= 180,
        down=lambda value: value <= 60,
        hold_down_s=14.0,
    ),
    StepKind(
        name="round trip 40 to 200 ms, 5 % lost throughout",
        file_name="rtt_at_loss",
        profiles=("rtt40_loss5", "rtt200_loss5"),
        output="round trip, p90",
        up=lambda value: value >= 180,
        down=lambda value: value <= 60,
    ),
    StepKind(
        name="loss 0 to 10 %",
        file_name="loss",
        profiles=("rtt40", "rtt40_loss10"),
        output="copies sent",
        up=lambda value: value >= 1,
        down=lambda value: value == 0,
        cycles=4,
    ),
)


@dataclass(slots=True, kw_only=True)
class Step:
    """What the outputs of one call were from LEAD_IN_S before one step until the next."""

    upwards: bool
    times_s: list[float]
    """Since the step."""
    values: dict[str, list[float]]

    def reached_s(self, name: str, reached: Callable[[float], bool]) -> float | None:
        """Return when output `name` first was as asked after the step, None for never."""
        pairs = zip(self.times_s, self.values[name], strict=True)
        return next((time_s for time_s, value in pairs if time_s >= 0 and reached(value)), None)

    def turns(self, output: Output) -> int:
        """Return how often the output changed direction after the step."""
        values = [v for t, v in zip(self.times_s, self.values[output.name], strict=True) if t >= 0]
        return count_turns(values, grain=max(output.grain, 0.1 * (max(values) - min(values))))


def count_turns(values: Sequence[float], *, grain: float) -> int:
    """Return how often `values` change direction, by at least `grain`."""
    low = high = values[0]
    direction, turns = 0, 0
    for value in values:
        low, high = min(low, value), max(high, value)
        if direction <= 0 and value - low >= grain:
            turns += direction < 0
            direction, high = 1, value
        elif direction >= 0 and high - value >= grain:
            turns += direction > 0
            direction, low = -1, value
        if direction > 0:
            low = high
        elif direction < 0:
            high = low
    return turns


@dataclass(slots=True, kw_only=True)
class Followed:
    """All steps of one kind, and the longest that media stood still in any call."""

    kind: StepKind
    steps: list[Step] = field(default_factory=list)
    longest_gap_s: float = 0.0


async def follow(kind: StepKind, voice: Samples, *, calls: int) -> Followed:
    """Step up and down `kind.cycles` times in `calls` calls at once; speech goes both ways all the time."""
    profiles = kind.profiles
    followed = Followed(kind=kind)
    async with (
        Exchange() as exchange,
        RelayProcess(profiles[0], seed=2) as relay,
        lines(exchange, relay, calls) as pairs,
    ):
        seconds = SETTLE_S + kind.cycles * (kind.hold_up_s + kind.hold_down_s) + 10
        speech = np.tile(voice, 1 + int(seconds * RATE_HZ / len(voice)))
        for line, callee in pairs:
            for connection in (line.connection, callee.connection):
                connection.playout.capture_frame(speech)
        callees = [callee for _, callee in pairs]
        await asyncio.sleep(SETTLE_S - LEAD_IN_S)
        before = await _record(callees, LEAD_IN_S)
        for cycle in range(kind.cycles):
            for upwards, profile, hold_s in (
                (True, profiles[1], kind.hold_up_s),
                (False, profiles[0], kind.hold_down_s),
            ):
                await relay.set_profile(profile, seed=3 + 2 * cycle + upwards)
                after = await _record(callees, hold_s)
                followed.steps += [_step(index, before, after, upwards=upwards) for index in range(calls)]
                before = after
        followed.longest_gap_s = max(_longest_gap(callee) for callee in callees)
    return followed


@dataclass(slots=True)
class _Record:
    began: float
    times: list[float]
    values: list[list[dict[str, float]]]


async def _record(callees: Sequence[Callee], seconds: float) -> _Record:
    """Read every output of every call, twenty times a second."""
    loop = asyncio.get_running_loop()
    record = _Record(began=loop.time(), times=[], values=[[] for _ in callees])
    while (now := loop.time()) < record.began + seconds:
        record.times.append(now)
        for values, callee in zip(record.values, callees, strict=True):
            values.append({output.name: output.read(callee) for output in OUTPUTS})
        await asyncio.sleep(SAMPLE_S)
    return record


def _step(index: int, before: _Record, after: _Record, *, upwards: bool) -> Step:
    rows = [
        (at - after.began, values)
        for record in (before, after)
        for at, values in zip(record.times, record.values[index], strict=True)
        if at >= after.began - LEAD_IN_S
    ]
    return Step(
        upwards=upwards,
        times_s=[at for at, _ in rows],
        values={output.name: [values[output.name] for _, values in rows] for output in OUTPUTS},
    )


def _longest_gap(callee: Callee) -> float:
    """Return the longest time between two packets, seconds."""
    arrivals = [arrival for arrival, _ in callee.packets]
    return max((after - before for before, after in pairwise(arrivals)), default=float("inf"))


def summarise(followed: Followed) -> dict[str, Any]:
    """Return medians of when the steps were followed, how often each output turned at most, and the longest gap."""
    kind = followed.kind
    up = [step.reached_s(kind.output, kind.up) for step in followed.steps if step.upwards]
    down = [step.reached_s(kind.output, kind.down) for step in followed.steps if not step.upwards]
    return {
        "step": kind.name,
        "up_s": _median(up),
        "down_s": _median(down),
        "n": len(up),
        "up_interval_s": _interval(up),
        "down_interval_s": _interval(down),
        "turns": {output.name: max(step.turns(output) for step in followed.steps) for output in OUTPUTS},
        "turned_twice": {output.name: sum(step.turns(output) > 1 for step in followed.steps) for output in OUTPUTS},
        "longest_stall_s": followed.longest_gap_s,
    }


def print_row(row: dict[str, Any]) -> None:
    """Print one kind of step."""
    twice = "; ".join(
        f"{name} turned up to {row['turns'][name]} times, in {count} steps more than once"
        for name, count in row["turned_twice"].items()
        if count
    )
    print(
        f"  {row['step']}: up after {row['up_s']} s {row['up_interval_s']}, down after {row['down_s']} s "
        f"{row['down_interval_s']}, n {row['n']}; {twice or 'no output turned more than once a step'}; "
        f"longest time without a packet {row['longest_stall_s']:.2f} s",
        flush=True,
    )


def _reached(values: Sequence[float | None]) -> list[float]:
    return [float("inf") if value is None else value for value in values]


def _interval(values: Sequence[float | None]) -> list[float | None]:
    """Return the 95 % interval of the median; an edge that was never reached is None, since JSON knows no infinity."""
    return [None if edge == float("inf") else round(edge, 2) for edge in quantile_interval(_reached(values), 0.5)]


def _median(values: Sequence[float | None]) -> float | None:
    middle = statistics.median(_reached(values))
    return None if middle == float("inf") else round(middle, 2)
