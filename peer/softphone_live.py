"""The softphone with a real microphone and speaker: PortAudio in and out, WebRTC's echo canceller between them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import threading
from collections import deque
from typing import Any, Final

import numpy as np

from peer.engines.base import Samples
from peer.errors import ConfigError
from peer.softphone_call import CallOptions, SoftphoneCall
from transport.messages import CallError, CallMessage, CallRecorded, CallState, ReplyDone, UserTranscript
from transport.peer_connection import PeerConnection
from transport.playout_queue import PlayoutQueue

RATE_HZ: Final = 48_000
BLOCK_SAMPLES: Final = 480
"""10 ms, what the canceller works in."""
_START_MS: Final = 30
"""Sound waits so long before it plays, against the loop's unevenness; the network's is the playout reader's affair."""
_MOST_MS: Final = 120
"""More than this in wait is thrown away, or the speaker falls behind for good."""
_CUSHION_MS: Final = 40
"""Silence put before the microphone's sound whenever nothing waits: blocks come in bursts, packets leave evenly."""
_QUIET_SURPLUS_MS: Final = 120
_SURPLUS_MS: Final = 300
"""Where more waits than this a block is left out, first the quiet ones: a sound card's clock may run fast for hours."""
_QUIET_PEAK: Final = 300
"""About -40 dB of full scale: a block without a louder sample is missed by nobody."""


