"""From engine names on a command line to the set of engines that every call shares."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from peer.engines.base import (
    LLM_DEFAULTS,
    AsrEngine,
    ChatMessage,
    LlmEngine,
    LlmOptions,
    TtsEngine,
    TurnEngine,
)
from peer.engines.llm_openai import OpenAiLlm
from peer.engines.process import EngineProcess
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts, ScriptedTurn
from peer.engines.wire import PartSpec
from peer.errors import ConfigError, EngineError

Progress = Callable[[str, float | None, str], None]
"""Called with (part, fraction 0..1 or None where unknown, what is being done) while engines get ready."""

_LOCAL = {
    ("asr", "whisper"): ("peer.engines.asr_whisper:create", "model"),
    ("llm", "ct2"): ("peer.engines.llm_ct2:create", "model"),
    ("tts", "piper"): ("peer.engines.tts_piper:create", "voice"),
    ("turn", "smart-turn"): ("peer.engines.turn_smart:create", "model"),
}
"""Engines of the engine process: their factory, and which of its options the MODEL of NAME:MODEL is."""
_VLLM_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
"""Read by vLLM when it is imported: a cache of 1 GiB on CPU, no reports to its makers, and quiet. Ours yield to the
server's own environment."""
_LOCAL_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1"}
"""With one heap for all threads the engine process is a quarter smaller and no slower; read by glibc at its start."""
_ALIASES = {"faster-whisper": "whisper"}
_SCRIPTED = {"asr": ScriptedAsr, "llm": ScriptedLlm, "tts": ScriptedTts, "turn": ScriptedTurn}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Which engines to use, as NAME or NAME:MODEL."""

    asr: str = "whisper:tiny.en"
    """whisper[:MODEL] (MODEL: tiny.en, base, any faster-whisper model or folder), or scripted."""
    llm: str = "ct2:smollm2-135m-instruct"
    """ct2[:MODEL], vllm:MODEL, openai:MODEL (with llm_url), scripted, or none for an agent that needs no model."""
    tts: str = "piper:en_US-joe-medium"
    """piper[:VOICE] (VOICE: a name in the store or an .onnx file), or scripted."""
    turn: str = "smart-turn"
    """smart-turn[:MODEL.onnx], scripted, or none, which leaves the end of a turn to silence."""
    language: str | None = None
    """ISO 639-1 code of what callers speak; None lets a multilingual model detect it."""
    llm_url: str | None = None
    """Base URL of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1."""
    llm_api_key: str | None = None
    """Its key; None takes OPENAI_API_KEY from the environment."""
    vllm_python: str = ".venv-vllm/bin/python"
    """Interpreter that has vLLM installed."""
    cache_dir: Path | None = None
    """The model store; None takes ANTIPHON_CACHE or the XDG cache."""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """More options by part for the engines' factories, such as {"asr": {"threads": 4, "device": "cuda"}}."""


class _Owned(Protocol):
    """What an engine set starts and closes."""

    @property
    def not_ready_reason(self) -> str | None: ...
    async def start(self) -> None: ...
    async def aclose(self) -> None: ...


def split_name(spec: str) -> tuple[str, str | None]:
    """Return (engine, model or None) of `NAME[:MODEL]`."""
    name, _, model = spec.partition(":")
    return _ALIASES.get(name.strip(), name.strip()), model.strip() or None


