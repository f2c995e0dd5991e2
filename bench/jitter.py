"""The jitter buffer on nine networks, beside NetEQ, aiortc and the best fixed deadline.

    python -m bench.jitter [--quick] [--json] [--seed N]

Each row replays fresh seeds (10 of 10 minutes; --quick: 3 of 90 s) of a path of `impair.profiles` through
`jitter.replay`. NetEQ's figures were recorded once (docs/jitter.md says how); they are no part of the run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.aiortc_buffer import replay_aiortc
from bench.jitter_cost import ASKED as ASKED_COST
from bench.jitter_cost import Cost, measure_costs
from bench.oracle import best_fixed_delay_ms
from impair.link import transit
from impair.profiles import COMPARED_PATHS, find_profile
from jitter.replay import replay
from jitter.simulation import TracePacket

PTIME_MS = 20
PACKETS_PER_MINUTE = 60_000 // PTIME_MS
NETEQ = {
    "clean": (30, 0.00),
    "jitter10": (58, 0.02),
    "jitter30": (110, 0.06),
    "loss1": (23, 1.05),
    "loss5": (20, 4.53),
    "loss5_jitter30": (83, 4.81),
    "burst5x3_jitter20": (68, 5.34),
    "spike200": (148, 0.83),
    "loss20_jitter40": (103, 18.5),
}
"""Chromium 156, 60 s of speech from a plain aiortc sender: mean delay in ms, concealed in %."""
ASKED = {
    "clean": (20, 0.05, 5),
    "jitter10": (38, 0.3, 5),
    "jitter30": (92, 0.3, 5),
    "loss1": (65, 0.1, 15),
    "loss5": (30, 0.5, 120),
    "loss5_jitter30": (75, 0.8, 120),
    "burst5x3_jitter20": (115, 1.0, 120),
    "spike200": (95, 1.6, 5),
    "loss20_jitter40": (130, 3.0, 350),
}
"""What playout with repair is to keep within: delay in ms, concealed in %, overhead in %."""
ASKED_LISTENING = {
    "clean": (0.0, 0.0, 0.0),
    "loss5": (3, 20, 0.3),
    "loss5_jitter30": (10, 50, 0.5),
    "burst5x3_jitter20": (15, 60, 1.5),
}
"""The same for listening: mean and 95th percentile of delay in ms, concealed in %."""
ORACLE_PATHS = ("clean", "jitter10", "jitter30")
SETTINGS: tuple[tuple[str, str, str], ...] = (
    ("playout", "auto", "auto"),
    ("playout", "auto", "none"),
    ("playout", "quantile", "auto"),
    ("playout", "formula", "auto"),
    ("listen", "auto", "auto"),
    ("listen", "auto", "none"),
    ("aiortc", "aiortc", "none"),
)
QUICK_SETTINGS: tuple[tuple[str, str, str], ...] = (SETTINGS[0], SETTINGS[1], SETTINGS[4])
FIGURES = (
    "mean_delay_ms",
    "p95_delay_ms",
    "concealed_pct",
    "overhead_pct",
    "unused_pct",
    "accelerated_pct",
    "expanded_pct",
    "late_pct",
)


@dataclass(frozen=True, slots=True)
class Job:
    """One seed of one path, under every setting."""

    path: str
    settings: tuple[tuple[str, str, str], ...]
    seed: int
    packets: int


def make_trace(path: str, *, seed: int, packets: int) -> list[TracePacket]:
    """Return one direction of a path as a trace: `packets` packets of 20 ms."""
    sent_ms = [float(PTIME_MS * index) for index in range(packets)]
    arrivals = transit(find_profile(path).stages("down", media="down"), [ms / 1000 for ms in sent_ms], seed=seed)
    return [
        TracePacket(sequence=index, sent_ms=sent, arrival_ms=None if arrival is None else arrival * 1000)
        for index, (sent, arrival) in enumerate(zip(sent_ms, arrivals, strict=True))
    ]


def rtt_ms(path: str) -> float:
    """Return the undisturbed round trip of a path, ms."""
    sent = [0.0]
    there = transit(find_profile(path).stages("down", media="up"), sent)[0]
    assert there is not None
    return 2000 * there


def run(job: Job) -> list[dict[str, float]]:
    """Replay the same trace under each setting."""
    trace = make_trace(job.path, seed=job.seed, packets=job.packets)
    return [_replay(job, trace, *setting) for setting in job.settings]


def _replay(job: Job, trace: list[TracePacket], reader: str, policy: str, repair: str) -> dict[str, float]:
    """Return the figures of one replay, with the delay of the best fixed deadline at the same late loss."""
    if reader == "aiortc":
        return replay_aiortc(trace)
    figures = replay(trace, reader=reader, policy=policy, repair=repair, rtt_ms=rtt_ms(job.path), seed=job.seed)
    if reader == "playout" and job.path in ORACLE_PATHS:
        figures["oracle_delay_ms"] = best_fixed_delay_ms(trace, late_pct=figures["concealed_pct"])
    return figures


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and its 95 % bootstrap interval."""
    sample = np.asarray(values)
    if len(sample) == 1:
        return float(sample[0]), float(sample[0]), float(sample[0])
    drawn = np.random.default_rng(0).choice(sample, (2000, len(sample)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return float(np.median(sample)), float(low), float(high)


def summarise(jobs: Sequence[Job], results: Sequence[list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Return one row a path and setting, medians with their intervals."""
    rows = []
    found: dict[tuple[str, str, str, str], list[dict[str, float]]] = {}
    for job, figures in zip(jobs, results, strict=True):
        for setting, each_setting in zip(job.settings, figures, strict=True):
            found.setdefault((job.path, *setting), []).append(each_setting)
    for key, mine in found.items():
        row: dict[str, Any] = dict(zip(("path", "reader", "policy", "repair"), key, strict=True))
        for figure in (*FIGURES, "oracle_delay_ms"):
            if figure in mine[0]:
                median, low, high = median_interval([each[figure] for each in mine])
                row[figure] = round(median, 3)
                row[f"{figure}_ci95"] = [round(low, 3), round(high, 3)]
        row["n"] = len(mine)
        rows.append(row)
    return rows


def verdict(row: dict[str, Any]) -> str:
    """Return what a row was asked to keep within and whether it did."""
    path, delay, concealed = row["path"], row["mean_delay_ms"], row["concealed_pct"]
    if row["reader"] == "playout" and row["repair"] == "auto" and row["policy"] == "auto":
        most = ASKED[path]
        kept = delay <= most[0] and concealed <= most[1] and row["overhead_pct"] <= most[2]
        kept &= path == "spike200" or row["accelerated_pct"] + row["expanded_pct"] <= 3.0
        return f"{'ok' if kept else 'MISSED'}  asked {most[0]} / {most[1]} / {most[2]}"
    if row["reader"] == "playout" and row["policy"] == "auto":
        ours, neteq = delay + 20 * concealed, NETEQ[path][0] + 20 * NETEQ[path][1]
        return f"{'ok' if ours <= neteq else 'MISSED'}  J {ours:.0f}, NetEQ {neteq:.0f}"
    if row["reader"] == "listen" and row["repair"] == "auto" and path in ASKED_LISTENING:
        mean, p95, most_concealed = ASKED_LISTENING[path]
        kept = delay <= mean and row["p95_delay_ms"] <= p95 and concealed <= most_concealed
        kept &= row["overhead_pct"] <= ASKED[path][2]
        return f"{'ok' if kept else 'MISSED'}  asked {mean} / p95 {p95} / {most_concealed}"
    if row["reader"] == "listen" and path == "jitter30" and row["repair"] == "none":
        return f"{'ok' if row['unused_pct'] <= 0.1 else 'MISSED'}  unused asked 0.1"
    return ""


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table, one block a setting."""
    before = None
    for row in sorted(rows, key=lambda each: (each["reader"], each["policy"], each["repair"])):
        setting = f"{row['reader']}, policy {row['policy']}, repair {row['repair']}"
        if setting != before:
            before = setting
            print(f"\n{setting} (n = {row['n']} each, median [95 % interval])")
            print(f"{'path':19}{'delay ms':>24}{'p95':>7}{'concealed %':>25}{'over %':>8}{'unused %':>9}{'NetEQ':>13}")
        low, high = row["mean_delay_ms_ci95"]
        concealed_low, concealed_high = row["concealed_pct_ci95"]
        neteq = "{} / {}".format(*NETEQ[row["path"]])
        print(
            f"{row['path']:19}{row['mean_delay_ms']:8.1f} [{low:6.1f},{high:6.1f}]{row['p95_delay_ms']:7.1f}"
            f"{row['concealed_pct']:9.3f} [{concealed_low:6.3f},{concealed_high:6.3f}]{row['overhead_pct']:8.1f}"
            f"{row['unused_pct']:9.3f}{neteq:>13}  {verdict(row)}"
        )


def print_oracle(rows: Sequence[dict[str, Any]]) -> None:
    """Print how far the buffer without repair is from the best fixed deadline."""
    print("\nagainst the best single deadline of each trace at equal late loss (policy auto, repair none)")
    for row in rows:
        if (
            row["reader"] == "playout"
            and row["policy"] == "auto"
            and row["repair"] == "none"
            and "oracle_delay_ms" in row
        ):
            ours, best = row["mean_delay_ms"], row["oracle_delay_ms"]
            near = ours <= best + 20 if row["path"] == "clean" else ours <= 1.25 * best
            print(f"{row['path']:19}{ours:8.1f} ms, best fixed {best:6.1f} ms  {'ok' if near else 'MISSED'}")


def print_costs(costs: Sequence[Cost]) -> None:
    """Print what the readers cost beside libopus's decoding."""
    if costs:
        print(
            "\ncost a 20 ms packet, over libopus decoding the same packets: the reader's own work, and with that decode"
        )
    for cost in costs:
        print(
            f"{cost.reader:9}{cost.path:19}{cost.own_ratio:6.2f} [{cost.own_ratio_ci95[0]:5.2f},"
            f"{cost.own_ratio_ci95[1]:5.2f}]{cost.own_ratio + 1:7.2f}"
            f"   {'ok' if cost.own_ratio <= ASKED_COST[cost.reader] else 'MISSED'}  asked {ASKED_COST[cost.reader]}"
            f"   decode {cost.decode_us:5.1f} us, last tenth over second tenth {cost.growth:5.2f}, n = {cost.packets}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.jitter", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 seeds of 90 s and fewer settings: under two minutes")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--only", action="append", metavar="READER/POLICY/REPAIR", help="some settings alone")
    parser.add_argument("--minutes", type=float, help="length of each replay, instead of 10")
    parser.add_argument("--no-costs", action="store_true", help="leave out what the readers cost")
    parser.add_argument("--seed", type=int, help="first seed; without it fresh ones are drawn")
    options = parser.parse_args(arguments)
    first = secrets.randbelow(1 << 30) if options.seed is None else options.seed
    seeds, packets = (3, 3 * PACKETS_PER_MINUTE // 2) if options.quick else (10, 10 * PACKETS_PER_MINUTE)
    if options.minutes:
        packets = round(options.minutes * PACKETS_PER_MINUTE)
    settings = QUICK_SETTINGS if options.quick else SETTINGS
    if options.only:
        settings = tuple(setting for setting in SETTINGS if "/".join(setting) in options.only)
    # The longest first, so that no core waits for another at the end.
    jobs = [
        Job(profile.name, settings, first + seed, packets) for profile in COMPARED_PATHS[::-1] for seed in range(seeds)
    ]
    with multiprocessing.get_context("spawn").Pool() as pool:
        results = pool.map(run, jobs, chunksize=1)
    rows = summarise(jobs[::-1], results[::-1])
    costs = [] if options.no_costs else measure_costs(quick=options.quick, seed=first)
    print(f"seeds {first} to {first + seeds - 1}, {packets * PTIME_MS // 1000} s each")
    print_rows(rows)
    print_oracle(rows)
    print_costs(costs)
    if options.json:
        print(json.dumps({"rows": rows, "seed": first, "costs": [cost.as_row() for cost in costs]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
