"""The way down, path by path: what Chromium played from a plain sender and from ours, medians over fresh seeds."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

from bench import downlink
from peer.engines.base import Samples

PATHS = (("loss5", 60), ("loss10", 60), ("burst20x2", 100))
SEEDS = 3
SECONDS, QUICK_SECONDS = 60.0, 13.0


async def measure(speech: Samples, *, quick: bool) -> list[dict[str, Any]]:
    """Return a row a path; its calls run at once: SEEDS loss patterns, each through a plain call and one of ours."""
    rows = []
    async with downlink.caller(speech) as served, downlink.browser() as chromium:
        for index, (path, rtt_ms) in enumerate(PATHS[1:2] if quick else PATHS):
            pairs = await asyncio.gather(
                *(
                    downlink.measure_pair(
                        served,
                        chromium,
                        path,
                        seconds=QUICK_SECONDS if quick else SECONDS,
                        seed=11 + 10 * index + seed,
                        clean_after=not quick,
                    )
                    for seed in range(1 if quick else SEEDS)
                )
            )
            rows.append(_row(path, rtt_ms, [plain for plain, _ in pairs], [ours for _, ours in pairs]))
            print_row(rows[-1])
    return rows


def _row(path: str, rtt_ms: int, plain: list[dict[str, Any]], ours: list[dict[str, Any]]) -> dict[str, Any]:
    def median(calls: list[dict[str, Any]], name: str) -> float:
        return float(statistics.median(each[name] for each in calls))

    return {
        "path": path,
        "rtt_ms": rtt_ms,
        "plain_concealed_pct": median(plain, "concealed_pct"),
        "plain_interval_pct": downlink.concealed_interval([s for each in plain for s in each["seconds"]]),
        "plain_delay_ms": median(plain, "delay_ms"),
        "ours_concealed_pct": median(ours, "concealed_pct"),
        "ours_interval_pct": downlink.concealed_interval([s for each in ours for s in each["seconds"]]),
        "ours_concealed_of_each_pct": [each["concealed_pct"] for each in ours],
        "overhead_pct": median(ours, "overhead_pct"),
        "delay_ms": median(ours, "delay_ms"),
        "clean_overhead_pct": median(ours, "clean_overhead_pct") if "clean_overhead_pct" in ours[0] else None,
        "plans": [each["plan"] for each in ours],
        "missed_slots": sum(each["missed_slots"] for each in ours),
        "channel_rtt_ms": median(ours, "rtt_p50_ms"),
        "carriers": sorted({each["carrier"] for each in ours}),
        "packets": sum(each["packets"] for each in ours),
        "decisions": ours[0]["decisions"],
        "seeds": len(ours),
    }


def print_row(row: dict[str, Any]) -> None:
    """Print one path of the way down."""
    clean = row["clean_overhead_pct"]
    low, high = row["ours_interval_pct"]
    plain_low, plain_high = row["plain_interval_pct"]
    each = " ".join(f"{value:.2f}" for value in row["ours_concealed_of_each_pct"])
    print(
        f"  {row['path']:<10} concealed {row['ours_concealed_pct']:.2f} % (seeds {each}; {low:.2f} … {high:.2f}; "
        f"plain {row['plain_concealed_pct']:.2f} %, {plain_low:.2f} … {plain_high:.2f}), "
        f"overhead {row['overhead_pct']:4.0f} %, buffer {row['delay_ms']:4.0f} ms (plain {row['plain_delay_ms']:.0f}), "
        f"n {row['packets']} packets of {row['seeds']} calls; {row['plans'][0]}; missed slots {row['missed_slots']}"
        + (f"; clean again: overhead {clean:.1f} %" if clean is not None else ""),
        flush=True,
    )
