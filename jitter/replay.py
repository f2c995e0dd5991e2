"""`python -m jitter.replay`: a trace of arrivals through the buffer, offline. Nothing imports it.

It alone in jitter/ may use transport (libopus, for --audio) and matplotlib (for --plot).
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jitter.controller import Controller, parse_policy
from jitter.decoder import AudioDecoder
from jitter.frame import AudioFrame, FrameKind
from jitter.listen import ListenReader
from jitter.measure import measure
from jitter.planner import Listener
from jitter.playout import PlayoutReader
from jitter.repair import RepairPlan
from jitter.replay_speech import ClipDecoder, ClipSpeech
from jitter.simulation import RED_PAYLOAD_TYPE, Simulation, Speech, TracePacket
from jitter.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_RTT_MS = 60.0
PLAYOUT_RATE_HZ = 48_000
LISTEN_RATE_HZ = 16_000


class TraceError(ValueError):
    """A trace file that cannot be read; the message says where."""


def read_trace(path: Path) -> list[TracePacket]:
    """Return the packets of a CSV trace in sending order; raises TraceError."""
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        missing = {"seq", "sent_ms", "arrival_ms"} - set(rows.fieldnames or ())
        if missing:
            raise TraceError(f"{path}: no column {', '.join(sorted(missing))}")
        packets = []
        for line, row in enumerate(rows, start=2):
            try:
                packets.append(
                    TracePacket(
                        sequence=int(row["seq"]),
                        sent_ms=float(row["sent_ms"]),
                        arrival_ms=float(row["arrival_ms"]) if row["arrival_ms"] else None,
                        size_bytes=int(row.get("bytes") or 60),
                        ptime_ms=int(row.get("ptime_ms") or 20),
                    )
                )
            except (TypeError, ValueError) as error:
                raise TraceError(f"{path}:{line}: {error}") from error
    if not any(packet.arrival_ms is not None for packet in packets):
        raise TraceError(f"{path}: no packet arrived")
    return packets


def parse_repair(name: str) -> RepairPlan | None:
    """Return the plan called `name` (none, fec, red:N, nack), None for auto; raises ValueError for another."""
    if name == "auto":
        return None
    if name in {"none", "fec", "nack"}:
        return RepairPlan(fec=name == "fec", nack=name == "nack")
    kind, _, depth = name.partition(":")
    if kind != "red" or not depth.isdecimal() or not 1 <= int(depth) <= 9:
        raise ValueError(f"no repair {name!r}: none, fec, red:N (1 to 9), nack or auto")
    return RepairPlan(red_offsets=tuple(range(1, int(depth) + 1)))


def replay(
    packets: Sequence[TracePacket],
    *,
    reader: str = "playout",
    policy: str = "auto",
    repair: str = "none",
    rtt_ms: float = DEFAULT_RTT_MS,
    seed: int = 0,
    speech: Speech | None = None,
    decoder: AudioDecoder | None = None,
    output: Callable[[AudioFrame], None] | None = None,
    trace: Trace | None = None,
) -> dict[str, float]:
    """Run `packets` through a reader and return the figures of the command's JSON; `trace` is filled if given."""
    plan = parse_repair(repair)
    listening = reader == "listen"
    controller = Controller(
        listener=Listener.LISTEN if listening else Listener.PLAYOUT,
        policy=policy,
        plan=plan,
        ptime_ms=packets[0].ptime_ms,
    )
    trace = trace if trace is not None else Trace.empty()
    decoder = decoder or ClipDecoder(LISTEN_RATE_HZ if listening else PLAYOUT_RATE_HZ, silent=listening)
    built: ListenReader | PlayoutReader
    if listening:
        built = ListenReader(decoder, controller=controller, red_payload_type=RED_PAYLOAD_TYPE, trace=trace)
    else:
        built = PlayoutReader(decoder, controller=controller, red_payload_type=RED_PAYLOAD_TYPE, trace=trace)
    speech = speech or ClipSpeech([packet.ptime_ms for packet in packets], seed=seed)
    simulation = Simulation(
        packets, built, controller, speech, rtt_ms=rtt_ms, seed=seed, start_plan=controller.decision.plan
    )
    gaps = _Gaps(decoder.sample_rate_hz, output)
    simulation.output = gaps.add
    simulation.run()
    return measure(
        packets, simulation, trace, built.stats, timestamps=simulation.timestamps, longest_gap_ms=gaps.longest_ms
    )


class _Gaps:
    """Follows the longest run of concealment in what is put out."""

    def __init__(self, sample_rate_hz: int, output: Callable[[AudioFrame], None] | None) -> None:
        self._rate = sample_rate_hz
        self._output = output
        self._run = 0
        self._longest = 0

    @property
    def longest_ms(self) -> float:
        return self._longest * 1000 / self._rate

    def add(self, frame: AudioFrame) -> None:
        if frame.kind is FrameKind.CONCEALED:
            self._run += len(frame.samples)
            self._longest = max(self._longest, self._run)
        else:
            self._run = 0
        if self._output is not None:
            self._output(frame)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m jitter.replay", description=__doc__)
    parser.add_argument("trace", type=Path, metavar="TRACE.csv")
    parser.add_argument("--reader", choices=("playout", "listen"), default="playout")
    parser.add_argument("--policy", default="auto", help="auto, quantile, formula or fixed:MS")
    parser.add_argument("--repair", default="auto", help="none, fec, red:N, nack or auto")
    parser.add_argument("--rtt-ms", type=float, default=DEFAULT_RTT_MS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="OUT.png")
    parser.add_argument("--audio", type=Path, nargs=2, metavar=("IN.wav", "OUT.wav"))
    options = parser.parse_args(arguments)
    try:
        parse_policy(options.policy)
        parse_repair(options.repair)
        packets = read_trace(options.trace)
    except (OSError, ValueError) as error:
        print(f"jitter.replay: {error}", file=sys.stderr)
        return 2
    figures = _run(packets, options)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:18}{value:10.2f}")
    return 0


def _run(packets: list[TracePacket], options: argparse.Namespace) -> dict[str, float]:
    trace = Trace.empty()
    common = {
        "reader": options.reader,
        "policy": options.policy,
        "repair": options.repair,
        "rtt_ms": options.rtt_ms,
        "seed": options.seed,
    }
    return replay(packets, trace=trace, **common)


if __name__ == "__main__":
    sys.exit(main())
