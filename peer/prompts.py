"""A prompt's way to the language model and back, as a table: Idle → Parsing → Validation → Dispatch → Streaming. Pure.

`PROMPT_TRANSITIONS` holds every transition; `diagram()` draws it. A prompt may be interrupted in any state, which leads
through Interrupted back to Idle, and a failure that a second try may mend leads through Recovery to Dispatch, once.
`token_window` says how many tokens may stand between the model and the chunker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Final

TOKEN_CHANNEL_CAPACITY: Final = 256
"""Tokens that may wait in a reply's channel; a model that is further ahead is held back."""
_LEAST_WINDOW: Final = 4
_HEADROOM: Final = 1.2


class PromptState(Enum):
    """Where a prompt is."""

    IDLE = "idle"
    PARSING = "parsing"
    """The caller's words are being put together with the dialogue."""
    VALIDATION = "validation"
    """Is there anything to answer, and does it fit?"""
    DISPATCH = "dispatch"
    """Sent to the model; no token yet."""
    STREAMING = "streaming"
    INTERRUPTED = "interrupted"
    """Being cancelled; late tokens are dropped."""
    RECOVERY = "recovery"
    """It failed and is to be tried once more."""


class PromptEvent(Enum):
    """What can happen to a prompt."""

    SUBMITTED = "submitted"
    PARSED = "parsed"
    VALID = "valid"
    EMPTY = "empty"
    """Nothing was said that could be answered."""
    TOKEN = "token"  # noqa: S105 - no password
    FINISHED = "finished"
    FAILED = "failed"
    RETRY = "retry"
    GIVEN_UP = "given up"
    INTERRUPTION = "interruption"
    CANCELLED = "cancelled"
    """The model has let go."""


_S, _E = PromptState, PromptEvent

PROMPT_TRANSITIONS: Final[Mapping[tuple[PromptState, PromptEvent], PromptState]] = {
    (_S.IDLE, _E.SUBMITTED): _S.PARSING,
    (_S.PARSING, _E.PARSED): _S.VALIDATION,
    (_S.VALIDATION, _E.VALID): _S.DISPATCH,
    (_S.VALIDATION, _E.EMPTY): _S.IDLE,
    (_S.DISPATCH, _E.TOKEN): _S.STREAMING,
    (_S.DISPATCH, _E.FINISHED): _S.IDLE,
    (_S.DISPATCH, _E.FAILED): _S.RECOVERY,
    (_S.STREAMING, _E.TOKEN): _S.STREAMING,
    (_S.STREAMING, _E.FINISHED): _S.IDLE,
    (_S.STREAMING, _E.FAILED): _S.IDLE,  # what was said cannot be unsaid, so a broken reply is not begun anew
    (_S.RECOVERY, _E.RETRY): _S.DISPATCH,
    (_S.RECOVERY, _E.GIVEN_UP): _S.IDLE,
    (_S.PARSING, _E.INTERRUPTION): _S.IDLE,
    (_S.VALIDATION, _E.INTERRUPTION): _S.IDLE,
    (_S.DISPATCH, _E.INTERRUPTION): _S.INTERRUPTED,
    (_S.STREAMING, _E.INTERRUPTION): _S.INTERRUPTED,
    (_S.RECOVERY, _E.INTERRUPTION): _S.IDLE,
    (_S.INTERRUPTED, _E.CANCELLED): _S.IDLE,
    (_S.INTERRUPTED, _E.FINISHED): _S.IDLE,
    (_S.INTERRUPTED, _E.FAILED): _S.IDLE,
}


class PromptMachine:
    """The table with a memory of where it stands, and of whether the one retry was taken."""

    __slots__ = ("_retried", "_state")

    def __init__(self) -> None:
        self._state = PromptState.IDLE
        self._retried = False

    @property
    def state(self) -> PromptState:
        """Where the prompt is."""
        return self._state

    @property
    def may_retry(self) -> bool:
        """Whether a failure now may be tried once more."""
        return self._state is PromptState.RECOVERY and not self._retried

    def handle(self, event: PromptEvent) -> bool:
        """Take one event and return whether it belonged here; one that did not changes nothing."""
        state = PROMPT_TRANSITIONS.get((self._state, event))
        if state is None or (event is PromptEvent.RETRY and self._retried):
            return False
        if event is PromptEvent.RETRY:
            self._retried = True
        if state is PromptState.IDLE:
            self._retried = False
        self._state = state
        return True


def token_window(*, tokens_per_s: float, delay_s: float) -> int:
    """Return max(4, ⌈1.2 · r · δ⌉): tokens in flight that keep a reader busy who takes each after `delay_s` seconds.

    `tokens_per_s` is the model's measured rate; the channel's capacity is the upper bound.
    """
    wanted = math.ceil(_HEADROOM * max(0.0, tokens_per_s) * max(0.0, delay_s))
    return min(TOKEN_CHANNEL_CAPACITY, max(_LEAST_WINDOW, wanted))


class RateMeter:
    """Smoothed r and δ of a reply's tokens (exponential average), from which the window follows."""

    def __init__(self, *, weight: float = 0.2) -> None:
        self._weight: Final = weight
        self._gap_s: float | None = None
        self._delay_s: float | None = None
        self._last_at: float | None = None

    def handle_token(self, *, now: float) -> None:
        """Note that the model gave a token."""
        if self._last_at is not None and now > self._last_at:
            self._gap_s = self._smooth(self._gap_s, now - self._last_at)
        self._last_at = now

    def handle_taken(self, *, given_at: float, now: float) -> None:
        """Note that the chunker took a token which the model gave at `given_at`."""
        self._delay_s = self._smooth(self._delay_s, now - given_at)

    def handle_restart(self) -> None:
        """A new reply begins; the gap to the one before says nothing of the model's rate."""
        self._last_at = None

    @property
    def window(self) -> int:
        """The window by what was measured so far; the channel's capacity until something was."""
        if self._gap_s is None or self._delay_s is None:
            return TOKEN_CHANNEL_CAPACITY
        return token_window(tokens_per_s=1 / self._gap_s, delay_s=self._delay_s)

    def _smooth(self, before: float | None, value: float) -> float:
        return value if before is None else before + self._weight * (value - before)


def diagram() -> str:
    """Return the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> idle"]
    for (state, event), following in PROMPT_TRANSITIONS.items():
        lines.append(f"    {state.value} --> {following.value}: {event.value}")
    return "\n".join(lines)
