"""Real calls to every target on every profile, one after the other, each through a relay of its own with the same seed.

A call: some turns; then the caller interrupts a reply; then everything is lost for two seconds, and he speaks again one
second after; then, while he is answered, his address changes. What cannot be measured is named with its reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import itertools
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from impair.caller import Caller, CallRecord, Clip, Marks
from impair.errors import ImpairError, TargetError
from impair.flows import Address
from impair.hearing import RATE_HZ, Heard
from impair.ice_proxy import IceProxy
from impair.judging import came_to_its_end, judge, replies_told
from impair.page_caller import PageCaller
from impair.profile import Direction
from impair.reading import CleanReader
from impair.relay_process import RelayProcess
from impair.results import METRICS, CallResult, RunResult
from impair.scorer import JUDGE_MODEL, Scorer
from impair.targets import Signaling, Target
from impair.traces import load_profile
from peer.softphone_audio import write_audio

OUTAGE_S = 2.0
AFTER_OUTAGE_S = 1.0
REPLY_TIMEOUT_S = 12.0
_REPLY_END_S = 12.0
_QUIET_S = 0.8
_INTERRUPT_AFTER_S = 0.5
_INTERRUPTIONS = 2
"""Replies that are tried: one may be over before it can be interrupted."""
_JUST_NOW_S = 0.06
_PAUSE_S = 1.5
"""Longer than a pause between two sentences."""
_GREETING_S = 0.6
_MOVE_AFTER_S = 0.3
_MOVE_TIMEOUT_S = 6.0
"""Whoever follows does so within 3 s."""
_OVERLOAD = 1.5
"""Programs that wait for each core, beyond which times tell more of the machine than of the network."""
_MOVE_POLL_S = 0.2


def _say(line: str) -> None:
    print(line, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What to run."""

    targets: Sequence[Target]
    profiles: Sequence[str]
    clips: Sequence[Clip]
    out: Path
    seed: int = 1
    turns: int = 1
    """Plain turns before the caller interrupts one."""
    say: Callable[[str], None] = _say


async def run(options: RunOptions) -> RunResult:
    """Hold every call and judge it; a call that fails is a result too."""
    for profile in options.profiles:
        load_profile(profile)  # a wrong name is said before any call
    if not options.clips:
        raise ImpairError("there is nothing to say: no WAV or FLAC file")
    options.out.mkdir(parents=True, exist_ok=True)
    begun = dt.datetime.now(dt.UTC)
    result = RunResult(
        title="Voice on bad networks",
        begun=begun.isoformat(timespec="seconds"),
        machine={"system": platform.platform(), "python": platform.python_version(), "cpus": os.cpu_count()},
        targets={target.name: f"{target.kind}: {target.url}" for target in options.targets},
        profiles=[
            {"name": name, "summary": profile.summary, "source": profile.source}
            for name in (options.profiles if options.targets else ())
            for profile in (load_profile(name),)
        ],
        seed=options.seed,
    )
    scorer = Scorer()
    clips = await asyncio.to_thread(with_words, options.clips, scorer, result.remarks)
    options = dataclasses.replace(options, clips=clips)
    async with CleanReader() as reader:
        for profile in options.profiles:
            for target in options.targets:
                call = await _call(target, profile, options, scorer, reader)
                result.calls.append(call)
                options.say(_line(call))
    if reader.reason is not None:
        result.remarks.append(
            f"The recogniser's own errors are part of the words lost on the way back: {reader.reason}."
        )
    tell_overload(result)
    result.duration_s = (dt.datetime.now(dt.UTC) - begun).total_seconds()
    return result


def with_words(clips: Sequence[Clip], scorer: Scorer, remarks: list[str]) -> list[Clip]:
    """Clips without a text get the words that the judge understands in them, undamaged as they are; blocks."""
    told = []
    for clip in clips:
        text = clip.text or scorer.transcribe(clip.samples, RATE_HZ)[0] or None
        told.append(dataclasses.replace(clip, text=text))
    named = [one.name for one, clip in zip(told, clips, strict=True) if clip.text is None and one.text is not None]
    if named:
        remarks.append(
            f"Words are held against what {JUDGE_MODEL} understands in the undamaged recording where no text lies "
            f"beside it (NAME.txt): {', '.join(named)}."
        )
    return told


