"""How late the event loop runs what is due: the time that the 20 ms path may have to wait."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

_EVERY_S: Final = 0.02
_KEPT: Final = 3_000
"""The last minute."""


class LoopLag:
    """Samples the lag of the running loop every 20 ms while `run` runs."""

    def __init__(self) -> None:
        self._lags_ms: Final[deque[float]] = deque(maxlen=_KEPT)

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self._lags_ms.append(max(loop.time() - due, 0.0) * 1000)

    def quantile_ms(self, share: float) -> float | None:
        """Return the lag that `share` (0..1) of the last minute's samples did not exceed, None without samples."""
        if not self._lags_ms:
            return None
        ordered = sorted(self._lags_ms)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
