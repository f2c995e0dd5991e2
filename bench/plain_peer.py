"""A voice agent as people build it on plain aiortc, to compare with: nothing of ours on the way of the media.

    python -m bench.plain_peer [--port 8090]

`POST /api/offer` takes and gives `{"sdp", "type"}`. Frames come from `track.recv()` as aiortc's own receiver gives
them; 700 ms of quiet end a turn; the same Whisper as Antiphon's default hears it; the reply says back what was
understood, with the same Piper voice, and stops when the caller speaks. Transcripts go over the data channel, so that
both can be measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fractions
import time
from typing import Any, Literal

import av
import numpy as np
from aiohttp import web
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from faster_whisper import WhisperModel
from numpy.typing import NDArray
from piper import PiperVoice

from peer.models import ModelStore
from transport.messages import ReplyDone, ReplyStarted, UserTranscript, encode

RATE_HZ = 16_000
OUT_HZ = 48_000
FRAME_SAMPLES = 960
LOUD_RMS = 300.0
QUIET_S = 0.7
SHORTEST_S = 0.3
PAD_S = 4.0


class Models:
    """The recogniser and the voice, shared by all calls; both block, so they run in threads."""

    def __init__(self) -> None:
        store = ModelStore()
        self._whisper = WhisperModel(
            str(store.path("whisper-tiny.en")), device="cpu", compute_type="int8", cpu_threads=1
        )
        voice = next(iter(sorted(store.path("piper-en_US-joe-medium").rglob("*.onnx"))))
        self._piper = PiperVoice.load(str(voice))

    def transcribe(self, samples: NDArray[np.int16]) -> str:
        """What was said in int16 at 16 kHz."""
        audio = np.concatenate((samples.astype(np.float32) / 32768, np.zeros(round(PAD_S * RATE_HZ), np.float32)))
        segments, _ = self._whisper.transcribe(audio, language="en", beam_size=1, temperature=0.0)
        return " ".join(segment.text.strip() for segment in segments)

    def speak(self, text: str) -> NDArray[np.int16]:
        """Speech as int16 at 48 kHz."""
        pieces = [chunk.audio_int16_array for chunk in self._piper.synthesize(text)]
        resampler = av.AudioResampler(format="s16", layout="mono", rate=OUT_HZ)
        frame = av.AudioFrame.from_ndarray(np.concatenate(pieces)[None], format="s16", layout="mono")
        frame.sample_rate = self._piper.config.sample_rate
        out = [*resampler.resample(frame), *resampler.resample(None)]
        return np.concatenate([piece.to_ndarray()[0] for piece in out])


class SpeechTrack(MediaStreamTrack):
    """Twenty milliseconds at a time: what was queued, else silence."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._queued: NDArray[np.int16] = np.zeros(0, np.int16)
        self._sent = 0
        self._begun: float | None = None
        self.silent = asyncio.Event()
        """Set while there is nothing to say."""
        self.silent.set()
        self.was_cut = False

    @property
    def speaking(self) -> bool:
        """Whether there is something to say."""
        return len(self._queued) > 0

    def say(self, samples: NDArray[np.int16]) -> None:
        """Speak this now."""
        self._queued = samples
        self.was_cut = False
        self.silent.clear()

    def stop(self) -> None:
        """Say no more."""
        self._queued = self._queued[:0]
        self.was_cut = True
        self.silent.set()

    async def recv(self) -> Any:
        """The next frame, when it is due."""
        now = time.monotonic()
        self._begun = self._begun or now
        await asyncio.sleep(max(0.0, self._begun + self._sent / OUT_HZ - now))
        samples = self._queued[:FRAME_SAMPLES]
        self._queued = self._queued[FRAME_SAMPLES:]
        if not len(self._queued):
            self.silent.set()
        padded = np.pad(samples, (0, FRAME_SAMPLES - len(samples)))
        frame = av.AudioFrame.from_ndarray(padded[None], format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = OUT_HZ, self._sent, fractions.Fraction(1, OUT_HZ)
        self._sent += FRAME_SAMPLES
        return frame


class Call:
    """One caller."""

    def __init__(self, models: Models) -> None:
        self.peer = RTCPeerConnection()
        self.voice = SpeechTrack()
        self._models = models
        self._channel: Any = None
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.peer.addTrack(self.voice)
        self.peer.on("track", lambda track: self._start(self._listen(track)))
        self.peer.on("datachannel", self._open)

    def _open(self, channel: Any) -> None:
        self._channel = channel

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell(self, message: Any) -> None:
        if self._channel is not None and self._channel.readyState == "open":
            self._channel.send(encode(message))

    async def _listen(self, track: MediaStreamTrack) -> None:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
        speech: list[NDArray[np.int16]] = []
        loud_s = quiet_s = 0.0
        with contextlib.suppress(MediaStreamError):
            while True:
                received: Any = await track.recv()
                for frame in resampler.resample(received):
                    samples = frame.to_ndarray()[0]
                    length_s = len(samples) / RATE_HZ
                    loud = float(np.sqrt(np.mean(np.square(samples.astype(np.float32))))) > LOUD_RMS
                    if loud:
                        loud_s, quiet_s = loud_s + length_s, 0.0
                        if loud_s > SHORTEST_S and self.voice.speaking:
                            self.voice.stop()
                    else:
                        quiet_s += length_s
                    if loud or speech:
                        speech.append(samples)
                    if speech and quiet_s > QUIET_S:
                        if loud_s > SHORTEST_S:
                            self._start(self._answer(np.concatenate(speech)))
                        speech, loud_s = [], 0.0

    async def _answer(self, samples: NDArray[np.int16]) -> None:
        self._turn += 1
        turn = self._turn
        text = await asyncio.to_thread(self._models.transcribe, samples)
        self._tell(UserTranscript(turn=turn, text=text))
        if not text:
            return
        reply = f"You said: {text}"
        self._tell(ReplyStarted(turn=turn))
        self.voice.say(await asyncio.to_thread(self._models.speak, reply))
        await self.voice.silent.wait()
        cut = self.voice.was_cut
        heard = "" if cut else reply  # it keeps no account of how much of a reply was sent
        ended: Literal["interrupted", "completed"] = "interrupted" if cut else "completed"
        self._tell(ReplyDone(turn=turn, status=ended, reply_text=reply, heard_text=heard))

    async def close(self) -> None:
        """Hang up."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.peer.close()


def make_application(models: Models) -> web.Application:
    """The agent as an aiohttp application."""
    calls: set[Call] = set()

    async def offer(request: web.Request) -> web.Response:
        body = await request.json()
        call = Call(models)
        calls.add(call)

        async def watch() -> None:
            if call.peer.connectionState in {"failed", "closed"} and call in calls:
                calls.discard(call)
                await call.close()

        call.peer.on("connectionstatechange", watch)
        await call.peer.setRemoteDescription(RTCSessionDescription(body["sdp"], body["type"]))
        await call.peer.setLocalDescription(await call.peer.createAnswer())
        return web.json_response({"sdp": call.peer.localDescription.sdp, "type": "answer"})

    async def end(_app: web.Application) -> None:
        await asyncio.gather(*(call.close() for call in list(calls)))

    async def alive(_request: web.Request) -> web.Response:
        return web.Response(text="a plain aiortc voice peer\n")

    app = web.Application()
    app.router.add_post("/api/offer", offer)
    app.router.add_get("/", alive)
    app.on_shutdown.append(end)
    return app


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m bench.plain_peer")
    parser.add_argument("--port", type=int, default=8090)
    options = parser.parse_args()
    web.run_app(make_application(Models()), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
