"""Conversations in virtual time: hours in milliseconds, and no task left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from impair.virtual_time import VirtualLoop

_Result = TypeVar("_Result")


def run_virtual(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `main` to its end in virtual time; tasks that it leaves behind are an error."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def run() -> _Result:
            result = await main
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"left behind: {left}"
            return result

        return runner.run(run())
