"""`python -m peer.softphone URL`: call a server from the command line, with a recording or with a microphone.

With --play the recording is spoken, the replies are waited for, and a report is printed; without it the machine's own
microphone and speaker are used until Ctrl-C. Exit status: 0 done; 2 options or files that make no sense; 3 the server
refuses or is not there; 4 no media connection; 5 no reply in time; 6 the call ended early;
130 stopped by Ctrl-C (the report so far is still printed).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from peer.errors import ConfigError
from peer.softphone_audio import (
    RECORD_RATE_HZ,
    SEND_RATE_HZ,
    check_writable,
    read_audio,
    read_labels,
    speech_end_ms,
    write_audio,
)
from peer.softphone_call import CallOptions, SoftphoneCall, SoftphoneError
from peer.softphone_live import talk_live

STOPPED = 130
"""The exit status after Ctrl-C, as shells have it."""


def server_url(text: str) -> str:
    """Return the URL of a server; raises ArgumentTypeError, with what one looks like, where `text` is none."""
    example = "it should look like http://127.0.0.1:8080"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no URL ({error}); {example}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no URL of a server; {example}")
    return text


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m peer.softphone", description="Call an Antiphon server.")
    parser.add_argument("url", type=server_url, metavar="URL", help="the server, such as http://127.0.0.1:8080")
    parser.add_argument("--play", type=Path, metavar="IN.wav", help="a WAV or FLAC file to speak, not the microphone")
    parser.add_argument("--record", type=Path, metavar="OUT.wav", help="keep what the server says, from IN's start on")
    parser.add_argument("--turns", type=int, default=1, metavar="N", help="play the file N times, each after the reply")
    parser.add_argument("--json", action="store_true", help="report as one line of JSON, the last")
    parser.add_argument("--access-token", default="", metavar="TOKEN", help="the server's access token")
    parser.add_argument("--insecure", action="store_true", help="accept a certificate that nobody known has signed")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="longest wait for a reply to end")
    parser.add_argument("--no-echo-cancellation", action="store_true", help="microphone: only for headphones")
    return parser


async def call_with_recording(arguments: argparse.Namespace) -> dict[str, Any]:
    """Hold the call that the command line asks for and return its report; raises SoftphoneError, ConfigError."""
    samples = read_audio(arguments.play)
    if arguments.record is not None:
        check_writable(arguments.record)
    labels = read_labels(arguments.play)
    ends_ms = labels or [speech_end_ms(samples, SEND_RATE_HZ)]
    options = CallOptions(
        url=arguments.url,
        access_token=arguments.access_token,
        insecure=arguments.insecure,
        reply_timeout_s=arguments.timeout,
    )
    async with SoftphoneCall(options) as call:
        is_cut = False
        try:
            for index in range(arguments.turns):
                await call.play(samples, speech_ends_ms=ends_ms, labelled=labels is not None, first=index == 0)
        except asyncio.CancelledError:  # Ctrl-C: what has been heard so far is still worth a report
            is_cut = True
        finally:
            if arguments.record is not None:
                write_audio(arguments.record, call.recorder.recording(), RECORD_RATE_HZ)
        return report(call) | {"stopped": is_cut}


def report(call: SoftphoneCall) -> dict[str, Any]:
    """Return the report of a call."""
    stats = call.connection.stats()
    return {
        "connected_ms": call.connected_ms,
        "turns": [turn.report() for turn in call.log.turns],
        "rtt_ms": None if stats.rtt_ms is None else round(stats.rtt_ms, 2),
        "lost": stats.packets_lost,
        "concealed_pct": round(stats.concealed_pct, 2),
        "missed_slots": stats.missed_slots,
        "recorded": call.log.recorded,
        "errors": [{"code": error.code, "message": error.message} for error in call.log.errors],
    }


def print_report(summary: dict[str, Any]) -> None:
    """Print a report for people."""
    for turn in summary["turns"]:
        print(f"you:  {turn['user_text']}")
        cut = "  [interrupted]" if turn["interrupted"] else ""
        print(f"peer: {turn['heard_text']}{cut}")
        if turn["voice_to_voice_ms"] is not None:
            print(f"      answered after {turn['voice_to_voice_ms']:.0f} ms")
    for error in summary["errors"]:
        print(f"error: {error['message']}")
    if summary["recorded"]:
        print("the server has recorded this call")
    rtt = summary["rtt_ms"]
    print(
        f"connected in {summary['connected_ms']:.0f} ms, round trip {'?' if rtt is None else f'{rtt:.1f}'} ms, "
        f"{summary['lost']} packets lost, {summary['concealed_pct']:.1f} % concealed"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the softphone; returns the exit status."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.turns < 1:
        parser.error("--turns: must be 1 or more")
    try:
        if options.play is None:
            asyncio.run(talk_live(options))
            return 0
        summary = asyncio.run(call_with_recording(options))
    except (ConfigError, SoftphoneError) as error:
        print(f"softphone: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    except KeyboardInterrupt:
        return STOPPED
    if options.json:
        print(json.dumps(summary, ensure_ascii=False))
    else:
        print_report(summary)
    return STOPPED if summary["stopped"] else 0


if __name__ == "__main__":
    sys.exit(main())
