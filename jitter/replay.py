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

import numpy as np

from jitter.controller import Controller, parse_policy
from jitter.decoder import AudioDecoder, Samples
from jitter.frame import AudioFrame, FrameKind
from jitter.listen import ListenReader
from jitter.measure import measure
from jitter.planner import Listener
from jitter.playout import PlayoutReader
from jitter.repair import RepairPlan
from jitter.replay_speech import ClipDecoder, ClipSpeech
from jitter.simulation import RED_PAYLOAD_TYPE, Simulation, Speech, TracePacket
from jitter.trace import Played, Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

DEFAULT_RTT_MS = 60.0
AUDIO_BITRATE_BPS = 24_000
AUDIO_EXPECTED_LOSS_PCT = 10
PLAYOUT_RATE_HZ = 48_000
LISTEN_RATE_HZ = 16_000

STRETCHES = ("accelerate", "fast_accelerate", "preemptive_expand")
STYLES = {
    FrameKind.FEC: ("#2a7f62", "played from FEC"),
    FrameKind.RED: ("#3f6fb5", "played from a RED copy"),
    FrameKind.RETRANSMITTED: ("#8a5bb0", "played from an answer to NACK"),
}
LEGEND_COLUMNS = 4


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
    sound = _Sound(options, packets) if options.audio else None
    figures = replay(
        packets,
        reader=options.reader,
        policy=options.policy,
        repair=options.repair,
        rtt_ms=options.rtt_ms,
        seed=options.seed,
        trace=trace,
        speech=sound,
        decoder=sound.decoder if sound else None,
        output=sound.add if sound else None,
    )
    if sound is not None:
        sound.write(options.audio[1])
    if options.plot:
        title = f"{options.trace.name}: {options.reader}, policy {options.policy}, repair {options.repair}"
        _plot(options.plot, packets, trace, title=title)
    return figures


class _Sound:
    """Real speech through real Opus: encoded with and without FEC, as the sender's plan has it at the moment."""

    def __init__(self, options: argparse.Namespace, packets: Sequence[TracePacket]) -> None:
        import soundfile  # noqa: PLC0415 - only --audio needs these
        import soxr  # noqa: PLC0415

        from transport.opus import OpusDecoder, OpusEncoder  # noqa: PLC0415

        given, rate_hz = soundfile.read(options.audio[0], dtype="float32", always_2d=True)
        mono = soxr.resample(given.mean(axis=1), rate_hz, PLAYOUT_RATE_HZ)
        frame = PLAYOUT_RATE_HZ * packets[0].ptime_ms // 1000
        speech = np.resize(np.asarray(mono * 32767, np.int16), frame * len(packets))
        self._payloads: dict[bool, list[bytes]] = {}
        for fec in (False, True):
            encoder = OpusEncoder(PLAYOUT_RATE_HZ, AUDIO_BITRATE_BPS)
            encoder.set_fec(fec)
            encoder.set_expected_loss(AUDIO_EXPECTED_LOSS_PCT if fec else 0)
            self._payloads[fec] = [encoder.encode(piece) for piece in speech.reshape(-1, frame)]
        self.decoder = OpusDecoder(PLAYOUT_RATE_HZ if options.reader == "playout" else LISTEN_RATE_HZ)
        self._heard: list[Samples] = []

    def payload(self, index: int, *, fec: bool) -> bytes:
        """Return packet `index`, encoded with FEC or without."""
        return self._payloads[fec][index]

    def add(self, frame: AudioFrame) -> None:
        """Take what is put out."""
        self._heard.append(frame.samples)

    def write(self, path: Path) -> None:
        """Write what one would have heard."""
        import soundfile  # noqa: PLC0415

        soundfile.write(path, np.concatenate(self._heard), self.decoder.sample_rate_hz)


def _plot(path: Path, packets: Sequence[TracePacket], trace: Trace, *, title: str) -> None:
    """Write a PNG: arrivals, target, playout, losses, repairs and operations over time; delays against the fastest."""
    import matplotlib as mpl  # noqa: PLC0415 - only who plots needs it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (delays, operations) = plt.subplots(
        2, 1, figsize=(14, 7), sharex=True, height_ratios=(4, 1), constrained_layout=True
    )
    _draw_delays(delays, packets, trace)
    _draw_operations(operations, trace)
    delays.set_title(title)
    operations.set_xlabel("seconds")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_delays(axes: Axes, packets: Sequence[TracePacket], trace: Trace) -> None:
    arrived = [(p.sent_ms, p.arrival_ms - p.sent_ms) for p in packets if p.arrival_ms is not None]
    fastest = min(delay for _, delay in arrived)
    axes.plot(
        [(sent + fastest) / 1000 for sent, _ in arrived],
        [delay - fastest for _, delay in arrived],
        ".",
        color="#9aa5b1",
        markersize=3,
        label="arrival",
    )
    lost = [(p.sent_ms + fastest) / 1000 for p in packets if p.arrival_ms is None]
    axes.plot(lost, [-6.0] * len(lost), "|", color="#c0392b", markersize=9, label="lost")
    if trace.decided:
        axes.plot(
            [d.now for d in trace.decided],
            [d.target_ms for d in trace.decided],
            color="#e08e0b",
            linewidth=1.6,
            label="target",
        )
    start = packets[0].sent_ms
    own = [p for p in trace.played if p.kind not in STYLES]
    axes.plot(
        [p.output for p in own], [_behind(p, start, fastest) for p in own], color="#1f2d3d", linewidth=1, label="output"
    )
    for kind, (color, label) in STYLES.items():
        some = [p for p in trace.played if p.kind is kind]
        if some:
            axes.plot(
                [p.output for p in some],
                [_behind(p, start, fastest) for p in some],
                "o",
                color=color,
                markersize=3.5,
                label=label,
            )
    axes.set_ylabel("ms after the earliest moment")
    axes.set_ylim(bottom=-15)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", ncols=LEGEND_COLUMNS, fontsize=9)


def _behind(played: Played, start_ms: float, fastest_ms: float) -> float:
    return played.output * 1000 - (start_ms + played.timestamp / 48 + fastest_ms)


def _draw_operations(axes: Axes, trace: Trace) -> None:
    rows = ("expand", "merge", "recover", *STRETCHES)
    for row, name in enumerate(rows):
        times = [d.now for d in trace.decided if d.operation == name]
        axes.plot(times, [row] * len(times), "|", markersize=8)
    axes.set_yticks(range(len(rows)), [name.replace("_", " ") for name in rows], fontsize=9)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(alpha=0.3, axis="x")


if __name__ == "__main__":
    sys.exit(main())