class MicrophoneLine:
    """Blocks of a microphone, as they come, onto the even line of a call. Pure."""

    def __init__(self, queue: PlayoutQueue) -> None:
        self._queue: Final = queue
        self._cushion: Final = np.zeros(_CUSHION_MS * RATE_HZ // 1000, np.int16)

    def add(self, block: Samples) -> None:
        """Send a block (int16, 48 kHz) behind what waits; an empty line gets a cushion first, a long one drops it."""
        queued_ms = self._queue.queued_ms
        if queued_ms > _SURPLUS_MS or (queued_ms > _QUIET_SURPLUS_MS and np.abs(block).max(initial=0) < _QUIET_PEAK):
            return
        if not self._queue.playing:
            self._queue.capture_frame(self._cushion)
        self._queue.capture_frame(block)


class EchoPath:
    """The blocks between a sound card and the call; `exchange` runs in PortAudio's thread, the rest on the loop."""

    def __init__(self, *, cancel_echo: bool) -> None:
        self._lock: Final = threading.Lock()
        self._waiting: Final[deque[Samples]] = deque()
        self._waiting_samples = 0
        self._started = False
        self._canceller: Any = None
        if cancel_echo:
            from pywebrtc_audio import AudioProcessor  # noqa: PLC0415 - native code that only a live call needs

            self._canceller = AudioProcessor(
                sample_rate=RATE_HZ,
                num_channels=1,
                echo_cancellation=True,
                noise_suppression=True,
                high_pass_filter=True,
                auto_gain_control=True,
            )

    def play(self, samples: Samples) -> None:
        """Queue received sound (int16, 48 kHz) for the speaker."""
        with self._lock:
            self._waiting.append(samples)
            self._waiting_samples += len(samples)
            while self._waiting_samples > _MOST_MS * RATE_HZ // 1000:
                self._waiting_samples -= len(self._waiting.popleft())

    def exchange(self, near: Samples) -> tuple[Samples, Samples]:
        """Take a block of the microphone; return (it without echo, the block to play), both of its length."""
        far = self._take(len(near))
        if self._canceller is None:
            return near, far
        cleaned: Samples = self._canceller.process(near, far)
        return cleaned, far

    def _take(self, count: int) -> Samples:
        block = np.zeros(count, np.int16)
        with self._lock:
            if not self._started and self._waiting_samples < _START_MS * RATE_HZ // 1000:
                return block
            self._started = self._waiting_samples >= count
            filled = 0
            while filled < count and self._waiting:
                piece = self._waiting.popleft()
                step = min(len(piece), count - filled)
                block[filled : filled + step] = piece[:step]
                filled += step
                if step < len(piece):
                    self._waiting.appendleft(piece[step:])
            self._waiting_samples -= filled
        return block


def open_sound_card(path: EchoPath, deliver: Any) -> Any:
    """Return a started duplex stream that hands microphone blocks to `deliver`; raises ConfigError without one."""
    try:
        import sounddevice  # noqa: PLC0415 - it loads PortAudio, which a recording does not need
    except OSError as error:
        raise ConfigError(
            "a microphone call needs PortAudio, which is not on this machine (Debian, Ubuntu: apt-get install "
            "libportaudio2); --play IN.wav needs none"
        ) from error

    def callback(indata: Any, outdata: Any, _frames: int, _time: object, _status: object) -> None:
        near, far = path.exchange(np.ascontiguousarray(indata[:, 0]))
        outdata[:, 0] = far
        deliver(near)

    try:
        stream = sounddevice.Stream(
            samplerate=RATE_HZ, blocksize=BLOCK_SAMPLES, channels=1, dtype="int16", latency="low", callback=callback
        )
        stream.start()
    except sounddevice.PortAudioError as error:
        raise ConfigError(f"the microphone or the speaker cannot be opened: {error}") from error
    return stream


async def talk_live(arguments: argparse.Namespace) -> None:
    """Talk through the machine's sound card until Ctrl-C or the server's end; raises SoftphoneError, ConfigError."""
    loop = asyncio.get_running_loop()
    path = EchoPath(cancel_echo=not arguments.no_echo_cancellation)
    over = asyncio.Event()
    with contextlib.suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, over.set)
    ready = asyncio.Event()
    early: deque[Samples] = deque(maxlen=1)  # what is said before the call stands is said to nobody
    blocks = early

    def deliver(near: Samples) -> None:
        blocks.append(near)
        loop.call_soon_threadsafe(ready.set)

    stream = open_sound_card(path, deliver)
    try:
        options = CallOptions(
            url=arguments.url,
            access_token=arguments.access_token,
            insecure=arguments.insecure,
            receive_rate_hz=RATE_HZ,
            for_ears=True,
            feed_noise=False,
        )
        async with SoftphoneCall(options) as call:
            print("connected; speak, and press Ctrl-C to hang up", flush=True)
            if arguments.no_echo_cancellation:
                print("no echo cancellation: wear headphones, or the peer hears itself and stops", flush=True)
            call.on_message = _print_message
            sound = LiveSound(call.connection, path)
            blocks = sound.blocks
            ending = asyncio.create_task(over.wait())
            while not over.is_set() and call.is_up:
                getter = asyncio.create_task(ready.wait())
                await asyncio.wait({getter, ending}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                getter.cancel()
                ready.clear()
                sound.carry(now=loop.time())
            ending.cancel()
    finally:
        stream.stop()
        stream.close()


class LiveSound:
    """Between a call and the sound card's blocks; the card's clock drives both directions."""

    def __init__(self, connection: PeerConnection, path: EchoPath) -> None:
        self.blocks: Final[deque[Samples]] = deque(maxlen=100)
        """The microphone's blocks that wait; PortAudio's thread appends."""
        self._connection: Final = connection
        self._path: Final = path
        self._line: Final = MicrophoneLine(connection.playout)
        self._at = 0.0

    def carry(self, *, now: float) -> None:
        """Send each block that waits and fetch one for the speaker; those that came in a burst are dated back."""
        while self.blocks:
            self._at = max(self._at, now - (len(self.blocks) - 1) * BLOCK_SAMPLES / RATE_HZ)
            self._line.add(self.blocks.popleft())
            self._path.play(self._connection.get_audio(now=self._at).samples)


def _print_message(message: CallMessage) -> None:
    if isinstance(message, UserTranscript) and message.text:
        print(f"you:  {message.text}", flush=True)
    elif isinstance(message, ReplyDone) and message.heard_text:
        print(f"peer: {message.heard_text}", flush=True)
    elif isinstance(message, CallError):
        print(f"error: {message.message}", flush=True)
    elif isinstance(message, CallRecorded):
        print("the server records this call", flush=True)
    elif isinstance(message, CallState) and message.state == "ended":
        print("the call has ended", flush=True)
