"""NetEQ and our playout reader on the very same packets: one relay, one seed, one row a path."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from impair.chromium import chromium_page, neteq
from impair.errors import ImpairError
from impair.flows import PacketKind
from impair.measures import Samples
from impair.profile import Profile
from impair.relay_process import RelayProcess
from impair.stages import Delay
from impair.traces import TraceRow, load_profile, write_arrivals
from impair.waiting import SENDER_PRIORITY, ordinary_priority, receiver_priority

PTIME_MS = 20.0
_WAY: Final = "down"
_WARM_UP_S = 3.0


async def compare(
    profiles: Sequence[str], speech: Samples, *, seed: int, duration_s: float, say: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """One row a path: what NetEQ did with it, what ours does with the same packets, and ours with repair."""
    rows: list[dict[str, Any]] = []
    try:
        async with before_others(), chromium_page(prepare=receiver_priority) as page:
            for name in profiles:
                rows.append(await _row(page, name, speech, seed=seed, duration_s=duration_s))
                say(_line(rows[-1]))
    except ImpairError as error:
        done = {row["path"] for row in rows}
        rows += [_missing(name, str(error)) for name in profiles if name not in done]
    return rows


@contextlib.asynccontextmanager
async def before_others() -> AsyncIterator[None]:
    """A place before ordinary work, where allowed: a sender that stumbles would be measured as a network."""
    usual = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            usual = os.sched_getscheduler(0), os.sched_getparam(0)
            # The encoder's threads inherit it.
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(SENDER_PRIORITY))
    try:
        yield
    finally:
        if usual is not None:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, *usual)


def _missing(name: str, reason: str) -> dict[str, Any]:
    return {"path": name, "neteq_missing": reason, "ours_missing": reason, "ours_with_repair_missing": reason}


def _line(row: dict[str, Any]) -> str:
    told = [
        f"{who} {row[who]['delay_ms']:.0f} ms / {row[who]['concealed_pct']:.2f} %"
        for who in ("neteq", "ours", "ours_with_repair")
        if row.get(who)
    ]
    return f"{row['path']:20} {', '.join(told) or row.get('neteq_missing')}"


async def _row(page: Any, name: str, speech: Samples, *, seed: int, duration_s: float) -> dict[str, Any]:
    profile = load_profile(name)
    with tempfile.TemporaryDirectory() as folder:
        log, trace = f"{folder}/log.csv", f"{folder}/trace.csv"
        row: dict[str, Any] = {"path": name, "seed": seed}
        row |= {"summary": profile.summary, "source": profile.source}
        try:
            async with RelayProcess(name, seed=seed, media="down", log=Path(log)) as relay:
                figures = await neteq(page, relay, speech, duration_s=duration_s)
        except (ImpairError, TimeoutError) as error:
            return _missing(name, str(error) or "Chromium did not answer in time")
        row["neteq"] = {slot: getattr(figures, slot) for slot in figures.__slots__}
        row["relay"] = relay.report.get("relay")
        rtt_ms = round_trip_ms(profile)
        rows, row["pacing_p99_ms"] = trace_of_log(await asyncio.to_thread(Path(log).read_text))
        await asyncio.to_thread(Path(trace).write_text, write_arrivals(rows))
        for key, repair in (("ours", "none"), ("ours_with_repair", "auto")):
            try:
                row[key] = await _replay(trace, repair, rtt_ms)
            except ImpairError as error:
                row[f"{key}_missing"] = str(error)
    return row


def round_trip_ms(profile: Profile) -> float:
    """The bare round trip of a profile: its fixed delays there and back."""
    return sum(2 * stage.delay_ms for stage in profile.base if isinstance(stage, Delay))


def trace_of_log(text: str, *, way: str = _WAY) -> tuple[list[TraceRow], float]:
    """The media of the flow that carried most, one way, as an arrival trace, its packets sent every 20 ms.

    What the sender's own pacing was late counts as the network's, for both receivers alike; its 99th percentile in ms
    comes second.
    """
    flows: dict[str, list[dict[str, str]]] = {}
    for entry in csv.DictReader(text.splitlines()):
        if entry["way"] == way and int(entry["kind"]) % len(PacketKind) == PacketKind.RTP:
            flows.setdefault(entry["flow"], []).append(entry)
    if not flows:
        raise ImpairError("the relay carried no media")
    entries = max(flows.values(), key=len)
    late_ms = [int(entry["at_us"]) / 1000 - index * PTIME_MS for index, entry in enumerate(entries)]
    begin_ms = min(late_ms)
    rows = []
    for index, entry in enumerate(entries):
        delay = entry["delays_us"].split(";")[0]
        arrival_ms = (int(entry["at_us"]) + int(delay)) / 1000 - begin_ms if delay else None
        rows.append(TraceRow(index, index * PTIME_MS, arrival_ms))
    return rows, sorted(late_ms)[round(0.99 * (len(late_ms) - 1))] - begin_ms


async def _replay(trace: str, repair: str, rtt_ms: float) -> dict[str, float]:
    """`python -m jitter.replay` is a command of its own, so it is run as one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "jitter.replay", trace, "--reader", "playout", "--policy", "auto", "--repair", repair,
        "--rtt-ms", str(rtt_ms), "--json",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, preexec_fn=ordinary_priority,
    )  # fmt: skip
    out, errors = await process.communicate()
    if process.returncode:
        raise ImpairError(f"jitter.replay failed: {errors.decode(errors='replace').strip()[-200:]}")
    figures = dict(json.loads(out.splitlines()[-1]))
    return {
        "delay_ms": figures["mean_delay_ms"],
        **{
            name: figures[name]
            for name in ("concealed_pct", "accelerated_pct", "expanded_pct", "overhead_pct", "late_pct")
            if name in figures
        },
    }


def looped(clips: Sequence[Samples], pause_s: float = 0.4) -> Samples:
    """Recordings one after the other with short pauses, int16 at 48 kHz."""
    pause = np.zeros(round(pause_s * 48_000), np.int16)
    with contextlib.suppress(ValueError):
        return np.concatenate([piece for clip in clips for piece in (clip, pause)])
    raise ImpairError("there is nothing to say: no WAV or FLAC file")
