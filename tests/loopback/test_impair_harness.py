"""The harness against a real peer that answers sound with sound: a whole run through the relay, to its report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile
from aiohttp import web

from impair import run_command
from impair.harness import RunOptions, check_targets, load_clips, run
from impair.results import read_json
from impair.run_command import write_all
from impair.targets import Target
from jitter.frame import AudioFrame
from peer.engines.base import Samples
from transport.config import TransportConfig
from transport.messages import ReplyDone, UserTranscript, encode
from transport.peer_connection import PeerConnection

QUIET_S = 0.3
REPLY_S = 2.5


def noise(seconds: float) -> Samples:
    return np.random.default_rng(3).normal(0, 3000, round(seconds * 48_000)).astype(np.int16)


class Parrot:
    """Answers 0.3 s after the caller falls silent with 2.5 s of noise, and stops where he speaks again."""

    def __init__(self) -> None:
        self.connection = PeerConnection(TransportConfig(hosts=("127.0.0.1",)))
        self.connection.on_audio = self.hear
        self.spoke_at: float | None = None
        self.turn = 0
        self.replying = False

    def hear(self, frames: list[AudioFrame], now: float) -> None:
        for frame in frames:
            if np.abs(frame.samples).max() > 1000:
                self.spoke_at = now
                if self.connection.playout.queued_ms:
                    self.connection.playout.clear_buffer(now=now)
                    self.end_reply("interrupted")
        if not self.connection.playout.queued_ms:
            self.end_reply("completed")
        if self.spoke_at is not None and now - self.spoke_at > QUIET_S:
            self.spoke_at = None
            self.turn += 1
            self.connection.send_message(encode(UserTranscript(turn=self.turn, text="one two")))
            self.connection.playout.capture_frame(noise(REPLY_S))
            self.replying = True

    def end_reply(self, status: Literal["interrupted", "completed"]) -> None:
        if self.replying:
            self.replying = False
            done = ReplyDone(turn=self.turn, status=status, reply_text="x", heard_text="x")
            self.connection.send_message(encode(done))


@asynccontextmanager
async def parrots() -> AsyncIterator[str]:
    birds: list[Parrot] = []

    async def offer(request: web.Request) -> web.Response:
        birds.append(Parrot())
        answer = await birds[-1].connection.answer((await request.json())["sdp"])
        return web.json_response({"sdp": answer, "type": "answer"})

    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response({"error": "no room"}, status=503)

    app = web.Application()
    app.router.add_post("/api/offer", offer)
    app.router.add_post("/full/offer", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await asyncio.gather(*(bird.connection.close("the end") for bird in birds))
        await runner.cleanup()


async def test_a_run_ends_in_a_report_with_what_worked_and_what_did_not(tmp_path: Path) -> None:
    speech, out = tmp_path / "speech", tmp_path / "out"
    speech.mkdir()
    soundfile.write(speech / "a.wav", np.concatenate((noise(0.8), np.zeros(4800, np.int16))), 48_000)
    (speech / "a.txt").write_text("one two three four\n")
    said: list[str] = []
    async with parrots() as url:
        targets = [Target.parse(f"parrot={url}/api/offer"), Target.parse(f"full={url}/full/offer")]
        await check_targets(targets)
        options = RunOptions(
            targets=targets, profiles=["loss5"], clips=load_clips(speech), out=out, seed=3, turns=1, say=said.append
        )
        result = await run(options)
    write_all(result, out, pdf=False)

    assert read_json(out / "results.json") == result
    good, bad = result.of("parrot", "loss5"), result.of("full", "loss5")
    assert good is not None
    assert bad is not None
    assert good.failure is None
    assert good.figures["uplink_wer"] == 50
    assert good.figures["after_outage_wer"] == 50
    assert good.figures["voice_to_voice_ms"] > 1000 * QUIET_S
    for measured in ("setup_ms", "barge_in_ms", "recovery_ms", "effective_loss_pct", "delay_ms", "moved_ms"):
        assert good.figures[measured] >= 0  # how much is a matter of how busy the machine is
    media = [flow for flow in good.network["flows"] if flow["carries_media"]]
    assert sum(flow["up"]["lost_by"].get("Loss", 0) for flow in media) > 5
    assert good.network["relay"]["outage_lost"] > 50
    assert bad.failure is not None
    assert "no room" in bad.failure
    page = (out / "report.html").read_text()
    assert "no room" in page
    assert "parrot-loss5.wav" in page
    assert (out / "parrot-loss5.wav").stat().st_size > 100_000
    assert len(said) == 2


def test_a_target_that_nobody_serves_is_said_before_anything_is_run(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(0.2), 48_000)
    arguments = ["--target", "http://127.0.0.1:9/", "--speech", str(tmp_path), "--out", str(tmp_path / "out")]
    assert run_command.main(arguments) == 2
    assert not (tmp_path / "out").exists()
