"""What the control channel and repair are worth: both ways of a call through a seeded relay, beside a plain sender.

    python -m bench.repair [--quick] [--json]

Down: Chromium's own statistics while it plays our speech. Up: the recogniser's errors on what the server heard. Every
call crosses real UDP sockets; loss is both ways, so requests and answers are lost like the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import downlink, uplink
from bench.caller import PLAIN, synthetic
from bench.intervals import quantile_interval
from impair.profiles import COMPARED_PATHS

DOWN_PATHS = (("loss5", 60), ("loss10", 60), ("burst20x2", 100))
UP_PATHS = ("loss5_jitter30", "burst10x2_jitter20")
REPAIR_PATHS = ((20, "rtt20_loss5"), (60, "rtt60_loss5"), (150, "rtt150_loss5"))
POLICIES = ("auto", "quantile", "formula")
MS_PER_CONCEALED_PCT = 20.0
_PEOPLE = Path(__file__).parents[2] / "shared" / "speech"


async def measure_down(speech: Any, *, quick: bool) -> list[dict[str, Any]]:
    """Return a row a path: plain, then ours, from second 5 on; ours also after the path became clean."""
    rows = []
    seconds = 13.0 if quick else 60.0
    paths = DOWN_PATHS[1:2] if quick else DOWN_PATHS
    async with downlink.caller(speech) as served, downlink.browser() as chromium:
        for seed, (path, rtt_ms) in enumerate(paths, start=11):
            plain = await downlink.measure_path(served, chromium, path, seconds=seconds, seed=seed, plain=True)
            ours = await downlink.measure_path(
                served, chromium, path, seconds=seconds, seed=seed, plain=False, clean_after=not quick
            )
            rows.append(
                {
                    "path": path,
                    "rtt_ms": rtt_ms,
                    "plain_concealed_pct": plain["concealed_pct"],
                    "plain_interval_pct": plain["concealed_interval_pct"],
                    "ours_interval_pct": ours["concealed_interval_pct"],
                    "plain_delay_ms": plain["delay_ms"],
                    "ours_concealed_pct": ours["concealed_pct"],
                    "overhead_pct": ours["overhead_pct"],
                    "delay_ms": ours["delay_ms"],
                    "clean_overhead_pct": ours.get("clean_overhead_pct"),
                    "plan": ours["plan"],
                    "missed_slots": ours["missed_slots"],
                    "channel_rtt_ms": ours["rtt_p50_ms"],
                    "packets": ours["packets"],
                    "decisions": ours["decisions"],
                }
            )
            print_down(rows[-1])
    return rows


async def measure_up(*, quick: bool) -> list[dict[str, Any]]:
    """Return a row a path: the pooled word error rate, clean and through it, with 95 % intervals."""
    ear = uplink.make_ear()
    said = uplink.sentences(_PEOPLE)
    patterns = 6 if quick else 24
    clean = await uplink.hear("clean", said, patterns=patterns, seed=5, ear=ear)
    rows = []
    for path in UP_PATHS[:1] if quick else UP_PATHS:
        heard = await uplink.hear(path, said, patterns=patterns, seed=6, ear=ear)
        rows.append(
            {
                "path": path,
                "clean_wer": uplink.word_error_rate(clean),
                "clean_interval": uplink.interval(clean),
                "wer": uplink.word_error_rate(heard),
                "interval": uplink.interval(heard),
                "words": sum(each.words for each in heard),
                "patterns": patterns,
            }
        )
        print_up(rows[-1])
    return rows


async def measure(*, quick: bool) -> dict[str, Any]:
    """Return the benchmark's result."""
    voice = np.concatenate([each.samples for each in synthetic(PLAIN)])
    print("way down, played by Chromium")
    down = await measure_down(voice, quick=quick)
    print("way up, words")
    up = await measure_up(quick=quick)
    print("way up, repair")
    repairs = []
    for rtt_ms, path in REPAIR_PATHS[1:2] if quick else REPAIR_PATHS:
        seconds = 10 if quick else 30
        row = await uplink.repair_times(path, voice[: seconds * uplink.RATE_HZ], calls=2 if quick else 4, seed=rtt_ms)
        repairs.append({"nominal_rtt_ms": rtt_ms, **row})
        print_repair(repairs[-1])
    ratios = [(row["repair_ms"] - 10) / row["rtt_ms"] for row in repairs if row["repair_ms"] is not None]
    first = []
    for rtt_ms, path in ((0, "none"), (50, "rtt50"), (150, "rtt150")):
        first.append({"rtt_ms": rtt_ms, **await uplink.first_audio(path, calls=1 if quick else 10)})
        print_first(first[-1])
    steps = [] if quick else await measure_steps(voice)
    policies = [] if quick else await measure_policies(voice, seconds=60.0)
    return {
        "downlink": down,
        "uplink": up,
        "repair_rtts_median": max(ratios) if ratios else None,
        "repairs": repairs,
        "first_audio": first,
        "steps": steps,
        "policies": policies,
    }


