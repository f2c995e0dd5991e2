"""Your own agent behind a call: subclass `Agent`, override what you need, give the file to `--agent`.

One instance is made for each call, so what you keep in `self` belongs to that call. Hooks run on the server's loop:
await what takes time, or leave it to a tool, which may block.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from peer.dialogue import Entry
from peer.engines.base import ChatMessage
from peer.errors import ConfigError
from peer.tools import is_tool, tool

__all__ = ["Agent", "AgentCall", "AgentTurn", "Answer", "load_agent", "tool"]

Answer = str | Iterator[str] | AsyncIterator[str] | Awaitable[str | AsyncIterator[str]]
"""What `on_turn` returns: words, a stream of words, or something to await that gives either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """The call as an agent sees it."""

    id: str
    say: Callable[[str], None]
    """Say something unasked, as soon as nobody speaks or is being answered."""
    hang_up: Callable[[str], None]
    """Hang up for this reason once what is being said has been said; who speaks over it keeps the call."""
    history: Callable[[], Sequence[Entry]]
    """Return what was said so far, oldest first: the caller's turns, and of our replies what was heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTurn:
    """One turn of the caller."""

    text: str
    """What the caller said."""
    messages: tuple[ChatMessage, ...]
    """The dialogue as a language model takes it: the system prompt, what fits of the past, and this turn."""
    call: AgentCall
    _ask: Callable[[Sequence[ChatMessage]], AsyncIterator[str]] = field(repr=False)

    def ask(self, messages: Sequence[ChatMessage] | None = None) -> AsyncIterator[str]:
        """Return the language model's answer to `messages`, or to this turn, as it comes; it may call the tools."""
        return self._ask(self.messages if messages is None else messages)


class Agent:
    """What answers a call; as it stands, the server's language model with its system prompt."""

    system_prompt: str | None = None
    """Takes the place of --system-prompt."""
    early: bool | None = None
    """Whether `on_turn` may be asked in a pause that need not be the end, its answer perhaps thrown away unheard; None:
    unless the agent has tools."""

    async def on_call(self, call: AgentCall) -> str | None:  # noqa: ARG002 - for those who override it
        """Return what to say first, "" for nothing; None says --greeting."""
        return None

    def on_turn(self, turn: AgentTurn) -> Answer:
        """Return or stream what to say to `turn`; a fault is apologised for and costs this turn alone."""
        return turn.ask()

    async def on_hang_up(self, call: AgentCall, reason: str) -> None:
        """The call is over; may take two seconds."""

    @classmethod
    def tool_names(cls) -> list[str]:
        """Return the names of the methods marked with `tool`, in the order they are written."""
        return [name for kind in reversed(cls.__mro__) for name, value in vars(kind).items() if is_tool(value)]

    @classmethod
    def answers_early(cls) -> bool:
        """Return whether `on_turn` may be asked before it is known that the turn is over."""
        return not cls.tool_names() if cls.early is None else cls.early


def load_agent(spec: str) -> type[Agent]:
    """Return the agent class of `FILE.py` or `FILE.py:CLASS`; raises ConfigError naming what is wrong."""
    path, _, name = spec.partition(":")
    if not Path(path).is_file():
        raise ConfigError(f"--agent {spec}: there is no file {path}")
    module_spec = importlib.util.spec_from_file_location("antiphon_agent", path)
    if module_spec is None or module_spec.loader is None:
        raise ConfigError(f"--agent {spec}: {path} is no Python file")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"--agent {spec}: {type(error).__name__}: {error}{_line_in(error, path)}") from error
    classes: Final = {
        key: value
        for key, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Agent) and value.__module__ == module.__name__
    }
    if name:
        if name not in classes:
            raise ConfigError(f"--agent {spec}: no Agent called {name}; there are: {', '.join(classes) or 'none'}")
        return classes[name]
    if len(classes) != 1:
        found = f"has these: {', '.join(classes)}; name one as FILE.py:CLASS" if classes else "defines no Agent"
        raise ConfigError(f"--agent {spec}: {path} {found}")
    return next(iter(classes.values()))


def _line_in(error: Exception, path: str) -> str:
    """Return where in the file it went wrong."""
    if isinstance(error, SyntaxError):
        return ""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line else ""
