"""Voice to voice, at the caller: from the end of what is said to the first sound of the answer, in three sets of turns.

    python -m bench.voice [--quick] [--set plain] [--json] [-- SERVER OPTIONS]

A server of its own is called by the softphone over WebRTC on 127.0.0.1. *Plain* turns have no pause; *open* ones
pause for 0.3 to 0.8 s where the words so far cannot end a sentence, *closed* ones where they could. A half answer is
more than 200 ms of reply heard between the pause and the next word. Each turn waits for the answer to end; the
further turns that only count half answers have a call each, which is hung up in the middle of the next word where
there was none. Parts are the server's own stages; a stage of an answer that was begun in the pause overlaps the
endpointing, so parts do not add up. A set is printed as it ends, and a run that is ended early gives what it has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

import aiohttp

from bench.intervals import quantile, quantile_interval
from bench.items import KINDS, Item, Kind, make_items
from bench.observer import LEAD_MS, Observer, settle, to_line
from bench.server import MeasuredServer, measured_server
from bench.spoken import Speaker
from bench.turn_measures import audible_ms, first_audible_after
from bench.voice_figures import (
    HALF_MS,
    Outcome,
    add_halves,
    compare_words,
    note_half_answer,
    print_rest,
    print_set,
    summarise,
)
from peer.engines.base import LISTEN_RATE_HZ
from peer.softphone_call import CallOptions, SoftphoneCall, SoftphoneError

_TURNS_A_CALL: Final = 14
_REPLY_WITHIN_S: Final = 12.0
_AFTER_NEXT_S: Final = 0.3
_REPLY_TOKENS: Final = "24"


async def take_turn(call: SoftphoneCall, observer: Observer, item: Item, *, to_its_end: bool) -> Outcome:
    """Say one item and return what came of it; raises SoftphoneError where no answer comes.

    A turn that need not be heard to its end is over once the voice has gone on without a half answer before.
    """
    loop = asyncio.get_running_loop()
    observer.forget()
    began_at = await call.send(to_line(item.samples))
    if not to_its_end and item.cut_ms is not None and item.next_ms is not None:
        await asyncio.sleep(began_at + (item.next_ms + LEAD_MS) / 1000 + _AFTER_NEXT_S - loop.time())
        cut_at, next_at = call.left_at(item.cut_ms + LEAD_MS), call.left_at(item.next_ms + LEAD_MS)
        if audible_ms(observer.levels, cut_at, next_at) <= HALF_MS:
            return Outcome(item=item)
    await asyncio.sleep(began_at + (len(item.samples) * 1000 / LISTEN_RATE_HZ + LEAD_MS) / 1000 - loop.time())
    end_at = call.left_at(item.end_ms + LEAD_MS)
    deadline = loop.time() + _REPLY_WITHIN_S
    while (reply_at := first_audible_after(observer.levels, end_at)) is None:
        if loop.time() > deadline:
            raise SoftphoneError(5, f"no answer to {item.text!r}")
        await asyncio.sleep(0.02)
    outcome = Outcome(item=item, voice_to_voice_ms=(reply_at - end_at) * 1000)
    if item.cut_ms is not None and item.next_ms is not None:
        cut_at, next_at = call.left_at(item.cut_ms + LEAD_MS), call.left_at(item.next_ms + LEAD_MS)
        note_half_answer(outcome, observer.levels, cut_at=cut_at, next_at=next_at, end_at=end_at)
    if to_its_end:
        await settle(call, observer)
    said = [transcript for transcript in observer.transcripts if transcript.text]
    outcome.heard = said[-1].text if said else ""
    if observer.done:
        outcome.reply, outcome.stages = observer.done[-1][1].reply_text, dict(observer.done[-1][1].latency_ms)
    return outcome


async def hold_calls(url: str, items: Sequence[Item], failures: list[str]) -> list[Outcome]:
    """Say the items in calls of some turns each, every answer to its end."""
    outcomes: list[Outcome] = []
    for at in range(0, len(items), _TURNS_A_CALL):
        try:
            async with SoftphoneCall(CallOptions(url=url)) as call:
                observer = Observer(call)
                for item in items[at : at + _TURNS_A_CALL]:
                    outcome = await take_turn(call, observer, item, to_its_end=True)
                    outcomes.append(outcome)
        except SoftphoneError as error:
            failures.append(str(error))
    return outcomes


async def hold_short_calls(url: str, items: Sequence[Item], failures: list[str]) -> list[Outcome]:
    """Say each item in a call of its own, hung up once it is known whether half of it was answered."""
    outcomes: list[Outcome] = []
    for item in items:
        try:
            async with SoftphoneCall(CallOptions(url=url)) as call:
                outcomes.append(await take_turn(call, Observer(call), item, to_its_end=False))
        except SoftphoneError as error:
            failures.append(str(error))
    return outcomes


async def measure(result: dict[str, Any], *, quick: bool, kinds: Sequence[Kind], arguments: Sequence[str]) -> None:
    """Measure into `result`, part by part."""
    count, further = (6, 0) if quick else (42, 108)
    speaker = Speaker()
    failures: list[str] = result["failures"]
    understood: list[tuple[Item, str]] = []
    async with measured_server("--reply-tokens", _REPLY_TOKENS, *arguments) as server:
        await hold_short_calls(server.url, make_items(speaker, "plain", 1, people=False), failures)
        for kind in kinds:
            items = make_items(speaker, kind, count)
            clock = CpuClock(server)
            outcomes = await hold_calls(server.url, items, failures)
            figures = summarise(outcomes) | {"cpu_cores": clock.cores(), "failed": len(items) - len(outcomes)}
            result["sets"][kind] = figures
            understood += [(outcome.item, outcome.heard) for outcome in outcomes]
            if further and kind != "plain":
                more = await hold_short_calls(server.url, make_items(speaker, kind, further, seed=12), failures)
                add_halves(figures, more)
            print_set(kind, figures)
        if "plain" in kinds:
            await measure_two(server, speaker, 4 if quick else 14, result)
        result["resident_mib"] = round(server.resident_bytes() / 2**20)
        result["ready_s"] = round(server.ready_s, 1)
        result["loop_lag_p99_ms"] = await loop_lag_p99_ms(server.url)
    result["words"] = compare_words(understood)


class CpuClock:
    """How much of a core the server and its engines take, from its making on."""

    def __init__(self, server: MeasuredServer) -> None:
        self._server: Final = server
        self._loop: Final = asyncio.get_running_loop()
        self._began: Final = (server.cpu_seconds(), self._loop.time())

    def cores(self) -> float:
        """Return the mean so far."""
        cpu_s, at = self._began
        return round((self._server.cpu_seconds() - cpu_s) / (self._loop.time() - at), 3)


async def measure_two(server: MeasuredServer, speaker: Speaker, count: int, result: dict[str, Any]) -> None:
    """Measure two calls at once."""
    failures: list[str] = result["failures"]
    both = await asyncio.gather(
        *(hold_calls(server.url, make_items(speaker, "plain", count, seed=seed), failures) for seed in (21, 22))
    )
    times = [outcome.voice_to_voice_ms for outcomes in both for outcome in outcomes]
    result["two_calls"] = {
        "median_ms": quantile(times, 0.5),
        "median_interval_ms": quantile_interval(times, 0.5),
        "p95_ms": quantile(times, 0.95),
        "n": len(times),
    }


async def loop_lag_p99_ms(url: str) -> float | None:
    """Return what the server says of its media loop's lag over the last minute."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/healthz") as response:
        lag: float | None = (await response.json())["loop_lag_p99_ms"]
        return lag


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and with --json one object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m bench.voice", description="Voice to voice, at the caller.")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--set", action="append", choices=KINDS, help="only this set; may be given more than once")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("server", nargs="*", help="options of the server, after --")
    options = parser.parse_args(arguments)
    result: dict[str, Any] = {"sets": {}, "failures": []}
    ended = False
    kinds = options.set or KINDS
    try:
        asyncio.run(measure(result, quick=options.quick, kinds=kinds, arguments=options.server))
    except (asyncio.CancelledError, KeyboardInterrupt):
        ended = True
    print_rest(result)
    if options.json:
        first: dict[str, Any] = next(iter(result["sets"].values()), {})
        head = {"median_ms": first.get("median_ms"), "p95_ms": first.get("p95_ms"), "turns": first.get("n", 0)}
        print(json.dumps(head | result, ensure_ascii=False))
    if ended:
        sys.exit(1)


if __name__ == "__main__":
    main()
