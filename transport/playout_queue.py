"""What the peer is about to say: speech and the text it voices, cut into 20 ms frames. Pure.

Time is the sample count: text counts as heard once the sound that voices it has been pulled. Speech is mono int16 at
48 kHz, and every frame that leaves is exactly 960 samples, since two frames in one packet carry one RTP timestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transport.errors import LocalProtocolError
from transport.spoken_text import SpokenText

Samples = NDArray[np.int16]

SAMPLE_RATE_HZ = 48_000
FRAME_SAMPLES = 960
MAX_QUEUED_SAMPLES = 600 * SAMPLE_RATE_HZ
"""Ten minutes: far beyond any reply, so that a runaway voice cannot eat the memory."""
KEPT_SAMPLES = 2 * SAMPLE_RATE_HZ
"""Pulled speech kept for `restore`, which goes back to the start of the ducked word."""
_VALLEY_SAMPLES = SAMPLE_RATE_HZ // 100
_LONGEST_WORD_SAMPLES = SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedPosition:
    """How much of what was captured since the last `clear_buffer` has been heard."""

    samples: int
    """Samples at 48 kHz."""
    heard_text: str
    """The text voiced by them, cut at a word."""


class PlayoutQueue:
    """Speech in, frames out. `on_capture` is called when sound arrives in an empty queue, `on_first_pull(now)` when the
    first of it since `clear_buffer` is pulled, `on_drained(now)` when the last of it has been pulled, and `on_pull`,
    with each frame and `now`, where somebody keeps what leaves."""

    def __init__(self) -> None:
        self.on_capture: Callable[[], None] | None = None
        self.on_first_pull: Callable[[float], None] | None = None
        self.on_drained: Callable[[float], None] | None = None
        self.on_pull: Callable[[Samples, float], None] | None = None
        self._buffer: Samples = np.zeros(4 * SAMPLE_RATE_HZ, dtype=np.int16)
        self._origin = 0  # position of the buffer's first sample
        self._start = 0  # positions count samples since the last clear_buffer
        self._end = 0
        self._heard = 0
        self._text = SpokenText(sample_rate_hz=SAMPLE_RATE_HZ)
        self._flushed = False
        self._ducked = False
        self._fade_in = False
        self._last_words: Samples | None = None  # a cut voice fades in 5 ms, where a hard edge would click

    @property
    def queued_ms(self) -> float:
        """Sound not yet pulled, in milliseconds."""
        return (self._end - self._start) * 1000 / SAMPLE_RATE_HZ

    @property
    def playing(self) -> bool:
        """Whether there is sound to pull: a whole frame or the flushed rest of one, and not ducked."""
        waiting = self._end - self._start
        return not self._ducked and (waiting >= FRAME_SAMPLES or (self._flushed and waiting > 0))

    @property
    def ducked(self) -> bool:
        """Whether sound is held back by `duck`."""
        return self._ducked

    @property
    def position(self) -> PlayedPosition:
        """What has been heard so far."""
        return PlayedPosition(samples=self._heard, heard_text=self._text.heard(self._heard))

    def capture_frame(self, samples: Samples, *, text: str = "") -> None:
        """Append speech (any length); `text` is what is voiced from here to the next text or `flush`."""
        if self._end - self._start + len(samples) > MAX_QUEUED_SAMPLES:
            raise LocalProtocolError("more than ten minutes of speech wait to be sent")
        if text:
            self._text.begin(text, self._end)
        was_empty = not self.playing
        self._flushed = False
        self._make_room(len(samples))
        offset = self._end - self._origin
        self._buffer[offset : offset + len(samples)] = samples
        self._end += len(samples)
        self._text.extend(samples, self._end)
        if was_empty and self.playing and self.on_capture is not None:
            self.on_capture()

    def flush(self) -> None:
        """End what was captured: the last frame will be padded with silence; the last text's sound is complete."""
        was_empty = not self.playing
        self._text.end(self._end)
        self._flushed = True
        if was_empty and self.playing and self.on_capture is not None:
            self.on_capture()

    def pull(self, *, now: float) -> Samples | None:
        """Return the next 20 ms (960,), or None where there is no whole frame or the voice is ducked."""
        frame = self._next_frame(now)
        if frame is not None and self.on_pull is not None:
            self.on_pull(frame, now)
        return frame

    def _next_frame(self, now: float) -> Samples | None:
        if self._last_words is not None:
            frame, self._last_words = self._last_words, None
            return frame
        if not self.playing:
            return None
        offset = self._start - self._origin
        step = min(FRAME_SAMPLES, self._end - self._start)
        frame = np.zeros(FRAME_SAMPLES, dtype=np.int16)
        frame[:step] = self._buffer[offset : offset + step]
        if self._fade_in:
            self._fade_in = False
            head = frame[: FRAME_SAMPLES // 4]
            head[:] = head * np.linspace(0.0, 1.0, len(head), dtype=np.float32)
        self._start += step
        if self._heard == 0 and self.on_first_pull is not None:
            self.on_first_pull(now)
        self._heard = max(self._heard, self._start)
        if self._start == self._end and self.on_drained is not None:
            self.on_drained(now)
        return frame

    def duck(self, *, now: float) -> None:  # noqa: ARG002 the contract's clock; the position says all
        """Hold the voice back at once; what stands in the queue is kept."""
        self._cut()
        self._ducked = True

    def restore(self, *, now: float) -> None:  # noqa: ARG002
        """Go on from the start of the word that `duck` cut; without `duck` before it nothing changes."""
        if not self._ducked:
            return
        self._ducked = False
        self._last_words = None
        self._start = self._word_start()
        self._fade_in = True
        if self.playing and self.on_capture is not None:
            self.on_capture()

    def clear_buffer(self, *, now: float) -> PlayedPosition:
        """Throw away what was not pulled and begin anew; returns what was heard since the last call."""
        position = self.position
        was_waiting = self._end > self._start
        self._cut()
        self._origin = self._start = self._end = self._heard = 0
        self._text = SpokenText(sample_rate_hz=SAMPLE_RATE_HZ)
        self._flushed = self._ducked = self._fade_in = False
        if was_waiting and self.on_drained is not None:
            self.on_drained(now)
        return position

    def _cut(self) -> None:
        """Make the next frame the last 5 ms of a voice that is playing, faded, then silence."""
        if not self.playing or self._start == 0:
            return
        offset = self._start - self._origin
        frame = np.zeros(FRAME_SAMPLES, dtype=np.int16)
        head = self._buffer[offset : min(offset + FRAME_SAMPLES // 4, self._end - self._origin)].astype(np.float32)
        frame[: len(head)] = head * np.linspace(1.0, 0.0, len(head), dtype=np.float32)
        self._last_words = frame

    def _word_start(self) -> int:
        """Return the quietest point near the start of the word being said at the read position."""
        if self._start == self._end:
            return self._start
        estimate = self._text.word_start(self._start)
        oldest = max(self._origin, self._start - _LONGEST_WORD_SAMPLES)
        low = max(oldest, min(estimate, self._start) - 10 * _VALLEY_SAMPLES)
        high = min(self._start, max(estimate, low) + 5 * _VALLEY_SAMPLES)
        windows = (high - low) // _VALLEY_SAMPLES
        if windows < 1:
            return self._start
        first = low - self._origin
        span = self._buffer[first : first + windows * _VALLEY_SAMPLES].astype(np.float32)
        energy = np.square(span.reshape(windows, _VALLEY_SAMPLES)).mean(axis=1)
        # The latest of the quietest: in a pause, the point next to the word.
        quietest = windows - 1 - int(np.argmin(energy[::-1]))
        return low + quietest * _VALLEY_SAMPLES

    def _make_room(self, samples: int) -> None:
        used = self._end - self._origin
        if used + samples <= len(self._buffer):
            return
        keep_from = max(self._origin, self._start - KEPT_SAMPLES)
        kept = self._buffer[keep_from - self._origin : used]
        size = len(self._buffer)
        while size < len(kept) + samples:
            size *= 2
        moved = np.zeros(size, dtype=np.int16)
        moved[: len(kept)] = kept
        self._buffer, self._origin = moved, keep_from
