"""An event loop whose clock jumps to the next timer, so that a minute of call takes as long as its arithmetic."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only while everyone waits; nothing real can be waited for."""

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
        """Virtual seconds since the loop began."""
        return self._virtual_now

    def skip_to(self, when: float) -> bool:
        """Move the clock there at once where nobody else has anything to do until then; says whether it did.

        A call's packets come one by one; a turn of the loop for each would cost more than the packet.
        """
        waiting: Any = self
        if waiting._ready or (waiting._scheduled and waiting._scheduled[0].when() <= when):
            return False
        self._virtual_now = max(self._virtual_now, when)
        return True


async def wait_until(when: float) -> None:
    """Wait until then on a virtual loop, by a skip where nothing lies between."""
    loop = asyncio.get_running_loop()
    if not (isinstance(loop, VirtualLoop) and loop.skip_to(when)):
        await asyncio.sleep(max(0.0, when - loop.time()))


def run_virtual(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