def tell_overload(result: RunResult) -> None:
    """Say where more programs wanted to run than there are cores."""
    cores = os.cpu_count() or 1
    worst = max((call.load for call in result.calls), default=0.0)
    if worst > _OVERLOAD * cores:
        result.remarks.append(
            f"The machine was overloaded: up to {worst:.0f} programs wanted its {cores} cores at once, so that times "
            "tell more of it than of the networks."
        )


def _line(call: CallResult) -> str:
    if call.failure is not None:
        return f"{call.profile:20} {call.target:16} failed: {call.failure}"
    told = [
        f"{metric.title.lower()} {call.figures[metric.name]:.{metric.digits}f} {metric.unit}"
        for metric in METRICS
        if metric.name in call.figures
    ]
    return f"{call.profile:20} {call.target:16} {', '.join(told)}"


async def _call(target: Target, profile: str, options: RunOptions, scorer: Scorer, reader: CleanReader) -> CallResult:
    result = CallResult(target=target.name, profile=profile, seed=options.seed, url=target.url)
    loop = asyncio.get_running_loop()
    begun_at = loop.time()
    # First as from behind a NAT, so that the caller's address can change; a target that has no address of its own to
    # tell must be told the caller's.
    marks, record, heard, tells = await _hold(target, profile, options, result, behind_nat=True)
    if result.failure is not None and not tells:
        marks, record, heard, tells = await _hold(target, profile, options, result, behind_nat=False)
    result.load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    readings = {text: await reader.read(text) for text in replies_told(record)}
    await asyncio.to_thread(judge, result, record, marks, heard, scorer, readings)
    if heard is not None:
        name = f"{target.name}-{profile}".replace(" ", "_").replace(":", "_").replace("/", "_") + ".wav"
        write_audio(options.out / name, heard.samples, RATE_HZ)
        result.recording = name
    result.duration_s = loop.time() - begun_at
    return result


async def _hold(
    target: Target, profile: str, options: RunOptions, result: CallResult, *, behind_nat: bool
) -> tuple[Marks, CallRecord, Heard | None, bool]:
    """One call; its marks and record, what was heard, and whether the target tells its own addresses."""
    loop = asyncio.get_running_loop()
    marks, record = Marks(), CallRecord()
    caller: Caller | PageCaller | None = None
    tells = True
    result.failure = None
    relay = RelayProcess(profile, seed=options.seed)

    async def add_route(to: Address, way: Direction) -> Address:
        return await relay.add_route(to, way)

    try:
        proxy = IceProxy(target.url, add_route, behind_nat=behind_nat)
        async with relay, proxy, aiohttp.ClientSession() as http:
            if target.kind == "page":
                caller = PageCaller(proxy.url, selector=target.selector)
            else:
                caller = Caller(Signaling(target.kind, proxy.url, http))
            record = caller.record
            try:
                async with caller:
                    await _converse(caller, relay, options, marks, behind_nat=behind_nat)
                    marks.ended_at = loop.time()
            finally:
                tells = proxy.rewriter.answers_have_candidates
    except ImpairError as error:
        result.failure = str(error)
        marks.ended_at = loop.time()
    result.network = relay.report
    counted_until = marks.outage[0] if marks.outage else marks.ended_at
    heard: Heard | None = None
    if caller is not None:
        heard = await asyncio.to_thread(caller.heard, until=marks.ended_at, counted_until=counted_until)
    return marks, record, heard, tells


async def _converse(
    caller: Caller | PageCaller, relay: RelayProcess, options: RunOptions, marks: Marks, *, behind_nat: bool
) -> None:
    first = options.clips[0]
    clips = itertools.cycle(options.clips)
    await caller.wait_for_quiet(quiet_s=_GREETING_S, timeout_s=_REPLY_END_S)
    for _ in range(options.turns):
        await _turn(caller, next(clips), marks)
    for _ in range(_INTERRUPTIONS):
        if not await _interrupt(caller, next(clips), next(clips), marks):
            break
    # The same words as in the first turn, so that what the outage cost can be told from what they always cost.
    await _outage(caller, relay, first, marks)
    if behind_nat:
        await _move(caller, relay, marks)
    else:
        marks.no_move = "the target tells no address of its own, so it must know the caller's, which then cannot change"


