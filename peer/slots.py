"""What of a long call is worth remembering when its words have fallen out of the window: slots and entities. Pure.

Rules, not a model: what callers call themselves and their things, names written large, places, times, amounts, and the
noun that "it" or "that restaurant" may mean. A slot keeps its newest value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_PROPER: Final = r"([A-Z][\w'-]+(?: [A-Z][\w'-]+)?)"
_COUNT: Final = r"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_SLOTS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("name", re.compile(rf"(?i:\bmy name is|\bi am called|\bthis is|\bcall me)\s+{_PROPER}")),
    ("name", re.compile(r"我叫([\u4e00-\u9fff]{2,4})")),
    ("phone", re.compile(r"(?i:number is|call me (?:at|on))\s+([\d][\d\s-]{4,}\d)")),
    ("place", re.compile(rf"(?i:\bi live in|\b(?:i am|i'm) (?:in|from)|\b(?:going|travel|fly) to)\s+{_PROPER}")),
    ("people", re.compile(rf"(?i)\b(?:table|room|place|seats) for (\d+|{_COUNT})\b")),
    ("time", re.compile(rf"(?i)\bat (\d{{1,2}}(?::\d{{2}})?\s?(?:am|pm|a\.m\.|p\.m\.|o'clock)?|noon|midnight|"
                        rf"(?:{_COUNT})(?: (?:thirty|fifteen|o'clock))?)(?=[\s.,?!]|$)")),
    ("day", re.compile(r"(?i)\b(?:on |this |next )?(today|tonight|tomorrow|monday|tuesday|wednesday|thursday|friday|"
                       r"saturday|sunday)\b")),
    ("likes", re.compile(r"(?i)\bi (?:really )?(?:like|love|prefer) ((?!to\b|it\b|that\b)[\w' -]{3,40}?)(?=[.,!?]|$)")),
    ("has", re.compile(r"(?i)\b(?:i have|i've got|my) ((?:a |an )?(?:dog|cat|car|house|garden|son|daughter|brother|"
                       r"sister|wife|husband|job|plant|computer|phone|bike)\b[\w' -]{0,24}?)(?=[.,!?]|$)")),
)  # fmt: skip
_THING: Final = re.compile(
    r"(?i)\b(?:the|a|an|this|that) ((?:[a-z]+ )?(?:restaurant|hotel|museum|book|film|movie|song|recipe|city|town|river|"
    r"mountain|train|station|street|shop|store|park|library|garden|phone|computer|dog|cat|bird|plant|house|car|order|"
    r"ticket|table|room|doctor|teacher|story|game|company|school|church|bank|beach|island|country|planet|moon))\b"
    r"(?: (?:called|named) ([A-Z][\w'-]+(?: [A-Z][\w'-]+)*))?"
)
_NAME: Final = re.compile(r"(?<![.!?] )(?<!^)\b([A-Z][a-z]{2,}(?: (?:of |the |de )?[A-Z][a-z]+)*)")
_NO_NAMES: Final = frozenset({
    "I", "The", "And", "But", "So", "Yes", "No", "Well", "What", "Who", "How", "When", "Where", "Why", "Which", "Can",
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "English",
})  # fmt: skip
_MOST_ENTITIES: Final = 6


class Slots:
    """What was said of the caller and the world, by kind; fed turn by turn, oldest first."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._entities: list[str] = []

    @property
    def values(self) -> dict[str, str]:
        """Slots by name, newest value."""
        return dict(self._values)

    @property
    def entities(self) -> list[str]:
        """Things and names that pronouns may mean, newest last."""
        return list(self._entities)

    def handle_text(self, text: str, *, from_caller: bool) -> None:
        """Note what `text` tells; only the caller fills slots, both sides name things."""
        if from_caller:
            for name, pattern in _SLOTS:
                for found in pattern.finditer(text):
                    self._values[name] = found[1].strip()
        for found in _THING.finditer(text):
            self._mention(f"{found[1].lower()} {found[2]}" if found[2] else found[1].lower())
        for found in _NAME.finditer(text):
            if found[1] not in _NO_NAMES:
                self._mention(found[1])

    def describe(self, *, without: Iterable[str] = ()) -> str:
        """Return it all in a line, leaving out what the texts in `without` still say; "" for nothing."""
        shown = " ".join(without).lower()
        facts = [f"{name}: {value}" for name, value in self._values.items() if value.lower() not in shown]
        things = [entity for entity in self._entities if entity.lower() not in shown]
        if things:
            facts.append("spoken of: " + ", ".join(things))
        return f"Known from before: {'; '.join(facts)}." if facts else ""

    def _mention(self, entity: str) -> None:
        if entity in self._entities:
            self._entities.remove(entity)
        self._entities.append(entity)
        del self._entities[:-_MOST_ENTITIES]
