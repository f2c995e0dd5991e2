"""WebRTC's VAD: a Gaussian mixture over six bands, a few microseconds a frame (libwebrtc common_audio/vad)."""

from __future__ import annotations

from typing import Any, Final, Literal

import webrtcvad

from peer.engines.base import LISTEN_RATE_HZ, Samples


class WebRtcVad:
    """`Vad` by libwebrtc's detector, whose answer is 0 or 1; the cheap gate before a better judge.

    `aggressiveness` 0..3: how much is rejected; a gate must not miss speech, so the default is the mildest.
    """

    def __init__(self, *, frame_ms: Literal[10, 20, 30] = 20, aggressiveness: Literal[0, 1, 2, 3] = 0) -> None:
        self._frame_samples: Final = LISTEN_RATE_HZ * frame_ms // 1000
        self._aggressiveness: Final = aggressiveness
        self._vad: Any = webrtcvad.Vad(aggressiveness)

    @property
    def frame_samples(self) -> int:
        """160, 320 or 480 samples: 10, 20 or 30 ms."""
        return self._frame_samples

    def probability(self, frame: Samples) -> float:
        """Return 1.0 where `frame` (int16, exactly `frame_samples` at 16 kHz) sounds like voice, else 0.0."""
        if len(frame) != self._frame_samples:
            raise ValueError(f"a frame has {self._frame_samples} samples, not {len(frame)}")
        return float(self._vad.is_speech(frame.tobytes(), LISTEN_RATE_HZ))

    def reset(self) -> None:
        """Forget the noise model, as between calls."""
        self._vad = webrtcvad.Vad(self._aggressiveness)
