"""What a call survives: outages of 2 s, changes of the caller's address, and how one of 30 s ends.

    python -m bench.outages [--quick] [--json] [--profile NAME]

A real server with the default engines is called through the relay, by our own client (the softphone's transport) and by
Chromium on the server's page. After every outage the caller is silent for 1 s and then says a sentence; what the server
understands of it is held against what it understood of the same sentence before.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.caller import PLAIN, synthetic
from bench.server import measured_server
from impair.caller import Caller, Clip
from impair.errors import ImpairError, TargetError
from impair.flows import Address
from impair.ice_proxy import IceProxy
from impair.measures import WordErrors, word_errors
from impair.page_caller import PageCaller
from impair.profile import Direction
from impair.relay_process import RelayProcess
from impair.targets import Signaling
from transport.messages import UserTranscript

OUTAGE_S, SILENT_S, LONG_OUTAGE_S = 2.0, 1.0, 30.0
_TRANSCRIPT_S = 10.0
_MOVE_S = 6.0
_MEDIA_S = 3.0
_QUIET_S = 0.8
_REPLY_S = 12.0
_SEED = 1
_NO_WORDS = WordErrors(0, 0)
_OVER = re.compile(r'call over .*reason="?(?P<reason>[^"]*?)"? seconds=(?P<seconds>[\d.]+)')


@dataclass
class Found:
    """What one caller's call showed."""

    caller: str
    before: WordErrors = _NO_WORDS
    after: WordErrors = _NO_WORDS
    not_understood: int = 0
    """Sentences after an outage of which no word was understood."""
    media_back_ms: list[float] = field(default_factory=list)
    moved_ms: list[float] = field(default_factory=list)
    stayed: int = 0
    """Changes of address that media did not follow."""
    ended_ms: float | None = None
    caller_says: str = ""
    server_says: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "caller": self.caller,
            "words_before": self.before.words, "wrong_before": self.before.errors,
            "words_after": self.after.words, "wrong_after": self.after.errors,
            "not_understood": self.not_understood, "media_back_ms": self.media_back_ms, "moved_ms": self.moved_ms,
            "not_followed": self.stayed, "long_outage_ended_ms": self.ended_ms, "caller_says": self.caller_says,
            "server_says": self.server_says,
        }  # fmt: skip


async def hold(
    url: str, kind: str, clips: Sequence[Clip], *, profile: str, outages: int, moves: int, log: Path
) -> Found:
    """Hold one call, of `softphone` or `browser`, through all of it."""
    found = Found(caller=kind)
    relay = RelayProcess(profile, seed=_SEED)

    async def add_route(to: Address, way: Direction) -> Address:
        return await relay.add_route(to, way)

    proxy = IceProxy(url, add_route, behind_nat=True)
    async with relay, contextlib.AsyncExitStack() as signaling, aiohttp.ClientSession() as http:
        await signaling.enter_async_context(proxy)
        caller: Caller | PageCaller = (
            PageCaller(proxy.url, selector="#call-button")
            if kind == "browser"
            else Caller(Signaling("antiphon", proxy.url, http))
        )
        async with caller:
            await caller.wait_for_quiet(quiet_s=_QUIET_S, timeout_s=_REPLY_S)
            for clip in clips[:outages]:
                found.before += await _understood(caller, clip)
            for clip in clips[:outages]:
                await _short_outage(caller, relay, clip, found)
            for _ in range(moves):
                await _move(caller, relay, found)
            await signaling.aclose()  # an outage takes everything, so nobody can hang up over HTTP either
            await _long_outage(caller, relay, found)
    _read_server(log, found)
    return found


async def _understood(caller: Caller | PageCaller, clip: Clip) -> WordErrors:
    """Say a sentence, wait for its transcript and the end of the reply."""
    loop = asyncio.get_running_loop()
    said = await caller.say(clip)
    deadline = loop.time() + _TRANSCRIPT_S
    told = ""
    while loop.time() < deadline and not told:
        await caller.wait_for_sound(after=loop.time(), timeout_s=0.2)  # also fetches a page's messages
        told = " ".join(
            message.text
            for at, message in caller.record.messages
            if isinstance(message, UserTranscript) and at > said.began_at
        )
    await caller.wait_for_sound(after=said.speech_ended_at, timeout_s=_REPLY_S)
    await caller.wait_for_quiet(quiet_s=_QUIET_S, timeout_s=_REPLY_S)
    assert clip.text is not None
    return word_errors(clip.text, told)


