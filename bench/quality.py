"""How our playout and NetEQ sound on the same packets: PLCMOS and word error rate.

    python -m bench.quality [--quick] [--path NAME …] [--seed N] [--json]

A stock aiortc sender speaks through the relay to Chromium, and what comes out of its NetEQ is recorded. The relay's log
of the same packets is replayed through our playout reader: with the very same payloads and no repair, and with repair,
for which the sender has to be ours too. One recogniser and one PLCMOS judge every sentence of all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile
from aiortc.codecs.opus import OpusEncoder as AiortcEncoder

from bench.quality_judge import (
    NO_SOUND,
    UNDISTURBED,
    Job,
    Material,
    Verdict,
    compared,
    judge,
    load,
    material,
    pooled,
    save,
    summary,
)
from bench.quality_page import RATE_HZ, record, recorded
from impair.chromium import chromium_page, neteq
from impair.receivers import before_others, round_trip_ms, trace_of_log
from impair.relay_process import RelayProcess
from impair.traces import load_profile
from impair.waiting import receiver_priority
from jitter.decoder import Samples
from jitter.replay import EncodedSpeech, replay
from jitter.simulation import TracePacket
from transport.opus import OpusDecoder

LOSSY_PATHS = ("loss1", "loss5", "loss5_jitter30", "burst5x3_jitter20", "loss20_jitter40")
QUICK_PATHS = ("loss5_jitter30", "loss20_jitter40")
QUICK_SENTENCES = 12
FRAME = RATE_HZ // 50
TAIL_S = 8.0
RECEIVERS = ("neteq", "ours", "ours_with_repair")


class PlainSpeech:
    """The payloads that a stock aiortc sender makes of the speech: no FEC, whatever is wished for."""

    def __init__(self, speech: Samples, *, packets: int) -> None:
        encoder = AiortcEncoder()
        self._payloads: list[bytes] = []
        frames = np.resize(speech[: len(speech) // FRAME * FRAME], packets * FRAME).reshape(-1, FRAME)
        for index, samples in enumerate(frames):
            frame = av.AudioFrame.from_ndarray(samples[None], "s16", "mono")
            frame.sample_rate, frame.pts = RATE_HZ, index * FRAME
            self._payloads += encoder.encode(frame)[0]
        self._payloads += self._payloads[-1:]  # the encoder may hold one back

    def payload(self, index: int, *, fec: bool) -> bytes:  # noqa: ARG002 - jitter.simulation.Speech
        """Return packet `index`."""
        return self._payloads[min(index, len(self._payloads) - 1)]


async def play(path: str, said: Material, *, seed: int, folder: Path) -> None:
    """Let Chromium play one path in real time; leave what it played and the relay's log in `folder`."""
    async with chromium_page(prepare=receiver_priority) as page:
        await record(page)
        async with RelayProcess(path, seed=seed, media="down", log=folder / f"{path}.log") as relay:
            figures = await neteq(page, relay, said.speech, duration_s=len(said.speech) / RATE_HZ + TAIL_S)
        heard = await recorded(page)
    await asyncio.to_thread(soundfile.write, folder / f"{path}.neteq.wav", heard, RATE_HZ)
    told = {"delay_ms": figures.delay_ms, "concealed_pct": figures.concealed_pct}
    (folder / f"{path}.neteq.json").write_text(json.dumps(told), encoding="utf-8")


def replay_ours(path: str, said: Material, *, seed: int, folder: Path) -> None:
    """Put the same packets through our reader, without repair and with it; leave what was heard in `folder`."""
    rows, _ = trace_of_log((folder / f"{path}.log").read_text(encoding="utf-8"))
    packets = [TracePacket(sequence=row.seq, sent_ms=row.sent_ms, arrival_ms=row.arrival_ms) for row in rows]
    for name, repair in (("ours", "none"), ("ours_with_repair", "auto")):
        speech = (EncodedSpeech if repair == "auto" else PlainSpeech)(said.speech, packets=len(packets))
        heard: list[Samples] = []
        figures = replay(
            packets,
            repair=repair,
            rtt_ms=round_trip_ms(load_profile(path)),
            seed=seed,
            speech=speech,
            decoder=OpusDecoder(RATE_HZ),
            output=lambda frame, heard=heard: heard.append(frame.samples),  # type: ignore[misc]
        )
        soundfile.write(folder / f"{path}.{name}.wav", np.concatenate(heard), RATE_HZ)
        told = {"delay_ms": figures["mean_delay_ms"], "concealed_pct": figures["concealed_pct"]}
        (folder / f"{path}.{name}.json").write_text(json.dumps(told), encoding="utf-8")