async def _turn(caller: Caller | PageCaller, clip: Clip, marks: Marks) -> None:
    said = await caller.say(clip)
    if await caller.wait_for_sound(after=said.speech_ended_at, timeout_s=REPLY_TIMEOUT_S) is None:
        marks.missing_replies += 1
        return
    await caller.wait_for_quiet(quiet_s=_QUIET_S, timeout_s=_REPLY_END_S)


async def _interrupt(caller: Caller | PageCaller, clip: Clip, interrupting: Clip, marks: Marks) -> bool:
    """Ask, and speak over the reply; True where that came to its own end, so that another is worth a try."""
    loop = asyncio.get_running_loop()
    said = await caller.say(clip)
    if await caller.wait_for_sound(after=said.speech_ended_at, timeout_s=REPLY_TIMEOUT_S) is None:
        marks.missing_replies += 1
        marks.no_interruption = "no reply came that could be interrupted"
        return False
    await asyncio.sleep(_INTERRUPT_AFTER_S)
    if await caller.wait_for_sound(after=loop.time() - _JUST_NOW_S, timeout_s=_PAUSE_S) is None:
        marks.no_interruption = f"every reply was over within {_INTERRUPT_AFTER_S:g} s"
        return True
    marks.interruption = await caller.say(interrupting)
    if await caller.wait_for_sound(after=marks.interruption.speech_ended_at, timeout_s=REPLY_TIMEOUT_S) is None:
        marks.missing_replies += 1
    await caller.wait_for_quiet(quiet_s=_QUIET_S, timeout_s=_REPLY_END_S)
    return came_to_its_end(caller.record, said)


async def _outage(caller: Caller | PageCaller, relay: RelayProcess, clip: Clip, marks: Marks) -> None:
    loop = asyncio.get_running_loop()
    await caller.before_outage()
    begun_at = loop.time()
    await relay.begin_outage(OUTAGE_S)
    marks.outage = (begun_at, loop.time() + OUTAGE_S)
    await asyncio.sleep(marks.outage[1] - loop.time())
    await caller.wait_for_media(after=marks.outage[1], timeout_s=AFTER_OUTAGE_S)
    await asyncio.sleep(max(0.0, marks.outage[1] + AFTER_OUTAGE_S - loop.time()))
    marks.after_outage = await caller.say(clip)
    if await caller.wait_for_sound(after=marks.after_outage.speech_ended_at, timeout_s=REPLY_TIMEOUT_S) is None:
        marks.missing_replies += 1
    await asyncio.sleep(_MOVE_AFTER_S)


async def _move(caller: Caller | PageCaller, relay: RelayProcess, marks: Marks) -> None:
    """Change the caller's address and wait for the target's media to follow."""
    loop = asyncio.get_running_loop()
    marks.no_move = f"no media came to the new address within {_MOVE_TIMEOUT_S:g} s"
    marks.moved_at = loop.time()
    deadline = marks.moved_at + _MOVE_TIMEOUT_S
    await relay.rebind()
    while loop.time() < deadline:
        caller.check()
        moves = (await relay.stats())["relay"]["moves_ms"]
        if moves:
            marks.moved_ms = float(moves[0])
            return
        await asyncio.sleep(_MOVE_POLL_S)


def load_clips(folder: Path) -> list[Clip]:
    """Every WAV and FLAC file of a folder, the shortest first, so that calls are short.

    ImpairError where there is none or one cannot be read.
    """
    if not folder.is_dir():
        raise ImpairError(f"{folder} is no folder")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in {".wav", ".flac"})
    if not paths:
        raise ImpairError(f"{folder} has no WAV or FLAC file")
    try:
        return sorted((Clip.load(path) for path in paths), key=lambda clip: (clip.speech_end_s, clip.name))
    except Exception as error:
        raise ImpairError(str(error)) from error


async def check_targets(targets: Sequence[Target]) -> None:
    """Raise TargetError for the first target that nobody serves: better before a run than in the midst of it."""
    async with aiohttp.ClientSession() as http:
        for target in targets:
            try:
                async with http.get(target.url, timeout=aiohttp.ClientTimeout(total=10), ssl=False) as response:
                    with contextlib.suppress(aiohttp.ClientError):
                        await response.read()
            except (aiohttp.ClientError, TimeoutError) as error:
                raise TargetError(f"{target.name} at {target.url} does not answer: {error or 'in time'}") from error
