"""End of turn by Smart Turn v3: a Whisper encoder that hears from the last 8 s whether the speaker is done.

Model and preprocessing: pipecat-ai/smart-turn v3 (BSD-2-Clause). The audio is padded in front to 8 s, normalised to
zero mean and unit variance, and turned into Whisper's log-mel features.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from peer.engines.base import LISTEN_RATE_HZ, Samples
from peer.engines.host import Report
from peer.engines.mel import LogMel
from peer.errors import EngineError
from peer.models import ModelStore

MODEL = "smart-turn-v3.2"
_WINDOW_S = 8
_MEL_BANDS = 80


class SmartTurn:
    """The Smart Turn model behind the TurnEngine protocol."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._input = session.get_inputs()[0].name
        self._mel = LogMel(bands=_MEL_BANDS)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="turn")

    async def end_of_turn_probability(self, samples: Samples) -> float:
        """Return 0..1 for the last 8 s of `samples` (int16, 16 kHz); raises EngineError."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self.judge_now, samples)
        except Exception as error:
            raise EngineError(f"end-of-turn detection failed: {error}") from error

    def judge_now(self, samples: Samples) -> float:
        """Do `end_of_turn_probability` in the calling thread."""
        answer = self._session.run(None, {self._input: self.extract_features(samples)[None]})
        return float(np.asarray(answer[0]).reshape(-1)[0])

    def extract_features(self, samples: Samples) -> NDArray[np.float32]:
        """Return the log-mel features (80, 800) that the model sees."""
        wanted = _WINDOW_S * LISTEN_RATE_HZ
        audio = np.zeros(wanted, np.float32)
        tail = samples[-wanted:]
        if len(tail):
            audio[-len(tail) :] = tail.astype(np.float32) / 32768.0
        audio = (audio - audio.mean()) / np.sqrt(audio.var() + 1e-7)
        return self._mel.extract(audio)

    async def aclose(self) -> None:
        """Let no further request begin."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def create(options: Mapping[str, Any], report: Report) -> SmartTurn:
    """Load and warm the model; `model` may be the path of another .onnx file."""
    store = ModelStore(Path(options["cache_dir"]) if options.get("cache_dir") else None)
    if options.get("model"):
        path = Path(options["model"])
    else:
        folder = store.ensure(MODEL, on_progress=lambda done, total, text: report(done / total, text))
        path = folder / "smart-turn-v3.2-cpu.onnx"
    report(None, "loading")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.inter_op_num_threads = 1
    try:
        engine = SmartTurn(onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"]))
    except Exception as error:
        raise EngineError(f"cannot load the end-of-turn model: {error}", retryable=False) from error
    engine.judge_now(np.zeros(LISTEN_RATE_HZ, np.int16))
    return engine
