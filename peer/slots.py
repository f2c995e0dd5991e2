"""What of a long call is worth remembering when its words have fallen out of the window: slots and entities. Pure.

Rules, not a model: what callers call themselves and their things, names written large, places, times, amounts, and the
noun that "it" or "that restaurant" may mean; and in a few words what each turn was about, which is the summary of what
fell out. A slot keeps its newest value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
_PRONOUN: Final = re.compile(r"(?i)\b(?:it|its|there|they|them|that one)\b")
_NO_NAMES: Final = frozenset({
    "I", "The", "And", "But", "So", "Yes", "No", "Well", "What", "Who", "How", "When", "Where", "Why", "Which", "Can",
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "English",
})  # fmt: skip
_LOOSE_ENDS: Final = frozenset({
    "the", "a", "an", "of", "to", "for", "in", "on", "at", "and", "or", "with", "is", "are", "from", "by", "about",
})  # fmt: skip
_WIDE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_MOST_ENTITIES: Final = 6
_MOST_TOPICS: Final = 12
_TOPIC_WORDS: Final = 6
_TOPIC_CHARS: Final = 12
"""Of Chinese, which has no spaces to count words by."""
_ASKING: Final = re.compile(
    r"(?i)^(?:(?:well|so|and|but|ok|okay|yes|no|please|hello|hi|hey|um|uh|now|then|also|thanks|thank you)\b[,.!]?\s*|"
    r"(?:can|could|would|will|do|does|did) (?:you|i|we|it|they)\b\s*|"
    r"(?:please )?(?:tell|give|show|help|explain to) me\b\s*|"
    r"(?:what|who|where|when|why|how|which)"
    r"(?:'s| is| are| was| were| do| does| did| can| should| would| many| much| far| long| about)*\b\s*|"
    r"(?:i|we|you) (?:would like|want|need|have|am|was|should|can|think|wonder)(?: to| a)?\b\s*|"
    r"(?:i'd like|i'm|is there|are there|is|are|was|were|let us|let's|about|something|more|the|a|an|to|if|of|for|my|me|"
    r"i|we|know|say|talk)\b\s*)+"
)
"""What a turn begins with before it says what it is about."""
_CHINESE_ASKING: Final = re.compile(
    r"^(?:(?:你好|请问|请|那么|那|我想|我要|你能|可以|告诉我|什么是|怎么|为什么|知道)[，、]?)+"
)


class Facts:
    """What one text tells: slots, things, and what it is about."""

    __slots__ = ("entities", "slots", "topic")

    def __init__(self, text: str, *, from_caller: bool) -> None:
        """Only the caller fills slots and sets topics; both sides name things."""
        self.slots: Final = [(name, found[1].strip()) for name, found in _slots_in(text)] if from_caller else []
        self.entities: Final = [
            f"{found[1].lower()} {found[2]}" if found[2] else found[1].lower() for found in _THING.finditer(text)
        ] + [found[1] for found in _NAME.finditer(text) if found[1] not in _NO_NAMES]
        self.topic: Final = topic_of(text) if from_caller and ("?" in text or not self.slots) else ""


def _slots_in(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    for name, pattern in _SLOTS:
        for found in pattern.finditer(text):
            yield name, found


def topic_of(text: str) -> str:
    """Return in a few words what a turn is about, "" for one that is about nothing: "What is the tallest tree?" gives
    "tallest tree"."""
    first = re.split(r"(?<=[.!?。！？])\s*", text.strip(), maxsplit=1)[0].rstrip(" .!?,。！？，")
    if _WIDE.search(first):
        return _CHINESE_ASKING.sub("", first)[:_TOPIC_CHARS].rstrip("吗呢吧")
    words = _ASKING.sub("", first).split()[:_TOPIC_WORDS]
    while words and words[-1].lower() in _LOOSE_ENDS:
        words.pop()
    return " ".join(words) if any(len(word) > 3 for word in words) else ""


class Slots:
    """What was said of the caller and the world, by kind; fed turn by turn, oldest first."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._entities: list[str] = []
        self._topics: list[str] = []

    @property
    def values(self) -> dict[str, str]:
        """Slots by name, newest value."""
        return dict(self._values)

    @property
    def entities(self) -> list[str]:
        """Things and names that pronouns may mean, newest last."""
        return list(self._entities)

    @property
    def topics(self) -> list[str]:
        """What the caller's turns were about, newest last."""
        return list(self._topics)

    def handle_text(self, text: str, *, from_caller: bool) -> None:
        """Note what `text` tells."""
        self.handle_facts(Facts(text, from_caller=from_caller))

    def handle_facts(self, facts: Facts) -> None:
        """Note what a text tells that was looked at before."""
        self._values.update(facts.slots)
        for entity in facts.entities:
            _mention(self._entities, entity, _MOST_ENTITIES)
        if facts.topic:
            _mention(self._topics, facts.topic, _MOST_TOPICS)

    def resolve(self, text: str, *, shown: Iterable[str] = ()) -> str:
        """Return what "that restaurant", "my name" or "it" in `text` means, as the caller might have said it; "" for
        nothing known, or where the texts in `shown` say it anyway."""
        before = " ".join(shown).lower()
        for entity in reversed(self._entities):
            noun, _, name = entity.partition(" ")
            named = name and noun.islower() and name.lower() not in f"{before} {text.lower()}"
            if named and re.search(rf"(?i)\b(?:that|the|this|my|our) (?:\w+ )?{re.escape(noun)}\b", text):
                return f"The {noun} is called {name}."
        name = self._values.get("name", "")
        if name and re.search(r"(?i)\bmy name\b", text) and name.lower() not in f"{before} {text.lower()}":
            return f"My name is {name}."
        newest = self._entities[-1] if self._entities else ""
        if (
            newest
            and _PRONOUN.search(text)
            and not any(_THING.search(one) or _NAME.search(one) for one in (*shown, text))
        ):
            return f"I mean {f'the {newest}' if newest[0].islower() else newest}."
        return ""

    def _is_said(self, entity: str) -> bool:
        """Return whether a slot or a longer name says it already, as "a dog called Rex" says "Rex" and "dog Rex"."""
        words = set(entity.lower().split())
        longer = [*self._values.values(), *(other for other in self._entities if len(other) > len(entity))]
        return any(words <= set(text.lower().split()) for text in longer)

    def describe(self, *, without: Iterable[str] = (), fits: Callable[[str], bool] = lambda _line: True) -> str:
        """Return it all in a line, leaving out what the texts in `without` still say; "" for nothing.

        As long as it `fits`: slots first, then things and topics, the newest of each before the older.
        """
        shown = " ".join(without).lower()
        facts, things, topics = (
            [f"{name}: {value}" for name, value in self._values.items() if value.lower() not in shown],
            [entity for entity in self._entities if entity.lower() not in shown and not self._is_said(entity)],
            [topic for topic in self._topics if topic.lower() not in shown],
        )
        line, kept = "", _Kept([], [], [])
        wanted = [(kept.facts, fact) for fact in facts]
        wanted += [(kept.things, thing) for thing in reversed(things)]
        wanted += [(kept.topics, topic) for topic in reversed(topics)]
        for chosen, words in wanted:
            chosen.append(words)
            longer = kept.line()
            if fits(longer):
                line = longer
            else:
                chosen.pop()
        return line


@dataclass(frozen=True, slots=True)
class _Kept:
    facts: list[str]
    things: list[str]
    """Newest first."""
    topics: list[str]

    def line(self) -> str:
        parts = list(self.facts)
        if self.things:
            parts.append("spoken of: " + ", ".join(reversed(self.things)))
        if self.topics:
            parts.append("asked about: " + ", ".join(reversed(self.topics)))
        return f"Known from before: {'; '.join(parts)}."


def _mention(known: list[str], words: str, most: int) -> None:
    if words in known:
        known.remove(words)
    known.append(words)
    del known[:-most]