async def measure_policies(voice: Any, *, seconds: float) -> list[dict[str, Any]]:
    """Return delay, concealment and J of each policy, with repair as it comes, on the nine paths, for ears."""
    print("policies, end to end")
    rows = []
    for path in [profile.name for profile in COMPARED_PATHS]:
        row: dict[str, Any] = {"path": path}
        seen = await uplink.policies(path, POLICIES, voice, calls=2, seconds=seconds)
        for policy, (delay_ms, concealed_pct) in seen.items():
            row[policy] = {
                "mean_delay_ms": delay_ms,
                "concealed_pct": concealed_pct,
                "j": delay_ms + MS_PER_CONCEALED_PCT * concealed_pct,
            }
        rows.append(row)
        print(
            f"  {path:<20}"
            + "".join(f"{name} J {row[name]['j']:6.1f} ({row[name]['mean_delay_ms']:.0f} ms, "
                      f"{row[name]['concealed_pct']:.2f} %)   " for name in POLICIES)
        )  # fmt: skip
    return rows


async def measure_steps(voice: Any) -> list[dict[str, Any]]:
    """Return how outputs follow a step of the round trip and one of the loss, up and down, medians of ten."""
    rows = []
    for name, profiles in (("rtt", ("rtt40", "rtt200")), ("loss", ("rtt40", "rtt40_loss10"))):
        up: list[float | None] = []
        down: list[float | None] = []
        turns, stall_s = 0, 0.0
        for _ in range(2):
            seen = await uplink.follow_steps(name, profiles, voice, calls=5, hold_s=16.0)
            up, down = up + seen.up_s, down + seen.down_s
            turns, stall_s = max(turns, seen.turns), max(stall_s, seen.stalls_s)
        rows.append(
            {
                "step": name,
                "up_s": _median(up),
                "down_s": _median(down),
                "n": len(up),
                "up_interval_s": _interval(up),
                "down_interval_s": _interval(down),
                "turns": turns,
                "longest_stall_s": stall_s,
            }
        )
        print(
            f"  step of {name}: up {rows[-1]['up_s']} s, down {rows[-1]['down_s']} s, n {len(up)}, turns {turns}, "
            f"longest gap {stall_s:.2f} s"
        )
    return rows


def _reached(values: Sequence[float | None]) -> list[float]:
    return [float("inf") if value is None else value for value in values]


def _interval(values: Sequence[float | None]) -> list[float | None]:
    """Return the 95 % interval of the median; an edge that was never reached is None, since JSON knows no infinity."""
    return [None if edge == float("inf") else round(edge, 2) for edge in quantile_interval(_reached(values), 0.5)]


def _median(values: Sequence[float | None]) -> float | None:
    middle = statistics.median(_reached(values))
    return None if middle == float("inf") else round(middle, 2)


def print_down(row: dict[str, Any]) -> None:
    """Print one path of the way down."""
    clean = row["clean_overhead_pct"]
    low, high = row["ours_interval_pct"]
    plain_low, plain_high = row["plain_interval_pct"]
    print(
        f"  {row['path']:<10} concealed {row['ours_concealed_pct']:.2f} % ({low:.2f} … {high:.2f}; "
        f"plain {row['plain_concealed_pct']:.2f} %, {plain_low:.2f} … {plain_high:.2f}), "
        f"overhead {row['overhead_pct']:4.0f} %, buffer {row['delay_ms']:4.0f} ms (plain {row['plain_delay_ms']:.0f}), "
        f"n {row['packets']} packets; {row['plan']}; missed slots {row['missed_slots']}"
        + (f"; clean again: overhead {clean:.1f} %" if clean is not None else "")
    )


def print_up(row: dict[str, Any]) -> None:
    """Print one path of the way up."""
    low, high = row["interval"]
    print(
        f"  {row['path']:<20} WER {100 * row['wer']:5.2f} % ({100 * low:.2f} … {100 * high:.2f}), "
        f"clean {100 * row['clean_wer']:5.2f} %, {row['words']} words, {row['patterns']} loss patterns"
    )


def print_repair(row: dict[str, Any]) -> None:
    """Print how soon lost packets were back."""
    back = "nothing was asked for" if row["repair_ms"] is None else f"{row['repair_ms']:.1f} ms after the next packet"
    print(f"  RTT {row['rtt_ms']:5.1f} ms: {back} (median of {row['n']}, 95 % interval {row['interval_ms']})")


def print_first(row: dict[str, Any]) -> None:
    """Print how soon media and channel are there, the HTTP request itself being undelayed."""
    print(
        f"  RTT {row['rtt_ms']:3} ms: first media {row['first_media_ms']:.0f} ms, channel {row['channel_ms']:.0f} ms "
        f"after the request (medians of {row['n']})"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print tables, and with --json one object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m bench.repair", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter calls")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(arguments)
    result = asyncio.run(measure(quick=options.quick))
    if options.json:
        print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
