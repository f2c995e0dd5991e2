"""Engines that an engine process of a test can load: scripted ones, and such as misbehave in ways scripts cannot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from peer.engines.base import LLM_DEFAULTS, ChatMessage, LlmOptions
from peer.engines.host import Report
from peer.engines.scripted import ScriptedAsr, ScriptedTts, ScriptedTurn, Step
from peer.errors import EngineError, ModelError


class TestLlm:
    """Says its process id, the number of requests cancelled so far, or whatever else the last message asks for."""

    def __init__(self) -> None:
        self.cancelled = 0

    async def generate(
        self, messages: Sequence[ChatMessage], *, options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str, None]:
        match messages[-1].content:
            case "die":
                os._exit(1)
            case "hang":
                yield "hanging"
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled += 1
            case "refuse":
                yield "I "
                raise EngineError("out of tokens", retryable=False)
            case "crash":
                raise ZeroDivisionError("by nought")
            case "big":
                for _ in range(50):
                    yield "x" * 100_000
            case _:
                for word in ("one", " two", f" {options.max_tokens}"):
                    yield word

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        del messages
        return self.cancelled


def create_llm(options: Mapping[str, Any], report: Report) -> TestLlm:
    report(0.5, "half way")
    return TestLlm()


def create_asr(options: Mapping[str, Any], report: Report) -> ScriptedAsr:
    del report
    return ScriptedAsr(**options)


def create_tts(options: Mapping[str, Any], report: Report) -> ScriptedTts:
    return ScriptedTts(**options)


def create_turn(options: Mapping[str, Any], report: Report) -> ScriptedTurn:
    return ScriptedTurn([Step(probability=0.25)])


def create_without_weights(options: Mapping[str, Any], report: Report) -> None:
    raise ModelError("no weights; run: fetch")


def create_and_die(options: Mapping[str, Any], report: Report) -> None:
    os._exit(3)