async def _short_outage(caller: Caller | PageCaller, relay: RelayProcess, clip: Clip, found: Found) -> None:
    loop = asyncio.get_running_loop()
    await relay.begin_outage(OUTAGE_S)
    end = loop.time() + OUTAGE_S
    await asyncio.sleep(OUTAGE_S)
    caller.record.recovered_at = None
    await caller.wait_for_media(after=end, timeout_s=SILENT_S)
    await asyncio.sleep(max(0.0, end + SILENT_S - loop.time()))
    errors = await _understood(caller, clip)
    found.after += errors
    found.not_understood += errors.errors >= errors.words
    back = min((p.arrival for p in caller.record.packets if p.arrival >= end), default=caller.record.recovered_at)
    if back is not None:
        found.media_back_ms.append((back - end) * 1000)


async def _move(caller: Caller | PageCaller, relay: RelayProcess, found: Found) -> None:
    loop = asyncio.get_running_loop()
    before = len((await relay.stats())["relay"]["moves_ms"])
    deadline = loop.time() + _MOVE_S
    await relay.rebind()
    while loop.time() < deadline:
        caller.check()
        moves = (await relay.stats())["relay"]["moves_ms"][before:]
        if moves:
            found.moved_ms.append(float(moves[0]))
            break
        await asyncio.sleep(0.1)
    else:
        found.stayed += 1
    await caller.wait_for_quiet(quiet_s=_QUIET_S, timeout_s=_REPLY_S)


async def _long_outage(caller: Caller | PageCaller, relay: RelayProcess, found: Found) -> None:
    """Lose everything for 30 s, and see when the caller's side gives up, and what it says."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await relay.begin_outage(LONG_OUTAGE_S)
    while loop.time() < begun + LONG_OUTAGE_S and found.ended_ms is None:
        try:
            await caller.wait_for_sound(after=loop.time(), timeout_s=0.2)
            caller.check()
        except TargetError as error:
            found.ended_ms, found.caller_says = (loop.time() - begun) * 1000, str(error)
    if isinstance(caller, PageCaller):
        await asyncio.sleep(0.5)
        shown = [await caller.words(place) for place in ("#problem", "#state", "#hint")]
        found.caller_says = ". ".join(text for text in shown if text) or found.caller_says
    await asyncio.sleep(max(0.0, begun + LONG_OUTAGE_S - loop.time()))


def _read_server(log: Path, found: Found) -> None:
    ends = _OVER.findall(log.read_text(encoding="utf-8", errors="replace"))
    if ends:
        found.server_says = ends[-1][0]


async def measure(*, profile: str, outages: int, moves: int) -> list[Found]:
    """Return what each caller found, at a server of its own."""
    clips = [
        Clip(name=text, samples=one.samples, speech_end_s=one.speech_end_ms / 1000, text=text)
        for one, text in zip(synthetic(PLAIN[:outages]), PLAIN, strict=False)
    ]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        async with measured_server("--log-level", "info", log=log) as server:
            for kind in ("softphone", "browser"):
                try:
                    row = await hold(server.url, kind, clips, profile=profile, outages=outages, moves=moves, log=log)
                except ImpairError as error:
                    print(f"{kind}: {error}", file=sys.stderr)
                    continue
                found.append(row)
                report(row)
    return found


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "—"
    return f"median {statistics.median(values):.0f}, max {max(values):.0f} (n = {len(values)})"


def report(row: Found) -> None:
    """Print what one caller found."""
    said = f"{row.after.errors} of {row.after.words} words wrong ({row.before.errors} of {row.before.words} before)"
    ended = "not ended" if row.ended_ms is None else f"ended after {row.ended_ms / 1000:.1f} s"
    print(f"{row.caller}:")
    print(f"  said from {SILENT_S:g} s after an outage of {OUTAGE_S:g} s: {said}")
    print(f"  media back after it, ms: {_spread(row.media_back_ms)}")
    print(f"  media back after a change of address, ms: {_spread(row.moved_ms)}; not followed: {row.stayed}")
    print(f"  outage of {LONG_OUTAGE_S:g} s: {ended}; the caller is told: {row.caller_says!r}")
    print(f"    the server's log: {row.server_says!r}", flush=True)


def main() -> int:
    """Measure, print as it goes, and with --json one object as the last line; 1 where a caller's call failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.outages", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 outages and 3 changes of address, not 6 of each")
    parser.add_argument("--profile", default="none", help="the network between (none)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    count = 3 if options.quick else 6
    rows = asyncio.run(measure(profile=options.profile, outages=count, moves=count))
    if options.json:
        print(json.dumps({"profile": options.profile, "callers": [row.as_dict() for row in rows]}))
    return int(len(rows) < 2)


if __name__ == "__main__":
    sys.exit(main())
