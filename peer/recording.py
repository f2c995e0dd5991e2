"""A call on disk: the caller on the left, the peer on the right, on one clock, written as it goes; off by default.

`CallTrack` is pure: it puts both directions where they belong in time. `Recording` writes what is complete once a
second, in a thread, so that neither the call nor a slow disk waits for the other; what cannot be written ends the
recording alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import wave
from pathlib import Path
from typing import Final

import numpy as np
import soxr
from numpy.typing import NDArray

from jitter.frame import AudioFrame
from peer.engines.base import LISTEN_RATE_HZ, Samples
from transport.playout_queue import SAMPLE_RATE_HZ

_LOG = logging.getLogger(__name__)
_RING_S: Final = 8
_SETTLED_S: Final = 2.0
"""Sound that comes later than this belongs nowhere any more."""
_LEAP_S: Final = 0.5
"""A caller's clock so far from ours is followed at once; less is let drift, so that no sample is lost or said twice."""
_BLOCK_S: Final = 1.0
_GAP_S: Final = 0.06


class _Ring:
    """Samples of one channel by position; what was taken out, or lies too far ahead, is not written."""

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz: Final = rate_hz
        self._samples: Final[Samples] = np.zeros(rate_hz * _RING_S, np.int16)
        self._taken = 0

    def put(self, samples: Samples, position: int) -> None:
        """Write `samples`, whose first stands at `position`."""
        skip = max(0, self._taken - position)
        room = self._taken + len(self._samples) - position
        kept = samples[skip : max(skip, room)]
        places = np.arange(position + skip, position + skip + len(kept)) % len(self._samples)
        self._samples[places] = kept

    def take(self, end: int) -> Samples:
        """Return what stands between the last `take` and `end`, silence where nothing was put."""
        places = np.arange(self._taken, max(end, self._taken)) % len(self._samples)
        out = self._samples[places].copy()
        self._samples[places] = 0
        self._taken += len(places)
        return out


class CallTrack:
    """Both directions of a call since `began_at`, seconds; `take` gives what is old enough to be complete."""

    def __init__(self, *, began_at: float) -> None:
        self._began_at: Final = began_at
        self._heard: Final = _Ring(LISTEN_RATE_HZ)
        self._said: Final = _Ring(SAMPLE_RATE_HZ)
        self._offset: int | None = None
        self._said_end = 0
        self._taken_s = 0.0

    def handle_heard(self, frame: AudioFrame, *, now: float) -> None:
        """Take the caller's sound (16 kHz), by its own positions."""
        arrived = round((now - self._began_at) * LISTEN_RATE_HZ) - len(frame.samples)
        if self._offset is None or abs(self._offset + frame.position_samples - arrived) > _LEAP_S * LISTEN_RATE_HZ:
            self._offset = arrived - frame.position_samples
        self._heard.put(frame.samples, max(0, self._offset + frame.position_samples))

    def handle_said(self, samples: Samples, *, now: float) -> None:
        """Take the peer's sound (48 kHz) as it leaves; frames that follow each other are joined without a seam."""
        position = max(0, round((now - self._began_at) * SAMPLE_RATE_HZ))
        if abs(position - self._said_end) < _GAP_S * SAMPLE_RATE_HZ:
            position = self._said_end
        self._said.put(samples, position)
        self._said_end = position + len(samples)

    def take(self, *, now: float, all_of_it: bool = False) -> tuple[Samples, Samples]:
        """Return (heard at 16 kHz, said at 48 kHz) of the time not yet taken, of equal duration."""
        end_s = now - self._began_at - (0.0 if all_of_it else _SETTLED_S)
        end = max(0, round(end_s * LISTEN_RATE_HZ))
        return self._heard.take(end), self._said.take(end * SAMPLE_RATE_HZ // LISTEN_RATE_HZ)


class StereoFile:
    """A 16 kHz stereo WAV file whose header is right after every block; readable by its owner alone."""

    def __init__(self, path: Path) -> None:
        """Create `path`, which must not exist; raises OSError."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file: Final = wave.Wave_write(os.fdopen(handle, "wb"))
        self._file.setnchannels(2)
        self._file.setsampwidth(2)
        self._file.setframerate(LISTEN_RATE_HZ)
        self._resampler: Final = soxr.ResampleStream(SAMPLE_RATE_HZ, LISTEN_RATE_HZ, 1, dtype="int16")
        self._left: Samples = np.zeros(0, np.int16)
        self._right: Samples = np.zeros(0, np.int16)

    def write(self, heard: Samples, said: Samples, *, last: bool = False) -> None:
        """Append a block (16 kHz and 48 kHz); raises OSError."""
        self._left = np.concatenate([self._left, heard])
        self._right = np.concatenate([self._right, self._resampler.resample_chunk(said, last=last)])
        count = len(self._left) if last else min(len(self._left), len(self._right))
        both: NDArray[np.int16] = np.zeros((count, 2), np.int16)
        both[:, 0] = self._left[:count]
        both[: len(self._right[:count]), 1] = self._right[:count]
        self._left, self._right = self._left[count:], self._right[count:]
        self._file.writeframes(both.tobytes())

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


class Recording:
    """One call's recording in `path`, `longest_s` seconds at most; `run` until cancelled, then `finish`."""

    def __init__(self, path: Path, *, longest_s: float, now: float) -> None:
        self._path: Final = path
        self._longest_s: Final = longest_s
        self._began_at: Final = now
        self._track: Final = CallTrack(began_at=now)
        self._file: StereoFile | None = None
        self._over = False
        self._writing: asyncio.Future[None] | None = None

    def handle_heard(self, frames: list[AudioFrame], now: float) -> None:
        """Take what came from the caller."""
        if not self._over:
            for frame in frames:
                self._track.handle_heard(frame, now=now)

    def handle_said(self, samples: Samples, now: float) -> None:
        """Take what leaves for the caller."""
        if not self._over:
            self._track.handle_said(samples, now=now)

    async def run(self) -> str:
        """Write until the recording is as long as it may be, or cannot be written; return why it ended."""
        loop = asyncio.get_running_loop()
        try:
            self._file = await asyncio.to_thread(StereoFile, self._path)
            while loop.time() - self._began_at < self._longest_s:
                await asyncio.sleep(_BLOCK_S)
                await self._write(now=min(loop.time(), self._began_at + self._longest_s))
        except OSError as error:
            self._over = True
            _LOG.warning("a recording ended", extra={"path": self._path, "problem": error.strerror or error})
            return "it cannot be written"
        await self.finish(now=loop.time())
        return f"it may last {self._longest_s:g} seconds"

    async def finish(self, *, now: float) -> None:
        """Write what is left and close the file."""
        over, self._over = self._over, True
        if self._file is None:
            return
        try:
            if self._writing is not None:  # a cancelled `run` left it to its thread
                await asyncio.wait({self._writing})
            if not over:
                await self._write(now=min(now, self._began_at + self._longest_s), last=True)
            self._file.close()
        except OSError as error:
            _LOG.warning("a recording ended", extra={"path": self._path, "problem": error.strerror or error})
        self._file = None

    async def _write(self, *, now: float, last: bool = False) -> None:
        assert self._file is not None
        heard, said = self._track.take(now=now, all_of_it=last)
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._file.write, heard, said, last=last))
        await asyncio.shield(self._writing)
