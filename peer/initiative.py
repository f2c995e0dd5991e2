"""What the peer does of its own accord: says something unasked, asks whether anybody is there, hangs up."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from peer.conversation_parts import Jobs, Outlets
from peer.idle import IdleAction, IdleOptions, IdleWatch

_LOG = logging.getLogger(__name__)
_BUSY_S: Final = 0.1
_LINGER_S: Final = 0.3
"""From the last word to hanging up: the far end still has it in its buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Words that the peer says unasked."""

    text: str
    breaks_silence: bool = True
    """Whether the caller's silence is counted anew from its end."""


class Initiative:
    """The unasked part of one conversation; `speak` is told to begin what `take` then gives, when `is_free`."""

    def __init__(
        self,
        *,
        options: IdleOptions,
        outlets: Outlets,
        jobs: Jobs,
        is_free: Callable[[], bool],
        speak: Callable[[], None],
    ) -> None:
        """`is_free`: nobody speaks and nothing is being answered; its becoming true is told by `handle_free`."""
        self._options: Final = options
        self._out: Final = outlets
        self._jobs: Final = jobs
        self._is_free: Final = is_free
        self._speak: Final = speak
        self._idle: Final = IdleWatch(options)
        self._waiting: Final[deque[Said]] = deque()
        self._said: Said | None = None
        self._leave_reason = ""

    def start(self, *, now: float) -> None:
        """The call stands: watch the caller's silence."""
        self._idle.handle_activity(now=now)
        if self._idle.is_wanted:
            self._jobs.idle = self._out.spawn(self._watch_silence())

    def say(self, said: Said) -> None:
        """Say it as soon as that is free to do."""
        self._waiting.append(said)
        self.handle_free()

    def leave(self, reason: str) -> None:
        """Hang up once all has been said; a caller who speaks before is listened to instead."""
        self._leave_reason = reason
        self.handle_free()

    def stay(self) -> None:
        """The caller goes on: whatever was to end the call is void."""
        self._leave_reason = ""

    def take(self) -> Said:
        """Return what is to be said now."""
        self._said = self._waiting.popleft()
        return self._said

    def handle_free(self) -> None:
        """Do the next thing, if it may be done now."""
        if not self._is_free():
            return
        if self._waiting:
            self._speak()
        elif self._leave_reason:
            reason, self._leave_reason = self._leave_reason, ""
            self._out.spawn(self._go(reason))

    def handle_turn(self) -> None:
        """The caller has said something."""
        self._idle.handle_activity(now=self._out.clock())

    def handle_reply_end(self, *, unasked: bool) -> None:
        """A reply is over, or what was said unasked."""
        if not unasked or self._said is None or self._said.breaks_silence:
            self._idle.handle_activity(now=self._out.clock())
        self._said = None

    async def _go(self, reason: str) -> None:
        await asyncio.sleep(_LINGER_S)
        self._out.hang_up(reason)

    async def _watch_silence(self) -> None:
        while (due := self._idle.get_timer()) is not None:
            now = self._out.clock()
            if due > now:
                await asyncio.sleep(due - now)
            elif not self._is_free() or self._waiting:
                await asyncio.sleep(_BUSY_S)
            else:
                self._break_silence(self._idle.handle_timer(now=now))

    def _break_silence(self, action: IdleAction | None) -> None:
        if action is IdleAction.CHECK_IN:
            self.say(Said(text=self._options.check_in, breaks_silence=False))
        elif action is IdleAction.HANG_UP:
            _LOG.info("nobody speaks", extra={"seconds": self._options.hang_up_after_s})
            if self._options.farewell:
                self.say(Said(text=self._options.farewell, breaks_silence=False))
            self.leave(f"nothing was said for {self._options.hang_up_after_s:g} seconds")
