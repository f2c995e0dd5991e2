"""An event loop whose clock jumps to the next timer: hours of conversation in milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only where everyone waits."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_now = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout: float | None) -> Any:
            if timeout is None:
                raise RuntimeError("every task waits, and nothing will ever wake one")
            self._virtual_now += max(timeout, 0.0)
            return select(0)

        selector.select = jump

    def time(self) -> float:
        """Return virtual seconds."""
        return self._virtual_now


def run_virtual(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `main` to its end in virtual time; tasks that it leaves behind are an error."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def run() -> _Result:
            result = await main
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"left behind: {left}"
            return result

        return runner.run(run())
