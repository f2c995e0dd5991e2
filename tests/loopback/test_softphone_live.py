"""The live softphone's sound path with a sound card played by a thread: both directions, in the card's own time."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import numpy as np

from peer.softphone_live import BLOCK_SAMPLES, RATE_HZ, EchoPath, LiveSound
from tests.loopback.pairs import LOCAL, call, wait_for
from tests.sounds import rms, tone


async def test_the_speaker_gets_the_far_end_and_the_far_end_the_microphone() -> None:
    async with call(replace(LOCAL, reader="playout", receive_rate_hz=RATE_HZ), LOCAL) as (softphone, server):
        loop = asyncio.get_running_loop()
        path = EchoPath(cancel_echo=False)
        microphone = tone(3.0, 300)
        speaker: list[np.ndarray] = []
        ready = asyncio.Event()
        sound = LiveSound(softphone.connection, path)

        def sound_card() -> None:
            began = time.monotonic()
            for n in range(250):
                time.sleep(max(0.0, began + n * 0.01 - time.monotonic()))
                near, far = path.exchange(microphone[n * BLOCK_SAMPLES : (n + 1) * BLOCK_SAMPLES])
                speaker.append(far)
                sound.blocks.append(near)
                loop.call_soon_threadsafe(ready.set)

        server.connection.playout.capture_frame(tone(1.5, 440))
        thread = threading.Thread(target=sound_card)
        thread.start()
        while thread.is_alive():
            await ready.wait()
            ready.clear()
            sound.carry(now=loop.time())
            if len(speaker) == 250:
                break
        thread.join()
        await wait_for(lambda: len(server.heard) > 30_000)
        for heard, rate, frequency in ((np.concatenate(speaker), RATE_HZ, 440), (server.heard, 16_000, 300)):
            loud = np.flatnonzero(np.abs(heard) > 1000)
            span = heard[loud[0] + rate // 5 : loud[0] + rate].astype(np.float64)
            spectrum = np.abs(np.fft.rfft(span * np.hanning(len(span))))
            assert abs(np.argmax(spectrum) * rate / len(span) - frequency) < 5
        assert 120 <= sum(rms(block) > 500 for block in speaker) <= 200
