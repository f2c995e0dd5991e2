"""Models that judge what was heard: one recogniser for every target's replies, and PLCMOS; loaded when first asked."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import soxr

from impair.measures import Samples
from peer.models import ModelStore

JUDGE_MODEL = "whisper-tiny.en"
_RATE_HZ = 16_000
_BEAMS = 5
"""One beam hears other words in the same sound a few milliseconds later."""
_PAD_S = 4.0
"""Whisper loops where speech is cut with less silence behind it."""


class Scorer:
    """Answers with a figure, or with the reason why there is none; blocks, so call it in a thread."""

    def __init__(self) -> None:
        self._recogniser: Any = None
        self._plcmos: Any = None
        self._no_recogniser: str | None = None
        self._no_plcmos: str | None = None

    def transcribe(self, samples: Samples, rate_hz: int) -> tuple[str | None, str]:
        """(text, reason): what the judge understood, or None and why."""
        if self._recogniser is None and self._no_recogniser is None:
            try:
                from faster_whisper import WhisperModel  # noqa: PLC0415 - half a second that most commands need not pay

                path = ModelStore().path(JUDGE_MODEL)
                self._recogniser = WhisperModel(str(path), device="cpu", compute_type="int8", cpu_threads=1)
            except Exception as error:  # whatever keeps the model away is told in the report
                self._no_recogniser = f"the judging recogniser {JUDGE_MODEL} cannot be loaded: {error}"
        if self._recogniser is None:
            return None, self._no_recogniser or ""
        audio = np.concatenate((_to_16k(samples, rate_hz), np.zeros(round(_PAD_S * _RATE_HZ), np.float32)))
        segments, _ = self._recogniser.transcribe(
            audio,
            language="en",
            beam_size=_BEAMS,
            temperature=0.0,
            without_timestamps=True,
            condition_on_previous_text=False,
        )
        return " ".join(segment.text.strip() for segment in segments), ""

    def plcmos(self, samples: Samples, rate_hz: int) -> tuple[float | None, str]:
        """(score, reason): PLCMOS v2 of this sound, or None and why."""
        if self._plcmos is None and self._no_plcmos is None:
            try:
                os.environ.setdefault("OMP_NUM_THREADS", "1")
                from speechmos import plcmos  # noqa: PLC0415 - an optional package

                self._plcmos = plcmos
            except Exception as error:
                self._no_plcmos = f"the package speechmos, of the extra `impair`, cannot be loaded: {error}"
        if self._plcmos is None:
            return None, self._no_plcmos or ""
        if len(samples) < rate_hz:
            return None, "less than a second of the reply was heard"
        score = self._plcmos.run(np.clip(_to_16k(samples, rate_hz), -1, 1), sr=_RATE_HZ, return_df=False)
        return float(score["plcmos"]), ""


def _to_16k(samples: Samples, rate_hz: int) -> Any:
    return soxr.resample(samples.astype(np.float32) / 32768, rate_hz, _RATE_HZ).astype(np.float32)
