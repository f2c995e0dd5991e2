"""`python -m impair simulate`: many calls in virtual time, the worst of them, the smallest trace that breaks one."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from impair.errors import ImpairError
from impair.profiles import COMPARED_PATHS
from impair.simulator import one_question
from impair.sweep import FAULTS, Case, shrink, sweep
from impair.traces import TraceRow, write_arrivals


def main(arguments: Sequence[str]) -> int:
    """Run the command: 0 done, 1 where the fault that was looked for was found, 2 where the command makes no sense."""
    parser = argparse.ArgumentParser(prog="python -m impair simulate", description=__doc__)
    names = ",".join(path.name for path in COMPARED_PATHS)
    parser.add_argument("--profiles", default=names, metavar="A,B,…", help="networks (the nine compared paths)")
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="seeds 1 to N on each (20)")
    parser.add_argument("--words", type=int, default=20, help="words the caller says (20)")
    parser.add_argument("--fault", choices=sorted(FAULTS), help="shrink the worst call that has this fault")
    parser.add_argument("--trace", type=Path, metavar="OUT.csv", help="where the shrunk trace goes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    begun, begun_cpu_s = time.monotonic(), _cpu_s()
    script = one_question(options.words)
    try:
        cases = list(sweep(script, options.profiles.split(","), range(1, options.seeds + 1)))
        took_s = time.monotonic() - begun
        rows = [_row(name, list(group)) for name, group in groupby(cases, key=lambda case: case.profile)]
        worst = max(cases, key=lambda case: case.badness)
        speed = len(cases) * script.length_s / took_s
        core_speed = len(cases) * script.length_s / max(1e-9, _cpu_s() - begun_cpu_s)
        if options.json:
            told = {"rows": rows, "worst": {"profile": worst.profile, "seed": worst.seed}, "times_real_time": speed}
            told["times_real_time_a_core"] = core_speed
            print(json.dumps(told))
        else:
            _print(rows, worst)
            print(f"{speed:.0f} times faster than real; {core_speed:.0f} times a core that does nothing else")
        return _shrink(options, cases) if options.fault else 0
    except ImpairError as error:
        print(f"python -m impair simulate: {error}", file=sys.stderr)
        return 2


def _cpu_s() -> float:
    """Computing time of this process and of its ended workers."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _row(name: str, cases: Sequence[Case]) -> dict[str, object]:
    answers = [case.outcome.answer_ms for case in cases if case.outcome.answer_ms is not None]
    return {
        "profile": name,
        "calls": len(cases),
        "words_lost_pct": 100
        * sum(case.outcome.words_lost for case in cases)
        / max(1, sum(case.outcome.words_said for case in cases)),
        "wrong_turns": sum(case.outcome.turns != 1 for case in cases),
        "concealed_pct": statistics.fmean(case.outcome.concealed_pct for case in cases),
        "answer_ms": statistics.median(answers) if answers else None,
        "unanswered": len(cases) - len(answers),
    }


def _print(rows: Sequence[dict[str, object]], worst: Case) -> None:
    print(f"{'network':20} {'calls':>5} {'words lost':>10} {'wrong turns':>11} {'made up':>8} {'answer ms':>9}")
    for row in rows:
        answer = row["answer_ms"]
        told = "—" if answer is None else f"{answer:.0f}"
        print(
            f"{row['profile']:20} {row['calls']:5} {row['words_lost_pct']:8.2f} % {row['wrong_turns']:11} "
            f"{row['concealed_pct']:6.2f} % {told:>9}"
        )
    print(
        f"worst: {worst.profile}, seed {worst.seed}: {worst.outcome.words_lost} words lost, {worst.outcome.turns} turns"
    )


def _shrink(options: argparse.Namespace, cases: Sequence[Case]) -> int:
    fault, script = FAULTS[options.fault], one_question(options.words)
    case = next(
        (case for case in sorted(cases, key=lambda c: c.badness, reverse=True) if fault(script, case.outcome)), None
    )
    if case is None:
        print(f"no call had the fault {options.fault!r}")
        return 0
    found = shrink(script, case.outcome, fault)
    print(
        f"{case.profile}, seed {case.seed}: of {found.of_events} lost and late packets {len(found.events)} suffice "
        f"({found.tried} calls tried), all others {found.base_ms:g} ms:"
    )
    for index, delay in found.events:
        print(f"  packet {index} at {index * 0.02:.2f} s: {'lost' if delay is None else f'{delay:.0f} ms'}")
    if options.trace is not None:
        events = dict(found.events)
        rows = []
        for index in range(len(case.outcome.up_delays_ms)):
            delay = events.get(index, found.base_ms)
            rows.append(TraceRow(index, index * 20.0, None if delay is None else index * 20.0 + delay))
        options.trace.write_text(write_arrivals(rows))
        print(f"written to {options.trace}")
    return 1
