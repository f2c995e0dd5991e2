"""From engine names on a command line to the set of engines that every call shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from peer.engines.base import AsrEngine, LlmEngine, TtsEngine, TurnEngine
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts, ScriptedTurn
from peer.errors import ConfigError

Progress = Callable[[str, float | None, str], None]
"""Called with (part, fraction 0..1 or None where unknown, what is being done) while engines get ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Which engines to use, as NAME or NAME:MODEL."""

    asr: str = "whisper:tiny.en"
    llm: str = "ct2:smollm2-135m-instruct"
    tts: str = "piper:en_US-joe-medium"
    turn: str = "smart-turn"
    """`none` leaves the end of a turn to silence alone."""
    llm_url: str | None = None
    """Base URL of an OpenAI-compatible server, for `--llm openai:MODEL`."""
    llm_api_key: str | None = None
    vllm_python: str = ".venv-vllm/bin/python"
    """Interpreter that has vLLM installed, for `--llm vllm:MODEL`."""


def split_name(spec: str) -> tuple[str, str | None]:
    """Return (engine, model or None) of `NAME[:MODEL]`."""
    name, _, model = spec.partition(":")
    return name.strip(), model.strip() or None


class EngineSet:
    """The engines of a server; `start` makes them ready, `aclose` ends everything they own."""

    def __init__(self, *, asr: AsrEngine, llm: LlmEngine, tts: TtsEngine, turn: TurnEngine | None) -> None:
        self.asr = asr
        self.llm = llm
        self.tts = tts
        self.turn = turn

    @property
    def not_ready_reason(self) -> str | None:
        """Why no call can be taken now, in words for a person; None when one can."""
        return None

    async def start(self) -> None:
        """Load and warm every engine; raises EngineError, or ModelError when weights cannot be had."""

    async def aclose(self) -> None:
        """End every process, task and connection of the engines."""


def create_engines(spec: EngineSpec, *, on_progress: Progress | None = None) -> EngineSet:
    """Return the engines that `spec` names, not yet started; raises ConfigError for a name nobody knows."""
    for part, name in (("asr", spec.asr), ("llm", spec.llm), ("tts", spec.tts), ("turn", spec.turn)):
        if split_name(name)[0] != "scripted":
            raise ConfigError(f"--{part} {name}: no such engine")
    del on_progress
    return EngineSet(
        asr=ScriptedAsr(record=False),
        llm=ScriptedLlm(record=False),
        tts=ScriptedTts(record=False),
        turn=ScriptedTurn(record=False),
    )
