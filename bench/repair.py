"""What the control channel and repair are worth: both ways of a call through a seeded relay, beside plain aiortc.

    python -m bench.repair [--quick] [--json] [--part NAME …] [--plot DIR]

Down: Chromium's own statistics while it plays our speech. Up: the recogniser's errors on what the server heard. Every
call crosses real UDP sockets; loss is both ways, so requests and answers are lost like the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import policies, repair_down, steps, uplink
from bench.caller import PLAIN, synthetic
from peer.engines.base import Samples

UP_PATHS = ("loss5_jitter30", "burst10x2_jitter20")
UP_PATTERNS, QUICK_UP_PATTERNS, BROWSER_PATTERNS = 24, 4, 6
REPAIR_PATHS = ((20, "rtt20_loss5"), (60, "rtt60_loss5"), (150, "rtt150_loss5"))
FIRST_PATHS = ((0, "none"), (50, "rtt50"), (150, "rtt150"))
PARTS = ("down", "up", "repair", "first", "steps", "policies")
QUICK_PARTS = ("down", "up", "repair", "first")
STEP_CALLS = 5
_PEOPLE = Path(__file__).parents[2] / "shared" / "speech"


async def measure_up(*, quick: bool) -> list[dict[str, Any]]:
    """Return a row a path: pooled word error rates, clean and through it, ours and plain aiortc's, and a browser's."""
    ear = uplink.make_ear()
    said = uplink.sentences(_PEOPLE)
    patterns = QUICK_UP_PATTERNS if quick else UP_PATTERNS
    seed = secrets.randbelow(1 << 30)
    clean = await uplink.hear("clean", said, patterns=patterns, seed=seed, ear=ear)
    rows = []
    for path in UP_PATHS[:1] if quick else UP_PATHS:
        heard = await uplink.hear(path, said, patterns=patterns, seed=seed, ear=ear)
        row = {"path": path, "patterns": patterns, "seed": seed, **_errors("", heard.ours)}
        row |= _errors("clean_", clean.ours) | _errors("plain_", heard.plain) | _errors("plain_clean_", clean.plain)
        rows.append(row)
        print_up(row)
    for row in [] if quick else rows:
        heard_of = await uplink.hear_browser(row["path"], said, patterns=BROWSER_PATTERNS, seed=seed, ear=ear)
        row.update(_errors("browser_", heard_of))
        print_browser(row)
    return rows


def _errors(name: str, heard: Sequence[uplink.Heard]) -> dict[str, Any]:
    return {
        f"{name}wer": uplink.word_error_rate(heard),
        f"{name}interval": uplink.interval(heard),
        f"{name}words": sum(each.words for each in heard),
    }


async def measure_repair(voice: Samples, *, quick: bool) -> list[dict[str, Any]]:
    """Return how soon lost packets were back, a row a round trip."""
    rows = []
    for rtt_ms, path in REPAIR_PATHS[1:2] if quick else REPAIR_PATHS:
        seconds = 10 if quick else 30
        row = await uplink.repair_times(path, voice[: seconds * uplink.RATE_HZ], calls=2 if quick else 4, seed=rtt_ms)
        rows.append({"nominal_rtt_ms": rtt_ms, **row})
        print_repair(rows[-1])
    return rows


async def measure_first(*, quick: bool) -> list[dict[str, Any]]:
    """Return how soon media and channel are there, a row a round trip."""
    rows = []
    for rtt_ms, path in FIRST_PATHS:
        rows.append({"rtt_ms": rtt_ms, **await uplink.first_audio(path, calls=1 if quick else 10)})
        print_first(rows[-1])
    return rows


async def measure_steps(voice: Samples, *, plot: Path | None) -> list[dict[str, Any]]:
    """Return how every output follows steps of the path, medians of ten; draw them into the folder `plot`."""
    rows = []
    for kind in steps.KINDS:
        followed = await steps.follow(kind, voice, calls=STEP_CALLS)
        rows.append(steps.summarise(followed))
        steps.print_row(rows[-1])
        if plot is not None:
            from bench.step_plots import plot_steps

            print(f"    drawn to {plot_steps(followed, plot)}")
    return rows


async def measure_policies(voice: Samples, *, seconds: float = 55.0) -> list[dict[str, Any]]:
    """Return delay, concealment and J of each policy on the nine paths, by replay and over a relay."""
    replayed = await asyncio.to_thread(policies.replayed)
    policies.print_rows(replayed)
    print("  and over a relay, calls of a minute")
    relayed = await asyncio.to_thread(policies.over_relay, voice, seconds=seconds)
    policies.print_rows(relayed)
    return replayed + relayed


async def measure(*, quick: bool, parts: Sequence[str], plot: Path | None = None) -> dict[str, Any]:
    """Return the benchmark's result; parts left out are empty."""
    voice = np.concatenate([each.samples for each in synthetic(PLAIN)])
    measures: dict[str, tuple[str, Callable[[], Any]]] = {
        "down": ("way down, played by Chromium", lambda: repair_down.measure(voice, quick=quick)),
        "up": ("way up, words", lambda: measure_up(quick=quick)),
        "repair": ("way up, repair", lambda: measure_repair(voice, quick=quick)),
        "first": ("from the request on", lambda: measure_first(quick=quick)),
        "steps": ("steps of the path", lambda: measure_steps(voice, plot=plot)),
        "policies": ("policies, end to end, by replay", lambda: measure_policies(voice)),
    }
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, (title, run) in measures.items():
        rows[name] = []
        if name in parts:
            print(title, flush=True)
            rows[name] = await run()
    ratios = [(row["repair_ms"] - 10) / row["rtt_ms"] for row in rows["repair"] if row["repair_ms"] is not None]
    return {
        "downlink": rows["down"],
        "uplink": rows["up"],
        "repair_rtts_median": max(ratios) if ratios else None,
        "repairs": rows["repair"],
        "first_audio": rows["first"],
        "steps": rows["steps"],
        "policies": rows["policies"],
    }


