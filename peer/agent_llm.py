"""An agent as the language model of its call: what a reply asks the model, the agent answers.

So replies, barge-in and failures are the same with an agent as without. The tools that an agent brings are offered to
the model underneath, their calls are run, and what came of them is told to it, a few rounds at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from peer.agent import Agent, AgentCall, AgentTurn
from peer.conversation_parts import ConversationOptions, Engines
from peer.engines.base import (
    LLM_DEFAULTS,
    AsrEngine,
    ChatMessage,
    LlmEngine,
    LlmOptions,
    ToolCall,
    ToolLlmEngine,
    TtsEngine,
    TurnEngine,
)
from peer.errors import ConfigError, EngineError
from peer.tools import Toolbox, ToolError
from transport.messages import CallError, CallMessage

_LOG = logging.getLogger(__name__)
_MOST_ROUNDS: Final = 4
"""Rounds of calls in one turn; the last answer has to do without."""
_KEPT_EXCHANGES: Final = 4
"""Turns whose calls and results the model still sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEngines:
    """The engines of one call."""

    asr: AsrEngine
    llm: LlmEngine
    tts: TtsEngine
    turn: TurnEngine | None


def check_agent(agent: type[Agent], llm: LlmEngine, name: str) -> None:
    """Raise ConfigError where `agent` cannot be made, or has tools that `llm`, called `name`, cannot call."""
    try:
        Toolbox([getattr(agent(), tool) for tool in agent.tool_names()])
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"--agent: {agent.__name__}() fails: {type(error).__name__}: {error}") from error
    if agent.tool_names() and not isinstance(llm, ToolLlmEngine):
        raise ConfigError(
            f"--agent: {agent.__name__} has tools ({', '.join(agent.tool_names())}), and --llm {name} cannot call any; "
            "take --llm openai:MODEL with --llm-url, as of vLLM, llama.cpp or Ollama"
        )


def engines_with(
    agent: Agent, *, call: AgentCall, engines: Engines, emit: Callable[[CallMessage], None]
) -> CallEngines:
    """Return `engines` with the agent in the place of the language model."""
    llm = AgentLlm(agent, call=call, llm=engines.llm, emit=emit)
    return CallEngines(asr=engines.asr, llm=llm, tts=engines.tts, turn=engines.turn)


def options_with(agent: Agent, options: ConversationOptions) -> ConversationOptions:
    """Return `options` as the agent wants them; the greeting is left to `on_call`."""
    prompt = options.system_prompt if agent.system_prompt is None else agent.system_prompt
    return replace(options, greeting="", system_prompt=prompt, answer_early=agent.answers_early())


class AgentLlm:
    """An agent behind the LlmEngine protocol, for one call."""

    def __init__(self, agent: Agent, *, call: AgentCall, llm: LlmEngine, emit: Callable[[CallMessage], None]) -> None:
        """`emit` tells the caller of tools that failed; raises ConfigError for tools that make no sense."""
        self._agent: Final = agent
        self._call: Final = call
        self._llm: Final = llm
        self._emit: Final = emit
        self._tools: Final = Toolbox([getattr(agent, name) for name in agent.tool_names()])
        self._exchanges: Final[dict[str, list[ChatMessage]]] = {}
        """Calls and results of recent turns, by what the caller said."""

    async def generate(
        self, messages: Sequence[ChatMessage], *, options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str, None]:
        """Yield the agent's answer to the last message; raises EngineError."""
        turn = AgentTurn(
            text=self._said(messages),
            messages=tuple(messages),
            call=self._call,
            _ask=lambda given: self._ask(given, options),
        )
        try:
            answer: Any = self._agent.on_turn(turn)
            if inspect.isawaitable(answer):
                answer = await answer
            if isinstance(answer, str):
                yield answer
                return
            if inspect.isgenerator(answer):
                for words in answer:
                    yield str(words)
                return
            async with contextlib.AsyncExitStack() as stack:
                if hasattr(answer, "aclose"):
                    stack.push_async_callback(answer.aclose)
                async for piece in answer:
                    yield piece
        except (EngineError, asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            _LOG.exception("the agent failed", extra={"call": self._call.id})
            raise EngineError(f"the agent failed ({type(error).__name__})", retryable=False) from error

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Return what the model underneath counts."""
        return await self._llm.count_tokens(messages)

    async def _ask(self, messages: Sequence[ChatMessage], options: LlmOptions) -> AsyncIterator[str]:
        if not self._tools or not isinstance(self._llm, ToolLlmEngine):
            async with contextlib.aclosing(self._llm.generate(messages, options=options)) as pieces:
                async for text in pieces:
                    yield text
            return
        said = self._said(messages)
        dialogue = self._with_exchanges(messages)
        exchange: list[ChatMessage] = []
        for round_number in range(_MOST_ROUNDS + 1):
            specs = self._tools.specs if round_number < _MOST_ROUNDS else []
            calls: list[ToolCall] = []
            words = ""
            pieces_or_calls = self._llm.generate_with_tools([*dialogue, *exchange], tools=specs, options=options)
            async with contextlib.aclosing(pieces_or_calls) as stream:
                async for piece in stream:
                    if isinstance(piece, ToolCall):
                        calls.append(piece)
                    else:
                        words += piece
                        yield piece
            if not calls:
                break
            if words and not words[-1].isspace():
                yield " "
            exchange.append(ChatMessage(role="assistant", content=words, tool_calls=tuple(calls)))
            exchange += await asyncio.gather(*map(self._run, calls))
        self._remember(said, exchange)

    def _said(self, messages: Sequence[ChatMessage]) -> str:
        """Return the caller's own words; in `messages` they may have a note before them of what "it" means."""
        last = next((entry.text for entry in reversed(self._call.history()) if entry.role == "user"), None)
        return last or (messages[-1].content if messages else "")

    async def _run(self, call: ToolCall) -> ChatMessage:
        try:
            result = await self._tools.run(call)
        except ToolError as error:
            _LOG.warning("a tool failed", extra={"call": self._call.id, "tool": call.name, "problem": str(error)})
            # The log has the details, and the model may tell what of them is worth telling.
            self._emit(CallError(code="tool_failed", message=f"A tool failed: {call.name}."))
            result = msgspec.json.encode({"error": str(error)}).decode()
        return ChatMessage(role="tool", content=result, tool_call_id=call.id)

    def _remember(self, said: str, exchange: list[ChatMessage]) -> None:
        self._exchanges.pop(said, None)
        if exchange:
            self._exchanges[said] = exchange
        while len(self._exchanges) > _KEPT_EXCHANGES:
            del self._exchanges[next(iter(self._exchanges))]

    def _with_exchanges(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Put what earlier turns called back behind the words that brought it about."""
        dialogue: list[ChatMessage] = []
        for index, message in enumerate(messages):
            dialogue.append(message)
            if message.role == "user" and index < len(messages) - 1:
                dialogue += self._exchanges.get(message.content, ())
        return dialogue
