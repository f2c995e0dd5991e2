"""`python -m impair run`: targets on networks, and one report of it."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from impair import plots, report
from impair.errors import ImpairError
from impair.harness import RunOptions, check_targets, load_clips, run
from impair.profiles import COMPARED_PATHS
from impair.receivers import compare, looped
from impair.results import RunResult, read_json, write_json, write_junit
from impair.targets import Target
from impair.traces import load_profile

DEFAULT_PROFILES = "none,wifi_lossy,loss5_jitter30,burst5x3_jitter20,congested"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(
        prog="python -m impair run",
        description="Call targets through bad networks and report how they did.",
        epilog="A target is [NAME=][KIND:]URL. antiphon: takes POST /calls; offer: takes {sdp, type} at its URL; "
        "without a kind, a URL that ends in 'offer' is an offer, any other an antiphon.",
    )
    options.add_argument("--target", action="append", default=[], metavar="[NAME=][KIND:]URL", help="may be repeated")
    options.add_argument("--profiles", default=DEFAULT_PROFILES, metavar="A,B,…", help=f"networks ({DEFAULT_PROFILES})")
    options.add_argument("--speech", type=Path, metavar="DIR", help="WAV or FLAC files to say; NAME.txt: what they say")
    options.add_argument("--out", type=Path, required=True, metavar="DIR", help="where report.html and the rest go")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--turns", type=int, default=1, help="plain turns before the interrupted one (1)")
    options.add_argument(
        "--receivers",
        metavar="A,B,…|all",
        help="also let Chromium's NetEQ and our playout reader play the same packets on these networks; all: the nine "
        "compared paths",
    )
    options.add_argument("--receiver-s", type=float, default=60.0, help="seconds of speech a path for that (60)")
    options.add_argument("--beside", type=Path, metavar="results.json", help="put an earlier run beside this one")
    options.add_argument("--no-pdf", action="store_true")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the command: 0 done, 1 where a call failed, 2 where the command makes no sense, 130 where it was ended."""
    options = parser().parse_args(arguments)
    try:
        result = asyncio.run(_until_told_to_end(options))
        write_all(result, options.out, pdf=not options.no_pdf)
    except (ImpairError, OSError) as error:
        print(f"python -m impair run: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("python -m impair run: ended before its time; nothing was written", file=sys.stderr)
        return 130
    return int(any(call.failure is not None for call in result.calls))


async def _until_told_to_end(options: argparse.Namespace) -> RunResult:
    """Let SIGTERM end calls, relays and browsers in order, as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await _run(options)


async def _run(options: argparse.Namespace) -> RunResult:
    plots.require()
    targets = [Target.parse(text) for text in options.target]
    if not targets and not options.receivers:
        raise ImpairError("name a --target, or --receivers")
    if len({target.name for target in targets}) < len(targets):
        raise ImpairError("two targets have the same name; write NAME=URL")
    profiles = list(dict.fromkeys(name for name in options.profiles.split(",") if name))
    if targets and not profiles:
        raise ImpairError("name a network with --profiles")
    if options.turns < 0 or not options.receiver_s > 0:
        raise ImpairError("--turns takes 0 or more, --receiver-s more than 0")
    if options.speech is None:
        raise ImpairError("name a folder of recordings with --speech")
    receivers: list[str] = []
    if options.receivers:
        receivers = (
            [path.name for path in COMPARED_PATHS] if options.receivers == "all" else options.receivers.split(",")
        )
        for name in receivers:
            load_profile(name)
    earlier = read_earlier(options.beside) if options.beside else None
    clips = load_clips(options.speech)
    await check_targets(targets)
    result = await run(
        RunOptions(
            targets=targets,
            profiles=profiles,
            clips=clips,
            out=options.out,
            seed=options.seed,
            turns=options.turns,
        )
    )
    if receivers:
        speech = looped([clip.samples for clip in clips])
        result.receivers = await compare(receivers, speech, seed=options.seed, duration_s=options.receiver_s)
        result.duration_s += options.receiver_s * len(receivers)
    if earlier is not None:
        put_beside(result, earlier, options.beside.stem)
    return result


def read_earlier(path: Path) -> RunResult:
    """A run's results.json; ImpairError where it is none."""
    try:
        return read_json(path)
    except ValueError as error:
        raise ImpairError(f"{path} is no results.json of a run: {error}") from error


def put_beside(result: RunResult, earlier: RunResult, label: str) -> None:
    """Add an earlier run's targets, as two commits are compared; their names say when they were measured."""
    for name, what in earlier.targets.items():
        renamed = f"{name} ({label} {earlier.begun[:16]})"
        result.targets[renamed] = what
        for call in earlier.calls:
            if call.target == name:
                call.target, call.recording = renamed, None
                result.calls.append(call)
    known = {profile["name"] for profile in result.profiles}
    result.profiles += [profile for profile in earlier.profiles if profile["name"] not in known]
    if earlier.seed != result.seed:
        result.remarks.append(f"The earlier run had the seed {earlier.seed}, so its networks drew other losses.")


def write_all(result: RunResult, out: Path, *, pdf: bool) -> None:
    """Write results.json, junit.xml, report.html and report.pdf; a PDF that cannot be had is said."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(result, out / "results.json")
    write_junit(result, out / "junit.xml")
    report.write_html(result, out / "report.html")
    written = ["report.html", "results.json", "junit.xml"]
    if pdf:
        try:
            report.write_pdf(out / "report.html", out / "report.pdf")
            written.append("report.pdf")
        except ImpairError as error:
            print(f"python -m impair run: no PDF: {error}", file=sys.stderr)
    print(f"{out}: {', '.join(written)} ({result.duration_s:.0f} s)")
