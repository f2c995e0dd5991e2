"""The policies with repair as it comes, for ears, on the nine compared paths: by replay, and over a real relay."""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.jitter import Job, run
from bench.lines import Exchange, lines
from impair.profiles import COMPARED_PATHS
from impair.relay_process import RelayProcess
from peer.engines.base import Samples
from transport.peer_connection import TransportConfig

POLICIES = ("auto", "quantile", "formula")
MS_PER_CONCEALED_PCT = 20.0
NOT_ASKED = "loss1"
"""There `auto` buys loss with delay, as docs/jitter.md asks."""
WITHIN_MS = 3.0
SEEDS, REPLAY_PACKETS = 10, 9000
RATE_HZ = 48_000
RELAY_SEEDS = (7, 8, 9)
AT_ONCE = 3
"""Processes, each with a call a policy: two cores are two thirds busy."""


def replayed() -> list[dict[str, Any]]:
    """Return a row a path: medians over SEEDS fresh seeds of three minutes each."""
    first = secrets.randbelow(1 << 30)
    paths = [profile.name for profile in COMPARED_PATHS]
    settings = tuple(("playout", policy, "auto") for policy in POLICIES)
    jobs = [Job(path, settings, first + seed, REPLAY_PACKETS) for path in paths for seed in range(SEEDS)]
    with multiprocessing.get_context("spawn").Pool() as pool:
        results = pool.map(run, jobs, chunksize=1)
    rows = []
    for path in paths:
        row: dict[str, Any] = {"path": path, "how": "replay", "n": SEEDS}
        for index, policy in enumerate(POLICIES):
            mine = [figures[index] for job, figures in zip(jobs, results, strict=True) if job.path == path]
            row[policy] = _figures(
                statistics.median(each["mean_delay_ms"] for each in mine),
                statistics.median(each["concealed_pct"] for each in mine),
            )
        rows.append(judged(row))
    return rows


def over_relay(voice: Samples, *, seconds: float) -> list[dict[str, Any]]:
    """Return a row a path: medians over the calls of each policy, from second 5 on.

    The policies meet the same network: each call is the only one of its relay, so that a seed loses the same packets.
    """
    paths = [profile.name for profile in COMPARED_PATHS]
    jobs = [(path, seed, voice, seconds) for path in paths for seed in RELAY_SEEDS]
    with multiprocessing.get_context("spawn").Pool(AT_ONCE) as pool:
        calls = pool.starmap(_calls, jobs, chunksize=1)
    rows = []
    for path in paths:
        mine = [figures for job, figures in zip(jobs, calls, strict=True) if job[0] == path]
        row: dict[str, Any] = {"path": path, "how": "relay", "n": len(mine)}
        for index, policy in enumerate(POLICIES):
            delay_ms, concealed_pct = (statistics.median(call[index][figure] for call in mine) for figure in (0, 1))
            row[policy] = _figures(delay_ms, concealed_pct)
        rows.append(judged(row))
    return rows


def _calls(path: str, seed: int, voice: Samples, seconds: float) -> list[tuple[float, float]]:
    """Return delay (ms) and concealment (%) of one call a policy, all at once."""

    async def place() -> list[tuple[float, float]]:
        return await asyncio.gather(*(_call(path, policy, seed, voice, seconds) for policy in POLICIES))

    return asyncio.run(place())


async def _call(path: str, policy: str, seed: int, voice: Samples, seconds: float) -> tuple[float, float]:
    config = TransportConfig(hosts=("127.0.0.1",), reader="playout", policy=policy)
    async with (
        Exchange([config]) as exchange,
        RelayProcess(path, seed=seed) as relay,
        lines(exchange, relay, 1) as pairs,
    ):
        line, callee = pairs[0]
        line.say(np.tile(voice, 1 + int((seconds + 10) * RATE_HZ / len(voice))))
        await exchange.play(5.0)
        began = replace(callee.connection.reader.stats)
        await exchange.play(seconds)
        stats = callee.connection.reader.stats
        emitted = stats.jitter_buffer_emitted_count - began.jitter_buffer_emitted_count
        total = stats.total_samples_received - began.total_samples_received
        return (
            1000 * (stats.jitter_buffer_delay - began.jitter_buffer_delay) / max(1, emitted),
            100 * (stats.concealed_samples - began.concealed_samples) / max(1, total),
        )


def _figures(delay_ms: float, concealed_pct: float) -> dict[str, float]:
    j = delay_ms + MS_PER_CONCEALED_PCT * concealed_pct
    return {"mean_delay_ms": delay_ms, "concealed_pct": concealed_pct, "j": j}


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with how far `auto` is above the lowest, and whether that will do."""
    above_ms = row["auto"]["j"] - min(row[policy]["j"] for policy in POLICIES)
    return row | {"above_lowest_ms": above_ms, "held": row["path"] == NOT_ASKED or above_ms <= WITHIN_MS}


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print one table."""
    for row in rows:
        cells = "".join(
            f"{name} {row[name]['j']:6.1f} ({row[name]['mean_delay_ms']:.0f} ms, {row[name]['concealed_pct']:.2f} %)   "
            for name in POLICIES
        )
        print(f"  {row['path']:<20}{cells}{'held' if row['held'] else 'MISSED'}", flush=True)
