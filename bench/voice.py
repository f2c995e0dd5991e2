"""Voice to voice, at the caller: from the end of what is said to the first sound of the answer.

    python -m bench.voice [--quick] [--json] [-- SERVER OPTIONS]

A server of its own is called by the softphone over WebRTC on 127.0.0.1; each turn says one sentence and waits for the
answer to end. Parts are the server's own stages; a stage of an answer that was begun in the pause overlaps the
endpointing, so parts do not add up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from bench.caller import PLAIN, Utterance, people, synthetic
from bench.intervals import quantile, quantile_interval
from bench.server import MeasuredServer, measured_server
from peer.softphone_call import CallOptions, SoftphoneCall
from peer.softphone_log import TurnLog

_PEOPLE = Path(__file__).parents[2] / "shared" / "speech"
_STAGES = ("begun", "endpointing", "asr", "llm_first_token", "first_sentence", "tts", "send", "total")


async def hold_call(url: str, utterances: Sequence[Utterance]) -> list[TurnLog]:
    """Say each utterance in one call and return the turns that were answered."""
    turns: list[TurnLog] = []
    async with SoftphoneCall(CallOptions(url=url)) as call:
        for index, utterance in enumerate(utterances):
            before = len(call.log.turns)
            await call.play(
                utterance.samples, speech_ends_ms=[utterance.speech_end_ms], labelled=True, first=index == 0
            )
            turns += call.log.turns_since(before)[-1:]
    return turns


async def measure(*, quick: bool, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the benchmark's result."""
    plain = [*people(_PEOPLE), *synthetic(PLAIN)]
    count = 10 if quick else 40
    said = [plain[index % len(plain)] for index in range(count)]
    async with measured_server(*arguments) as server:
        await hold_call(server.url, said[-1:])  # the first call of a process pays for what is loaded once
        began, cpu_before = asyncio.get_running_loop().time(), server.cpu_seconds()
        turns = await hold_call(server.url, said)
        cpu_cores = (server.cpu_seconds() - cpu_before) / (asyncio.get_running_loop().time() - began)
        pair = said[: 4 if quick else 12]
        both = await asyncio.gather(hold_call(server.url, pair), hold_call(server.url, pair[::-1]))
        memory, lag_ms = server.resident_bytes(), await loop_lag_p99_ms(server.url)
    result = summarise(turns, [turn for call in both for turn in call], cpu_cores, memory, server)
    return result | {"loop_lag_p99_ms": lag_ms}


async def loop_lag_p99_ms(url: str) -> float | None:
    """Return what the server says of its media loop's lag over the last minute."""
    async with aiohttp.ClientSession() as http, http.get(f"{url}/healthz") as response:
        lag: float | None = (await response.json())["loop_lag_p99_ms"]
        return lag


def summarise(
    turns: Sequence[TurnLog], pairs: Sequence[TurnLog], cpu_cores: float, memory: int, server: MeasuredServer
) -> dict[str, Any]:
    """Return the figures of these turns."""
    times = [turn.voice_to_voice_ms for turn in turns if turn.voice_to_voice_ms is not None]
    two = [turn.voice_to_voice_ms for turn in pairs if turn.voice_to_voice_ms is not None]
    parts = {}
    for stage in _STAGES:
        values = [turn.latency_ms[stage] for turn in turns if stage in turn.latency_ms]
        if values:
            parts[stage] = {"median_ms": quantile(values, 0.5), "p95_ms": quantile(values, 0.95), "n": len(values)}
    return {
        "median_ms": quantile(times, 0.5),
        "median_interval_ms": quantile_interval(times, 0.5),
        "p95_ms": quantile(times, 0.95),
        "p95_interval_ms": quantile_interval(times, 0.95),
        "turns": len(times),
        "parts": parts,
        "two_calls_median_ms": quantile(two, 0.5),
        "two_calls_turns": len(two),
        "cpu_cores": round(cpu_cores, 3),
        "resident_mib": round(memory / 2**20),
        "ready_s": round(server.ready_s, 1),
        "heard": [[turn.user_text, turn.reply_text, turn.voice_to_voice_ms, turn.latency_ms] for turn in turns],
    }


def print_table(result: dict[str, Any]) -> None:
    """Print the result for people."""
    print(f"{'':<18}{'n':>4}{'median ms':>11}{'95 % interval':>17}{'p95 ms':>9}")
    low, high = result["median_interval_ms"]
    shown = f"{low:.0f} … {high:.0f}"
    print(f"{'voice to voice':<18}{result['turns']:>4}{result['median_ms']:>11.0f}{shown:>17}{result['p95_ms']:>9.0f}")
    for stage, part in result["parts"].items():
        print(f"  {stage:<16}{part['n']:>4}{part['median_ms']:>11.0f}{'':>17}{part['p95_ms']:>9.0f}")
    print(f"{'two calls at once':<18}{result['two_calls_turns']:>4}{result['two_calls_median_ms']:>11.0f}")
    print(
        f"CPU of server and engines over the call: {result['cpu_cores']:.2f} cores; "
        f"resident {result['resident_mib']} MiB; ready after {result['ready_s']:.1f} s"
    )
    if result["loop_lag_p99_ms"] is not None:
        print(f"lag of the media loop, p99 of the last minute: {result['loop_lag_p99_ms']:.1f} ms")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and with --json one object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m bench.voice", description="Voice to voice, at the caller.")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("server", nargs="*", help="options of the server, after --")
    options = parser.parse_args(arguments)
    result = asyncio.run(measure(quick=options.quick, arguments=options.server))
    print_table(result)
    if options.json:
        print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