async def play_all(paths: Sequence[str], said: Material, *, seed: int, folder: Path) -> None:
    """Play every path at the same time: each takes as long as the speech lasts."""
    async with before_others():
        await asyncio.gather(*(play(path, said, seed=seed, folder=folder) for path in paths))


def measure(paths: Sequence[str], said: Material, *, seed: int, folder: Path) -> list[dict[str, Any]]:
    """Return a row for every path and receiver; recordings that lie in `folder` are not made again."""
    missing = [path for path in paths if not (folder / f"{path}.neteq.wav").exists()]
    if missing:
        asyncio.run(play_all(missing, said, seed=seed, folder=folder))
    for path in paths:
        replay_ours(path, said, seed=seed, folder=folder)
    jobs = [Job(sound=str(folder / UNDISTURBED), said=said)]
    jobs += [Job(sound=str(folder / f"{path}.{name}.wav"), said=said) for path in paths for name in RECEIVERS]
    with multiprocessing.get_context("spawn").Pool() as pool:
        verdicts = pool.map(judge, jobs, chunksize=1)
    rows = [{"path": "undisturbed", "receiver": "none", **summary(verdicts[0])}]
    for at, path in enumerate(paths):
        mine = dict(zip(RECEIVERS, verdicts[1 + len(RECEIVERS) * at :], strict=False))
        for name, verdict in mine.items():
            told = json.loads((folder / f"{path}.{name}.json").read_text(encoding="utf-8"))
            figures = {key: round(value, 2) for key, value in told.items()}
            rows.append({"path": path, "receiver": name, **figures, **summary(verdict), **_against(mine, verdict)})
    if len(paths) > 1:
        together = {name: pooled(verdicts[1 + at :: len(RECEIVERS)]) for at, name in enumerate(RECEIVERS)}
        for name, verdict in together.items():
            rows.append({"path": "all", "receiver": name, **summary(verdict), **_against(together, verdict)})
    return rows


def _against(mine: dict[str, Verdict], verdict: Verdict) -> dict[str, Any]:
    return {} if verdict is mine["neteq"] else compared(verdict, mine["neteq"])


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print one line a path and receiver, and how ours stands against NetEQ."""
    print(f"{'path':19}{'receiver':18}{'PLCMOS [95 %]':>22}{'WER % [95 %]':>23}{'words':>7}{'delay':>7}{'conc. %':>9}")
    for row in rows:
        (low, high), (wer_low, wer_high) = row["plcmos_ci95"], row["wer_ci95"]
        delay, concealed = row.get("delay_ms"), row.get("concealed_pct")
        line = f"{row['path']:19}{row['receiver']:18}{row['plcmos']:8.3f} [{low:5.3f}, {high:5.3f}]"
        line += f"{100 * row['wer']:8.2f} [{100 * wer_low:5.2f}, {100 * wer_high:5.2f}]{row['words']:7}"
        line += "" if delay is None else f"{delay:7.0f}{concealed:9.2f}"
        if "plcmos_above_neteq" in row:
            kept = row["plcmos_above_neteq"] >= -0.1 and row["wer_above_neteq"] <= 0.01
            line += f"  {'ok' if kept else 'MISSED'}  PLCMOS {row['plcmos_above_neteq']:+.3f}, "
            line += f"WER {100 * row['wer_above_neteq']:+.2f} points"
        print(line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{len(QUICK_PATHS)} paths, {QUICK_SENTENCES} sentences")
    parser.add_argument("--path", action="append", metavar="NAME", help=f"instead of {', '.join(LOSSY_PATHS)}")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep recordings there, use those there already")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 30) if options.seed is None else options.seed
    paths = options.path or (QUICK_PATHS if options.quick else LOSSY_PATHS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        said = load(folder) or save(material(QUICK_SENTENCES if options.quick else None), folder)
        rows = measure(paths, said, seed=seed, folder=folder)
    print(f"seed {seed}, {len(said.sentences)} sentences in {len(said.speech) / RATE_HZ:.0f} s a path; {NO_SOUND}")
    print_rows(rows)
    if options.json:
        print(json.dumps({"rows": rows, "seed": seed}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
