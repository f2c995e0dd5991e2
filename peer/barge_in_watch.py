"""Watches a voice over the reply until it is known what it means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from peer.audio_history import AudioHistory
from peer.barge_in import BargeInOptions, Verdict, judge_time
from peer.endpointing import Endpointer
from peer.engines.base import LISTEN_RATE_HZ
from peer.errors import EngineError

_LOOK_S: Final = 0.02


async def watch_barge_in(
    *,
    options: BargeInOptions,
    endpointer: Endpointer,
    history: AudioHistory,
    hear: Callable[[], Awaitable[str]],
    onset_samples: int,
) -> Verdict:
    """Return the verdict that time brings on the voice that began at `onset_samples` (of the call's audio at 16 kHz).

    `hear` transcribes what it has said so far, once, while it still speaks. Whoever has the words of the whole before
    cancels this.
    """
    beginning: str | None = None
    while True:
        since_onset_ms = (history.end_samples - onset_samples) * 1000 / LISTEN_RATE_HZ
        speaking = endpointer.in_speech and endpointer.silence_ms == 0
        verdict = judge_time(
            options,
            since_onset_ms=since_onset_ms,
            speaking=speaking,
            voiced_ms=since_onset_ms - endpointer.silence_ms,
            beginning=beginning or "",
        )
        if verdict is not None:
            return verdict
        if beginning is None and speaking and since_onset_ms >= options.peek_ms:
            beginning = await _hear_within(hear, (options.latest_ms - since_onset_ms) / 1000)
        else:
            await asyncio.sleep(_LOOK_S)


async def _hear_within(hear: Callable[[], Awaitable[str]], seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds):
            return await hear()
    except (TimeoutError, EngineError):
        return ""
