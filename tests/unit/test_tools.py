"""Tools: what a model is told of a function, what it may give, and that nothing takes longer than it may."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Annotated, Any, Literal

import pytest

from peer.engines.base import ToolCall
from peer.errors import ConfigError
from peer.tools import Toolbox, ToolError, describe, tool


@tool
def weather(city: Annotated[str, "name of a city"], unit: Literal["c", "f"] = "c", days: int = 1) -> dict[str, object]:
    """Tell the weather."""
    return {"city": city, "unit": unit, "days": days, "thread": threading.current_thread() is threading.main_thread()}


@tool(timeout_s=0.05)
async def slow() -> str:
    """Take forever."""
    await asyncio.sleep(60)
    return "done"


@tool(timeout_s=0.05)
def stuck() -> str:
    """Block."""
    time.sleep(0.3)
    return "done"


@tool
def broken() -> str:
    """Fail."""
    raise KeyError("nothing there")


def test_a_function_is_described_from_its_hints() -> None:
    spec = describe(weather).spec
    assert (spec.name, spec.description) == ("weather", "Tell the weather.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "name of a city"},
            "unit": {"enum": ["c", "f"], "default": "c"},
            "days": {"type": "integer", "default": 1},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


async def _run(name: str, arguments: str = "{}") -> str:
    return await Toolbox([weather, slow, stuck, broken]).run(ToolCall(id="1", name=name, arguments=arguments))


async def test_a_call_runs_off_the_loop_and_its_result_is_json() -> None:
    assert await _run("weather", '{"city": "Rome", "days": 2}') == '{"city":"Rome","unit":"c","days":2,"thread":false}'


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("weather", "{}", "missing required field `city`"),
        ("weather", '{"city": 3}', "Expected `str`, got `int`"),
        ("weather", '{"city": "Rome", "unit": "k"}', "Invalid enum value"),
        ("weather", '{"city": "Rome", "wind": 1}', "unknown field `wind`"),
        ("weather", "Rome", "JSON is malformed"),
        ("weather", "[" * 100_000, "was given what it does not take"),
        ("slow", "{}", "slow took longer than 0.05 seconds"),
        ("stuck", "{}", "stuck took longer than 0.05 seconds"),
        ("broken", "{}", "broken failed: 'nothing there'"),
        ("nobody", "{}", "there is no tool called nobody"),
    ],
)
async def test_every_fault_is_a_tool_error(name: str, arguments: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        await _run(name, arguments)


async def test_a_long_result_is_cut() -> None:
    @tool
    def long() -> str:
        """Say much."""
        return "x" * 10_000

    assert len(await Toolbox([long]).run(ToolCall(id="1", name="long", arguments=""))) == 4_001


def _untyped(city) -> str:  # type: ignore[no-untyped-def]
    return str(city)


def _open_ended(**more: int) -> str:
    return str(more)


def _odd(what: threading.Lock) -> str:
    return str(what)


@pytest.mark.parametrize(
    ("function", "problem"),
    [(_untyped, "city needs a type hint"), (_open_ended, "cannot fill"), (_odd, "tool _odd")],
)
def test_what_a_model_could_not_fill_is_refused_when_the_server_starts(function: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        describe(function)
