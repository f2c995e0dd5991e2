"""Whether a voice over the reply means it: an interruption, or a cough, a 'mhm', an echo. Pure."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

_WORDS: Final = re.compile(r"[\w']+")
_LISTENING_SOUNDS: Final = (
    "mhm mhmm mm mmm hm hmm uh huh buh uhhuh um ah aha ha oh ooh yeah yes yep yup right ok "
    "okay sure i see good great wow really "
    "嗯 哦 噢 对 是 是的 好 好的"
)
_BACKCHANNELS: Final = frozenset(_LISTENING_SOUNDS.split())
"""What listeners say to show that they listen, without wanting the floor (Yngve 1970's back channel)."""
_PHRASES: Final = re.compile(r"\b(?:got it|of course|all right|no way|makes sense|i understand)\b")
"""Said for the same; each word of them alone might want more."""
_FRAGMENTS: Final = frozenset({"and", "then", "the", "um", "hum"})
"""What recognisers make of a hum; nobody takes the floor with such a word alone."""
_MAX_BACKCHANNEL_WORDS: Final = 3


class Verdict(enum.Enum):
    """What the voice over the reply was."""

    INTERRUPTION = "interruption"
    FALSE_ALARM = "false alarm"


@dataclass(frozen=True, slots=True, kw_only=True)
class BargeInOptions:
    """When a voice over the reply becomes an interruption; times in milliseconds of audio since its onset."""

    peek_ms: float = 400.0
    """A voice that still speaks is listened to: the longer listening sounds end before `continued_ms`."""
    continued_ms: float = 560.0
    """A voice that still speaks after so long wants the floor; the reply is silent meanwhile."""
    latest_ms: float = 580.0
    """By then it is decided, if what the voice said so far is known."""
    late_ms: float = 680.0
    """By then it is decided in any case: a voice that ended without a word known is given this long for its words."""
    going_on_ms: float = 800.0
    """A voice that begins so soon after the reply's first sound does not react to it, but goes on with its own turn."""
    short_ms: float = 300.0
    """Voice shorter than this, with no transcript in time, is a false alarm."""


def judge_words(text: str) -> Verdict:
    """Judge a short utterance over the reply by its words; none at all is a noise."""
    words = _WORDS.findall(_PHRASES.sub("okay", text.lower()))
    if len(words) <= _MAX_BACKCHANNEL_WORDS and all(word in _BACKCHANNELS for word in words):
        return Verdict.FALSE_ALARM
    if len(words) == 1 and words[0] in _FRAGMENTS:
        return Verdict.FALSE_ALARM
    return Verdict.INTERRUPTION


def judge_time(
    options: BargeInOptions, *, since_onset_ms: float, speaking: bool, voiced_ms: float, beginning: str = ""
) -> Verdict | None:
    """Judge by time, while the whole has no transcript; None: not yet. `beginning`: what was made out of it so far."""
    if speaking and since_onset_ms >= options.continued_ms:
        return Verdict.INTERRUPTION
    if since_onset_ms < options.latest_ms:
        return None
    if beginning:
        return judge_words(beginning)
    if since_onset_ms < options.late_ms:
        return None
    return Verdict.INTERRUPTION if voiced_ms >= options.short_ms else Verdict.FALSE_ALARM
