"""`python -m jitter.replay`: a trace of arrivals through the buffer, offline. Nothing imports it.

It alone in jitter/ may use transport (libopus, for --audio) and matplotlib (for --plot).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from math import isfinite
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
from jitter.simulation import (
    RED_PAYLOAD_TYPE,
    TICKS_PER_MS,
    Simulation,
    Speech,
    TracePacket,
    media_timestamps,
)
from jitter.trace import Played, Trace
from jitter.trace_file import read_trace

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
LEGEND_COLUMNS = 8
MAX_RTT_MS = 60_000.0
PLOT_FORMATS = (".png", ".pdf", ".svg")
AUDIO_PTIMES_MS = (5, 10, 20, 40, 60)
"""What libopus encodes, in whole milliseconds."""


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
        _check(options)
        packets = read_trace(options.trace)
        figures = _run(packets, options)
    except (OSError, ValueError) as error:
        print(f"jitter.replay: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:18}{value:10.2f}")
    return 0


def _check(options: argparse.Namespace) -> None:
    """Raise ValueError for what would only be found out after the replay."""
    if not (isfinite(options.rtt_ms) and 0 <= options.rtt_ms <= MAX_RTT_MS):
        raise ValueError(f"--rtt-ms is {options.rtt_ms:g}, not 0 to {MAX_RTT_MS:g}")
    written = [path for path in (options.plot, options.audio and options.audio[1]) if path is not None]
    for path in written:
        if not path.parent.is_dir():
            raise ValueError(f"{path}: there is no folder {path.parent}")
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise ValueError(f"{path}: cannot be written")
    if options.plot and options.plot.suffix.lower() not in PLOT_FORMATS:
        raise ValueError(f"{options.plot}: a plot is one of {', '.join(PLOT_FORMATS)}")
    if options.audio and options.audio[1].suffix.lower() not in {".wav", ".flac"}:
        raise ValueError(f"{options.audio[1]}: sound is written as .wav or .flac")


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
        speech=sound.speech if sound else None,
        decoder=sound.decoder if sound else None,
        output=sound.add if sound else None,
    )
    if sound is not None:
        sound.write(options.audio[1])
    if options.plot:
        title = f"{options.trace.name}: {options.reader}, policy {options.policy}, repair {options.repair}"
        _plot(options.plot, packets, trace, title=title)
    return figures


class EncodedSpeech:
    """Real speech through real Opus: encoded with and without FEC, as the sender's plan has it at the moment."""

    def __init__(self, speech: Samples, *, packets: int, ptime_ms: int = 20) -> None:
        """`speech` (int16 at 48 kHz) is repeated, or cut, to last for `packets` packets."""
        from transport.opus import OpusEncoder  # noqa: PLC0415 - only who wants sound needs it

        frame = PLAYOUT_RATE_HZ * ptime_ms // 1000
        pieces = np.resize(speech, frame * packets).reshape(-1, frame)
        self._payloads: dict[bool, list[bytes]] = {}
        for fec in (False, True):
            encoder = OpusEncoder(PLAYOUT_RATE_HZ, AUDIO_BITRATE_BPS)
            encoder.set_fec(fec)
            encoder.set_expected_loss(AUDIO_EXPECTED_LOSS_PCT if fec else 0)
            self._payloads[fec] = [encoder.encode(piece) for piece in pieces]

    def payload(self, index: int, *, fec: bool) -> bytes:
        """Return packet `index`, encoded with FEC or without."""
        return self._payloads[fec][index]


class _Sound:
    """What --audio reads, sends, hears and writes."""

    def __init__(self, options: argparse.Namespace, packets: Sequence[TracePacket]) -> None:
        import soundfile  # noqa: PLC0415 - only --audio needs these
        import soxr  # noqa: PLC0415

        from transport.opus import OpusDecoder  # noqa: PLC0415

        try:
            given, rate_hz = soundfile.read(options.audio[0], dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise ValueError(f"{options.audio[0]}: {error.error_string}") from None
        if not len(given):
            raise ValueError(f"{options.audio[0]}: there is no sound in it")
        ptimes = {packet.ptime_ms for packet in packets}
        if len(ptimes) > 1 or not ptimes <= set(AUDIO_PTIMES_MS):
            raise ValueError(f"--audio needs one ptime_ms throughout, of {', '.join(map(str, AUDIO_PTIMES_MS))}")
        mono = soxr.resample(given.mean(axis=1), rate_hz, PLAYOUT_RATE_HZ)
        speech = np.asarray(np.clip(mono, -1, 1) * 32767, np.int16)
        self.speech = EncodedSpeech(speech, packets=len(packets), ptime_ms=packets[0].ptime_ms)
        self.decoder = OpusDecoder(PLAYOUT_RATE_HZ if options.reader == "playout" else LISTEN_RATE_HZ)
        self._heard: list[Samples] = []

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

    rows = 2 if trace.decided else 1
    figure, panels = plt.subplots(
        rows, 1, figsize=(14, 7), sharex=True, squeeze=False, height_ratios=(4, 1)[:rows], constrained_layout=True
    )
    delays, last = panels[0, 0], panels[-1, 0]
    _draw_delays(delays, packets, trace)
    if trace.decided:
        _draw_operations(last, trace)
    figure.suptitle(title)
    delays.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=LEGEND_COLUMNS, fontsize=9, frameon=False)
    last.set_xlabel("seconds")
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
    heard = {played.timestamp // TICKS_PER_MS for played in trace.played}
    gone = [
        (packet.sent_ms + fastest) / 1000
        for packet, start in zip(packets, media_timestamps(packets), strict=True)
        if heard.isdisjoint(range(start // TICKS_PER_MS, start // TICKS_PER_MS + packet.ptime_ms))
    ]
    axes.plot(gone, [-14.0] * len(gone), "|", color="#d35400", markersize=9, label="never played")
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
        [p.output for p in own],
        [_behind(p, start, fastest) for p in own],
        color="#1f2d3d",
        linewidth=1 if trace.decided else 0.5,
        label="output",
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
    axes.set_ylim(bottom=-20)
    axes.grid(alpha=0.3)


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
