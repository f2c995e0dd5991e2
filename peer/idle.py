"""A caller who says nothing: ask whether anybody is there, then hang up. Pure.

Silence is counted from the end of what was said last, by either side; a noise that holds no words does not end it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleOptions:
    """What to do about silence, seconds; 0 does nothing."""

    check_in_after_s: float = 0.0
    check_in: str = "Are you still there?"
    hang_up_after_s: float = 0.0
    farewell: str = ""
    """Said before hanging up."""


class IdleAction(enum.Enum):
    """What silence asks for."""

    CHECK_IN = "check in"
    HANG_UP = "hang up"


class IdleWatch:
    """Counts a call's silence; asks once in each, and hangs up where it goes on."""

    __slots__ = ("_asked", "_options", "_since")

    def __init__(self, options: IdleOptions) -> None:
        self._options: Final = options
        self._since: float | None = None
        self._asked = False

    @property
    def is_wanted(self) -> bool:
        """Whether there is anything to watch for."""
        return bool(self._options.check_in_after_s or self._options.hang_up_after_s)

    def handle_activity(self, *, now: float) -> None:
        """Something was said: silence begins anew."""
        self._since, self._asked = now, False

    def get_timer(self) -> float | None:
        """Return when `handle_timer` is due, seconds; None where nothing will come."""
        if self._since is None:
            return None
        options = self._options
        if options.check_in_after_s and not self._asked:
            return self._since + options.check_in_after_s
        return self._since + options.hang_up_after_s if options.hang_up_after_s else None

    def handle_timer(self, *, now: float) -> IdleAction | None:
        """Return what is due."""
        due = self.get_timer()
        if due is None or now < due:
            return None
        if self._options.check_in_after_s and not self._asked:
            self._asked = True
            return IdleAction.CHECK_IN
        self._since = None
        return IdleAction.HANG_UP
