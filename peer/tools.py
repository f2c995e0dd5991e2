"""Functions that a language model may call: described to it from their type hints, checked, run in bounded time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints, overload

import msgspec

from peer.engines.base import ToolCall, ToolSpec
from peer.errors import ConfigError

DEFAULT_TIMEOUT_S: Final = 5.0
_MOST_RESULT_CHARS: Final = 4_000
"""What a model is told of a result; more would only fill its prompt."""
_TIMEOUT_MARK: Final = "_antiphon_timeout_s"
_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def tool(function: _F) -> _F: ...
@overload
def tool(*, timeout_s: float = ...) -> Callable[[_F], _F]: ...
def tool(function: Any = None, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Any:
    """Mark a function or method as a tool; its docstring tells the model what it does, its hints what it takes.

    It may be async; one that is not runs in a thread. After `timeout_s` seconds the model is told that it failed.
    """

    def mark(target: _F) -> _F:
        setattr(target, _TIMEOUT_MARK, timeout_s)
        return target

    return mark if function is None else mark(function)


def is_tool(value: object) -> bool:
    """Return whether `value` was marked by `tool`."""
    return callable(value) and hasattr(value, _TIMEOUT_MARK)


class ToolError(Exception):
    """A call that failed; the message is for the model, and for the person if nobody else tells them."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One function: its description, its checked arguments, its time limit in seconds."""

    spec: ToolSpec
    function: Callable[..., Any]
    arguments: type[msgspec.Struct]
    timeout_s: float

    async def run(self, arguments: str) -> str:
        """Return the result of a call as text, JSON where it is not a string; raises ToolError."""
        try:
            given = msgspec.json.decode(arguments or "{}", type=self.arguments)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ToolError(f"{self.spec.name} was given what it does not take: {error}") from error
        values = {name: getattr(given, name) for name in self.arguments.__struct_fields__}
        try:
            async with asyncio.timeout(self.timeout_s):
                result = await self._call(values)
        except TimeoutError:
            raise ToolError(f"{self.spec.name} took longer than {self.timeout_s:g} seconds") from None
        except Exception as error:
            raise ToolError(f"{self.spec.name} failed: {error or type(error).__name__}") from error
        text = result if isinstance(result, str) else msgspec.json.encode(result, enc_hook=str).decode()
        return text if len(text) <= _MOST_RESULT_CHARS else text[:_MOST_RESULT_CHARS] + "…"

    async def _call(self, values: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**values)
        return await asyncio.to_thread(self.function, **values)


def describe(function: Callable[..., Any]) -> Tool:
    """Return `function` as a tool; raises ConfigError for a parameter whose type cannot be told to a model."""
    name = getattr(function, "__name__", type(function).__name__)
    hints = get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise ConfigError(f"tool {name}: a model cannot fill {parameter}; give it parameters with names")
        if parameter.name not in hints:
            raise ConfigError(f"tool {name}: {parameter.name} needs a type hint, so that a model knows what to give")
        kind = _with_description(hints[parameter.name])
        default = parameter.default
        fields.append((parameter.name, kind) if default is parameter.empty else (parameter.name, kind, default))
    try:
        struct = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
        (schema,), components = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise ConfigError(f"tool {name}: {error}") from error
    parameters = components.pop(schema["$ref"].rsplit("/", 1)[-1])
    parameters.pop("title", None)
    if components:
        parameters["$defs"] = components
    spec = ToolSpec(name=name, description=inspect.getdoc(function) or name, parameters=parameters)
    timeout_s: float = getattr(function, _TIMEOUT_MARK, DEFAULT_TIMEOUT_S)
    return Tool(spec, function, struct, timeout_s)


def _with_description(hint: Any) -> Any:
    """Let `Annotated[str, "a city"]` describe a parameter."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    words = " ".join(note for note in notes if isinstance(note, str))
    others = [note for note in notes if not isinstance(note, str)]
    for note in others:
        kind = Annotated[kind, note]
    return Annotated[kind, msgspec.Meta(description=words)] if words else kind


class Toolbox:
    """The tools of one agent, by name."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        """`functions` are described now; raises ConfigError."""
        self._tools: Final = {made.spec.name: made for made in map(describe, functions)}

    def __bool__(self) -> bool:
        return bool(self._tools)

    @property
    def specs(self) -> list[ToolSpec]:
        """What the model is told."""
        return [made.spec for made in self._tools.values()]

    async def run(self, call: ToolCall) -> str:
        """Return the result of a call as text; raises ToolError."""
        found = self._tools.get(call.name)
        if found is None:
            raise ToolError(f"there is no tool called {call.name}")
        return await found.run(call.arguments)
