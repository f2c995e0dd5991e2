"""Speech to text by faster-whisper, in encoder windows as short as the audio allows.

Whisper was trained on windows of 30 s, and their encoding is what its time goes into. CTranslate2 encodes fewer frames
as well; what that costs in accuracy, and why the padding is faint noise and the decoding keeps its timestamps, is
measured in docs/decisions/0200. A hypothesis that looks like a loop, breaks off or leaves speech out is decoded again
in the whole window.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ctranslate2
import msgspec
import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer

from peer.engines import asr_guards
from peer.engines.asr_guards import Hypothesis
from peer.engines.base import ASR_DEFAULTS, LISTEN_RATE_HZ, AsrOptions, Samples, Transcript, Word
from peer.engines.host import Report
from peer.errors import EngineError
from peer.models import ModelStore

_FRAMES_PER_S = 100
_FULL_WINDOW_S = 30.0
_SHORTEST_WINDOW_S = 8.0
_SAFE_WINDOW_S = 12.0
"""From here on hardly any speech loops."""
_PADDING_S = 4.0
"""Speech cut with less behind it makes short windows loop."""
_WIDTH_STEP_S = 0.25
"""Widths are rounded up to this: CTranslate2's library keeps what it prepared for every width that ever was."""
_PIECE_S = 26.0
_PADDING_LEVEL = 8.0
"""Standard deviation of the padding, in int16 steps: digital silence makes short windows loop."""
_TIMESTAMP_S = 0.02
_BEAM_SIZE = 5
"""Of the last attempt; the others are greedy."""


class WhisperAsr:
    """A faster-whisper model behind the AsrEngine protocol; audio at 16 kHz."""

    def __init__(self, model: WhisperModel, *, workers: int, language: str | None = None) -> None:
        self._model = model
        self._language = language
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="asr")
        noise = np.random.default_rng(0).normal(0.0, _PADDING_LEVEL / 32768.0, round(_FULL_WINDOW_S * LISTEN_RATE_HZ))
        self._padding = noise.astype(np.float32)
        self._tokenizers: dict[str, Tokenizer] = {}

    async def transcribe(self, samples: Samples, *, options: AsrOptions = ASR_DEFAULTS) -> Transcript:
        """Return what is said in `samples` (int16, 16 kHz, any length); raises EngineError."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self.transcribe_now, samples, options)
        except RuntimeError as error:
            raise EngineError(f"speech recognition failed: {error}") from error

    def transcribe_now(self, samples: Samples, options: AsrOptions = ASR_DEFAULTS) -> Transcript:
        """Do `transcribe` in the calling thread."""
        if asr_guards.measure_peak_dbfs(samples) < asr_guards.SILENCE_DBFS:
            return Transcript(text="", language=options.language or self._language, no_speech_probability=1.0)
        parts: list[Transcript] = []
        start_ms = 0.0
        for piece in asr_guards.split_at_quiet(samples, at_most_s=_PIECE_S):
            parts.append(self._transcribe_piece(piece, options, start_ms))
            start_ms += len(piece) * 1000 / LISTEN_RATE_HZ
        return _join(parts)

    async def aclose(self) -> None:
        """Let no further request begin."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _transcribe_piece(self, samples: Samples, options: AsrOptions, start_ms: float) -> Transcript:
        duration_s = len(samples) / LISTEN_RATE_HZ
        usual_s = max(_SHORTEST_WINDOW_S, duration_s + _PADDING_S)
        window_s = max(options.window_ms / 1000 if options.window_ms else usual_s, duration_s)
        speech_end_s = asr_guards.find_speech_end_s(samples)
        language = options.language or self._language
        for width_s in _widths_s(window_s, duration_s):
            encoded = self._encode(samples, width_s)
            language = language or self._detect_language(encoded)
            beam_size = _BEAM_SIZE if width_s == _FULL_WINDOW_S > window_s else 1
            hypothesis, tokens = self._decode(encoded, language, duration_s, options, beam_size=beam_size)
            if not asr_guards.is_doubtful(hypothesis, speech_end_s=speech_end_s, is_partial=bool(options.window_ms)):
                break
        assert language is not None
        invented = asr_guards.is_invented(hypothesis)
        return Transcript(
            text="" if invented else hypothesis.text,
            language=language,
            no_speech_probability=hypothesis.no_speech_probability,
            average_log_probability=hypothesis.average_log_probability,
            words=()
            if invented or not options.word_times
            else self._align(encoded, tokens, language, samples, start_ms),
        )

    def _encode(self, samples: Samples, window_s: float) -> ctranslate2.StorageView:
        wanted = round(window_s * LISTEN_RATE_HZ)
        speech = samples[:wanted].astype(np.float32) / 32768.0
        padded = np.concatenate([speech, self._padding[: wanted - len(speech)]])
        frames = round(window_s * _FRAMES_PER_S) // 2 * 2
        features = self._model.feature_extractor(padded)[:, :frames]
        return self._model.encode(np.ascontiguousarray(features))

    def _detect_language(self, encoded: ctranslate2.StorageView) -> str:
        if not self._model.model.is_multilingual:
            return "en"
        token: str = self._model.model.detect_language(encoded)[0][0][0]
        return token.strip("<|>")

    def _tokenizer(self, language: str) -> Tokenizer:
        if language not in self._tokenizers:
            multilingual = self._model.model.is_multilingual
            self._tokenizers[language] = Tokenizer(
                self._model.hf_tokenizer, multilingual, task="transcribe", language=language
            )
        return self._tokenizers[language]

    def _decode(
        self,
        encoded: ctranslate2.StorageView,
        language: str,
        duration_s: float,
        options: AsrOptions,
        *,
        beam_size: int,
    ) -> tuple[Hypothesis, list[int]]:
        tokenizer = self._tokenizer(language)
        before = tokenizer.encode(f" {options.prompt.strip()}") if options.prompt else []
        prompt = self._model.get_prompt(tokenizer, before, hotwords=options.hotwords)
        room = options.max_tokens or asr_guards.max_tokens(duration_s)
        result = self._model.model.generate(
            encoded,
            [prompt],
            beam_size=beam_size,
            max_length=min(self._model.max_length, len(prompt) + room),
            return_scores=True,
            return_no_speech_prob=True,
        )[0]
        tokens = result.sequences_ids[0]
        spoken = [token for token in tokens if token < tokenizer.eot]
        stamps = [token for token in tokens if token >= tokenizer.timestamp_begin]
        hypothesis = Hypothesis(
            text=tokenizer.decode(spoken).strip(),
            average_log_probability=result.scores[0],
            no_speech_probability=result.no_speech_prob,
            ended=len(tokens) < room,
            last_timestamp_s=(stamps[-1] - tokenizer.timestamp_begin) * _TIMESTAMP_S if stamps else None,
        )
        return hypothesis, spoken

    def _align(
        self, encoded: ctranslate2.StorageView, tokens: list[int], language: str, samples: Samples, start_ms: float
    ) -> tuple[Word, ...]:
        frames = len(samples) * _FRAMES_PER_S // LISTEN_RATE_HZ
        found = self._model.find_alignment(self._tokenizer(language), [tokens], encoded, frames)
        words: list[Word] = []
        for word in found[0] if found else []:
            text = word["word"].strip()
            if words and text and not any(character.isalnum() for character in text):
                words[-1] = msgspec.structs.replace(words[-1], text=words[-1].text + text)
            elif text:
                times = {
                    "start_ms": start_ms + 1000 * float(word["start"]),
                    "end_ms": start_ms + 1000 * float(word["end"]),
                }
                words.append(Word(text=text, probability=float(word["probability"]), **times))
        return tuple(words)


