"""Clean readings of replies' texts: what the judging recogniser makes of them is its own error, not the network's.

The voice runs in an engine process of its own, as in the server; where it is not in the model store, there are no
readings, and the report says so.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import numpy as np
import soxr

from impair.measures import Samples
from peer.engines.factory import EngineSet, EngineSpec, create_engines
from peer.models import ModelStore
from peer.speakable import make_speakable
from transport.errors import AntiphonError

VOICE = "piper-en_US-joe-medium"
_RATE_HZ = 48_000
_PAUSE_S = 0.2
_READ_TIMEOUT_S = 30.0


class CleanReader:
    """An async context manager; `read` gives a text's speech, None where there is no voice, and then says why not."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._engines: EngineSet | None = None
        self._read: dict[str, Samples] = {}

    async def __aenter__(self) -> Self:
        """Load the voice if it lies in the store; nothing is downloaded for a measurement."""
        engines = create_engines(EngineSpec(asr="scripted", llm="scripted", turn="none"))
        try:
            ModelStore().path(VOICE)
            await engines.start()
        except (AntiphonError, OSError) as error:
            await engines.aclose()
            self.reason = f"the voice {VOICE} cannot be loaded: {error}"
        else:
            self._engines = engines
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        if self._engines is not None:
            await self._engines.aclose()

    async def read(self, text: str) -> Samples | None:
        """The text's speech, int16 at 48 kHz; None without a voice. Each text is read once."""
        if self._engines is None:
            return None
        if text not in self._read:
            try:
                async with asyncio.timeout(_READ_TIMEOUT_S):
                    self._read[text] = await self._speak(text)
            except (AntiphonError, TimeoutError) as error:
                self.reason = f"the voice {VOICE} failed: {error or 'it took too long'}"
                return None
        return self._read[text]

    async def _speak(self, text: str) -> Samples:
        assert self._engines is not None
        tts = self._engines.tts
        pieces = [piece async for piece in tts.synthesize(make_speakable(text, "en"))]
        if not pieces:
            return np.zeros(0, np.int16)
        resampled = soxr.resample(np.concatenate(pieces), tts.sample_rate_hz, _RATE_HZ)
        return np.asarray(np.concatenate((resampled, np.zeros(round(_PAUSE_S * _RATE_HZ), np.int16))))
