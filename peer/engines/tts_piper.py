"""Text to speech by Piper, a sentence at a time.

piper-tts is GPL-3.0: it is imported here alone, and this module only in the engine process, behind the TtsEngine
protocol.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from piper import PiperVoice
from piper.config import PiperConfig, SynthesisConfig

from peer.engines.base import TTS_DEFAULTS, Samples, TtsOptions
from peer.engines.host import Report
from peer.errors import EngineError, ModelError
from peer.model_manifest import MODELS
from peer.models import ModelStore

DEFAULT_VOICE = "en_US-joe-medium"
_PIECE_CHARACTERS = 240
"""Memory of one synthesis grows with its text: 400 words at once took 1.5 GB."""
_FULL_SCALE = 0.7 * 32767
"""Piper's sentences peak at 1.0; resampling and Opus overshoot, and need the room."""
_AUDIBLE = 0.01
_LEAD_S = 0.005
_TAIL_S = 0.03
_MARKS = tuple(".!?:;,…。！？；，、：\"'”’)")
_WARM_UP = (
    "Hello there, how are you today? It was a bright cold day in April, and the clocks were striking thirteen when the "
    "boats came up the river, one behind the other, and lay still."
)
"""Its second sentence is as long as replies have them, so that the memory for one is there before the first call."""
_SPEED_RANGE = (0.5, 2.0)
_BREAK = re.compile(r"(?<=[.!?。！？;:,，、；：])\s*|\s+")


def split_text(text: str, *, at_most: int = _PIECE_CHARACTERS) -> list[str]:
    """Return `text` in pieces of at most `at_most` characters, cut after punctuation or else between words."""
    pieces = []
    text = text.strip()
    while len(text) > at_most:
        breaks = [match.end() for match in _BREAK.finditer(text, 0, at_most) if match.end() > at_most // 2]
        cut = breaks[-1] if breaks else at_most
        pieces.append(text[:cut].strip())
        text = text[cut:].strip()
    return [*pieces, text] if text else pieces


class StoppableSession:
    """An ONNX session whose run can be ended from another thread, which Piper's interface has no way to ask for."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self.how = onnxruntime.RunOptions()
        """Of the next run; setting `terminate` on it ends that run with an exception."""

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, Any]) -> Any:
        """Do what InferenceSession.run does."""
        return self._session.run(outputs, inputs, self.how)


class PiperTts:
    """A Piper voice behind the TtsEngine protocol; one request at a time, in the order they came."""

    def __init__(self, config: PiperConfig, session: onnxruntime.InferenceSession) -> None:
        self._session = StoppableSession(session)
        self._voice = PiperVoice(config=config, session=self._session)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tts")

    @property
    def sample_rate_hz(self) -> int:
        """Sample rate of the voice, usually 22050."""
        rate: int = self._voice.config.sample_rate
        return rate

    async def synthesize(self, text: str, *, options: TtsOptions = TTS_DEFAULTS) -> AsyncGenerator[Samples, None]:
        """Yield the speech of each sentence of `text` as soon as it is made; raises EngineError.

        Closing the generator ends a synthesis in the middle of a sentence, so that the next request need not wait.
        """
        loop = asyncio.get_running_loop()
        sentences = self._speak(text, options)
        how = onnxruntime.RunOptions()

        def make_next() -> Samples | None:
            self._session.how = how
            return next(sentences, None)

        try:
            while (speech := await loop.run_in_executor(self._executor, make_next)) is not None:
                yield speech
        except Exception as error:
            raise EngineError(f"speech synthesis failed: {error}") from error
        finally:
            how.terminate = True
            if self._session.how is how:
                self._session.how = onnxruntime.RunOptions()  # an ended request's must not end whatever runs next

    async def aclose(self) -> None:
        """Let no further request begin."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _speak(self, text: str, options: TtsOptions) -> Iterator[Samples]:
        speed = min(max(options.speed, _SPEED_RANGE[0]), _SPEED_RANGE[1])
        how = SynthesisConfig(length_scale=self._voice.config.length_scale / speed)
        first = True
        goes_on = not text.rstrip().endswith(_MARKS)
        for piece in split_text(text):
            for sentence in self._voice.synthesize(piece, how):
                speech = np.clip(sentence.audio_float_array * (_FULL_SCALE * options.volume), -32_768, 32_767)
                audible = np.flatnonzero(np.abs(sentence.audio_float_array) > _AUDIBLE)
                start = 0
                if first and len(audible):
                    start = max(0, int(audible[0]) - round(_LEAD_S * self.sample_rate_hz))
                first = False
                # In the middle of a sentence the voice's own closing silence would be a pause.
                end = int(audible[-1]) + round(_TAIL_S * self.sample_rate_hz) if goes_on and len(audible) else None
                yield speech[start:end].astype(np.int16)


def create(options: Mapping[str, Any], report: Report) -> PiperTts:
    """Load and warm a voice: `voice` is a name that the store knows, or the path of an .onnx file."""
    name = options.get("voice") or DEFAULT_VOICE
    path = Path(name)
    if path.suffix != ".onnx":
        store = ModelStore(Path(options["cache_dir"]) if options.get("cache_dir") else None)
        if f"piper-{name}" not in MODELS:
            voices = ", ".join(known.removeprefix("piper-") for known in MODELS if known.startswith("piper-"))
            raise ModelError(f"--tts piper:{name}: no such voice; there are: {voices}, or the path of an .onnx file")
        folder = store.ensure(f"piper-{name}", on_progress=lambda done, total, text: report(done / total, text))
        path = folder / f"{name}.onnx"
    report(None, f"loading {name}")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.get("threads", min(2, os.cpu_count() or 1))
    settings.inter_op_num_threads = 1
    settings.enable_mem_pattern = False  # it keeps a plan for every length of text that ever was
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        config = PiperConfig.from_dict(json.loads(path.with_name(f"{path.name}.json").read_text()))
        session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise EngineError(f"cannot load the voice {name}: {error}", retryable=False) from error
    engine = PiperTts(config, session)
    report(None, "warming up")
    for _ in engine._speak(_WARM_UP, TTS_DEFAULTS):
        pass
    return engine