def _widths_s(first_s: float, duration_s: float) -> list[float]:
    """Return the windows to try one after another, each only when the one before was not to be believed."""
    wider_s = max(_SAFE_WINDOW_S, duration_s + 2 * _PADDING_S)
    wanted = [first_s, *(width_s for width_s in (wider_s, _FULL_WINDOW_S) if width_s > first_s)]
    return sorted({min(math.ceil(width_s / _WIDTH_STEP_S) * _WIDTH_STEP_S, _FULL_WINDOW_S) for width_s in wanted})


def _join(parts: list[Transcript]) -> Transcript:
    if len(parts) == 1:
        return parts[0]
    said = [part for part in parts if part.text]
    return Transcript(
        text=" ".join(part.text for part in said),
        language=parts[0].language,
        no_speech_probability=min(part.no_speech_probability for part in parts),
        average_log_probability=sum(part.average_log_probability for part in said) / max(1, len(said)),
        words=tuple(word for part in said for word in part.words),
    )


def create(options: Mapping[str, Any], report: Report) -> WhisperAsr:
    """Load and warm a model: `model` is tiny.en, base, a folder, or any name that faster-whisper knows."""
    name = options.get("model", "tiny.en")
    store = ModelStore(Path(options["cache_dir"]) if options.get("cache_dir") else None)
    cores = min(2, os.cpu_count() or 1)
    workers = options.get("workers", cores)
    try:
        source = str(_find_weights(store, name, report))
        report(None, f"loading {name}")
        model = WhisperModel(
            source,
            device=options.get("device", "cpu"),
            compute_type=options.get("compute_type", "default" if options.get("device") == "cuda" else "int8"),
            cpu_threads=options.get("threads", 1),
            num_workers=workers,
            download_root=str(store.cache_dir / "hub"),
            local_files_only=os.environ.get("ANTIPHON_OFFLINE", "0") not in {"", "0"},
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise EngineError(f"cannot load the speech recogniser {name}: {error}", retryable=False) from error
    engine = WhisperAsr(model, workers=workers, language=options.get("language"))
    report(None, "warming up")
    engine.transcribe_now((3_000 * np.random.default_rng(0).normal(size=LISTEN_RATE_HZ)).astype(np.int16))
    return engine


def _find_weights(store: ModelStore, name: str, report: Report) -> Path | str:
    if Path(name).is_dir():
        return Path(name)
    if name in {"tiny.en", "base"}:
        return store.ensure(f"whisper-{name}", on_progress=lambda done, total, text: report(done / total, text))
    return name