def _rate(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}interval"]
    return f"{100 * row[f'{name}wer']:.2f} % ({100 * low:.2f} … {100 * high:.2f})"


def print_up(row: dict[str, Any]) -> None:
    """Print one path of the way up."""
    print(
        f"  {row['path']:<20} WER {_rate(row, '')}, clean {_rate(row, 'clean_')}; plain aiortc {_rate(row, 'plain_')}, "
        f"clean {_rate(row, 'plain_clean_')}; {row['words']} words, {row['patterns']} loss patterns",
        flush=True,
    )


def print_browser(row: dict[str, Any]) -> None:
    """Print one path of the way up from Chromium."""
    print(f"  {row['path']:<20} from Chromium WER {_rate(row, 'browser_')}, {row['browser_words']} words", flush=True)


def print_repair(row: dict[str, Any]) -> None:
    """Print how soon lost packets were back."""
    back = "nothing was asked for" if row["repair_ms"] is None else f"{row['repair_ms']:.1f} ms after the next packet"
    print(
        f"  RTT {row['rtt_ms']:5.1f} ms: {back} (median of {row['n']}, 95 % interval {row['interval_ms']})", flush=True
    )


def print_first(row: dict[str, Any]) -> None:
    """Print how soon media and channel are there, the HTTP request itself being undelayed."""
    media_ms, channel_ms, rtt_ms = row["first_media_ms"], row["channel_ms"], row["rtt_ms"]
    in_rtts = f", {media_ms / rtt_ms:.1f} and {channel_ms / rtt_ms:.1f} round trips" if rtt_ms else ""
    print(
        f"  RTT {rtt_ms:3} ms: first media {media_ms:.0f} ms, channel {channel_ms:.0f} ms after the request{in_rtts} "
        f"(medians of {row['n']})",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print tables, and with --json one object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m bench.repair", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"fewer and shorter calls, of {', '.join(QUICK_PARTS)}")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw the steps into this folder")
    options = parser.parse_args(arguments)
    parts = options.part or (QUICK_PARTS if options.quick else PARTS)
    result = asyncio.run(measure(quick=options.quick, parts=parts, plot=options.plot))
    if options.json:
        print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