class NoLlm:
    """No language model: whoever asks it all the same is told so."""

    async def generate(
        self,
        messages: Sequence[ChatMessage],  # noqa: ARG002 - the protocol's
        *,
        options: LlmOptions = LLM_DEFAULTS,  # noqa: ARG002
    ) -> AsyncGenerator[str, None]:
        """Raise EngineError."""
        nothing: tuple[str, ...] = ()
        for piece in nothing:
            yield piece
        raise EngineError("this server has no language model (--llm none)", retryable=False)

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Return the number of words."""
        return sum(len(message.content.split()) for message in messages)


class EngineSet:
    """The engines of a server; `start` makes them ready, `aclose` ends everything they own."""

    def __init__(
        self, *, asr: AsrEngine, llm: LlmEngine, tts: TtsEngine, turn: TurnEngine | None, owned: tuple[_Owned, ...] = ()
    ) -> None:
        self.asr = asr
        self.llm = llm
        self.tts = tts
        self.turn = turn
        self._owned = owned

    @property
    def not_ready_reason(self) -> str | None:
        """Why no call can be taken now, in words for a person; None when one can."""
        return "; ".join(reason for owned in self._owned if (reason := owned.not_ready_reason)) or None

    @property
    def processes(self) -> tuple[EngineProcess, ...]:
        """The engine processes of this set."""
        return tuple(owned for owned in self._owned if isinstance(owned, EngineProcess))

    async def start(self) -> None:
        """Load and warm every engine at once; raises EngineError (a missing model's says what to do)."""
        starting = [asyncio.create_task(owned.start()) for owned in self._owned]
        try:
            await asyncio.gather(*starting)
        finally:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)

    async def aclose(self) -> None:
        """End every process, task and connection of the engines."""
        await asyncio.gather(*(owned.aclose() for owned in self._owned))


def create_engines(spec: EngineSpec, *, on_progress: Progress | None = None) -> EngineSet:
    """Return the engines that `spec` names, not yet started; raises ConfigError for a name that makes no sense."""
    names = {"asr": spec.asr, "llm": spec.llm, "tts": spec.tts, "turn": spec.turn}
    local: dict[str, PartSpec] = {}
    engines: dict[str, Any] = {}
    owned: list[_Owned] = []
    for part, text in names.items():
        name, model = split_name(text)
        if name == "scripted":
            engines[part] = _SCRIPTED[part](record=False)
        elif (part, name) == ("turn", "none"):
            engines[part] = None
        elif (part, name) == ("llm", "none"):
            engines[part] = NoLlm()
        elif (part, name) in _LOCAL:
            factory, model_option = _LOCAL[part, name]
            local[part] = PartSpec(factory=factory, options=_options(spec, part, {model_option: model}))
        elif (part, name) == ("llm", "openai"):
            engines[part] = _create_openai(spec, model)
            owned.append(engines[part])
        elif (part, name) == ("llm", "vllm"):
            process = _create_vllm(spec, model, on_progress)
            engines[part] = process.llm
            owned.append(process)
        else:
            raise ConfigError(f"--{part} {text}: no such engine; there are: {', '.join(_known(part))}")
    if local:
        process = EngineProcess(local, environment=_LOCAL_ENVIRONMENT, on_progress=on_progress)
        owned.append(process)
        engines.update({part: getattr(process, part) for part in local})
    return EngineSet(**engines, owned=tuple(owned))


def _known(part: str) -> list[str]:
    remote = {"llm": ["vllm:MODEL", "openai:MODEL", "none"], "turn": ["none"]}
    return [*(f"{name}[:MODEL]" for of, name in _LOCAL if of == part), *remote.get(part, []), "scripted"]


def _options(spec: EngineSpec, part: str, chosen: dict[str, Any]) -> dict[str, Any]:
    if part == "asr":
        chosen["language"] = spec.language
    if spec.cache_dir:
        chosen["cache_dir"] = str(spec.cache_dir)
    return {name: value for name, value in (chosen | spec.options.get(part, {})).items() if value is not None}


def _create_openai(spec: EngineSpec, model: str | None) -> OpenAiLlm:
    if not spec.llm_url or not model:
        raise ConfigError("--llm openai:MODEL needs the name of a model, and --llm-url URL of the server that has it")
    if not spec.llm_url.startswith(("http://", "https://")):
        raise ConfigError(f"--llm-url {spec.llm_url}: not a URL of http or https, such as http://127.0.0.1:8000/v1")
    return OpenAiLlm(url=spec.llm_url, model=model, api_key=spec.llm_api_key, **spec.options.get("llm", {}))


def _create_vllm(spec: EngineSpec, model: str | None, on_progress: Progress | None) -> EngineProcess:
    if not model:
        raise ConfigError("--llm vllm:MODEL needs the name or the folder of a model")
    part = PartSpec(
        factory="peer.engines.llm_vllm:create",
        options=_options(spec, "llm", {"model": model, "converter_python": sys.executable}),
    )
    return EngineProcess(
        {"llm": part}, interpreter=spec.vllm_python, environment=_VLLM_ENVIRONMENT, on_progress=on_progress
    )
