"""How long to wait after a voice has paused: what the words say, what the sound says, and what is being dictated. Pure.

Silence alone cannot tell a pause for thought from the end of a turn. The words so far are looked at (may a sentence end
here?), and so is the end-of-turn model's verdict on the sound. Where both say that the thought is complete the wait is
short; where the words cannot end a sentence, or a number or a spelling is being dictated, it is long.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import Final

from peer.words import normalize, split_units


class Completeness(enum.Enum):
    """What the words so far say about the end of a turn."""

    COMPLETE = "complete"
    """A whole sentence or question."""
    OPEN = "open"
    """Nothing speaks for an end or against it."""
    INCOMPLETE = "incomplete"
    """A sentence does not end on these words."""
    DICTATION = "dictation"
    """A number, a name or an address is being given piece by piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfTurnOptions:
    """Waits in milliseconds of silence, from the voice's end."""

    complete_ms: float = 300.0
    doubtful_ms: float = 400.0
    """The words are a whole sentence, and the sound leaves it open."""
    open_ms: float = 500.0
    incomplete_ms: float = 1400.0
    dictation_ms: float = 1600.0
    disputed_ms: float = 560.0
    """The words are a whole sentence, and the sound is that of a pause."""
    unsure_ms: float = 800.0
    """Nothing in the words speaks for an end, and the sound is that of a pause."""
    likely: float = 0.5
    """The model's probability from which the sound is that of an end."""
    unlikely: float = 0.15
    """The model's probability below which the sound is that of a pause."""

    def scaled_to(self, open_ms: float) -> EndOfTurnOptions:
        """Return the same manners, faster or slower, so that `open_ms` is what an undecided pause gets."""
        factor = open_ms / self.open_ms
        return replace(
            self,
            open_ms=open_ms,
            complete_ms=self.complete_ms * factor,
            doubtful_ms=self.doubtful_ms * factor,
            disputed_ms=self.disputed_ms * factor,
            unsure_ms=self.unsure_ms * factor,
            incomplete_ms=self.incomplete_ms * factor,
            dictation_ms=self.dictation_ms * factor,
        )


def judge_words(text: str) -> Completeness:
    """Return what `text`, a transcript up to a pause, says about the end of the turn; English and Chinese are known."""
    text = text.strip()
    if not text:
        return Completeness.OPEN
    if _WIDE.search(text):
        return _judge_chinese(text)
    units = split_units(text)
    words = [word for unit in units if (word := normalize(unit))]
    if not words:
        return Completeness.OPEN
    if _dictates(words, units):
        return Completeness.DICTATION
    question = text.endswith("?")
    last = words[-1]
    if text.endswith(("...", "…", "-", "—", "–", ",")) or last in _NEVER_LAST:
        return Completeness.INCOMPLETE
    if last in _SELDOM_LAST and " ".join(words[-2:]) not in _PAIRS_THAT_END:
        short = question and words[0] in _QUESTION_WORDS and len(words) <= 7 and last in _STRANDED
        embedded = last in _EMBEDDED_END and any(word in _QUESTION_WORDS for word in words[1:-2])
        asks_what = short or embedded
        return Completeness.OPEN if asks_what else Completeness.INCOMPLETE
    asked = question and words[0] in _QUESTION_WORDS  # "Who are you?"
    if not asked and (" ".join(words[-2:]) in _PAIRS_THAT_LEAD_ON or (len(words) >= 2 and _leads_on(words))):
        return Completeness.INCOMPLETE
    if last in _MAY_LEAD_ON or (len(words) >= 2 and words[-2] in _PREPOSITIONS and last in _OBJECTS):
        return Completeness.OPEN
    if words[-1] in _FILLERS:
        return Completeness.INCOMPLETE
    if len(words) <= 3 and " ".join(words) in _OPENERS:
        return Completeness.OPEN
    return Completeness.COMPLETE if text.endswith((".", "?", "!")) else Completeness.OPEN


def choose_wait_ms(
    completeness: Completeness, end_probability: float | None, *, options: EndOfTurnOptions | None = None
) -> float:
    """Return the silence that ends the turn; `end_probability` is the end-of-turn model's answer, None without one."""
    options = options or EndOfTurnOptions()
    if completeness is Completeness.DICTATION:
        return options.dictation_ms
    if completeness is Completeness.INCOMPLETE:
        return options.incomplete_ms
    if end_probability is None:
        return options.open_ms
    complete = completeness is Completeness.COMPLETE
    if end_probability < options.unlikely:
        return options.disputed_ms if complete else options.unsure_ms
    if end_probability < options.likely:
        return options.doubtful_ms if complete else options.unsure_ms
    return options.complete_ms if complete else options.open_ms


def weigh_looks(first: float, second: float, *, options: EndOfTurnOptions) -> float:
    """Return the end-of-turn model's probability after its second look at a pause.

    Longer silence alone makes the model surer. Where it heard a pause at first, its later yes counts as a doubt: of
    pauses inside sentences 12 in 100 turn so, of ends 1 in 100.
    """
    return min(second, (options.unlikely + options.likely) / 2) if first < options.unlikely else second


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WIDE: Final = re.compile(r"[\u3400-\u9fff]")
_NEVER_LAST: Final = _word_set(
    "the a an and or but nor because although though whereas unless whether if than my your our their its every each "
    "i'm you're we're they're he's she's i'll we'll you'll i'd you'd we'd i've you've we've they've gonna wanna gotta "
    "it's that's there's here's who's where's let's "
    "very quite rather as into onto upon among between during toward towards per via versus plus "
    "an' cause cuz which whose while until till since such both either neither mr mrs dr"
)
"""Words that no sentence of speech ends on."""
_SELDOM_LAST: Final = _word_set(
    "to of for from with at by in on about that who what when where why how is are was were be been being am do does "
    "did has have had will would can could should shall may might must i we he she they his her these those some any "
    "no like so not just also then only even under over through against without within around before "
    "after another other several most"
)
"""Words that mostly lead on, but may end a question ("What is it for?") or a short answer."""
_QUESTION_WORDS: Final = _word_set("what what's who who's where where's which how how's when why")
_STRANDED: Final = _word_set("for from with at by in on about like is are was were do does did that this of")
"""Words that a question about them leaves at its end: "What is it for?", "Where are you from?"."""
_EMBEDDED_END: Final = _word_set("is are was were does do did")
"""Verbs that an embedded question ends on: "Can you tell me what the capital of France is?"."""
_PAIRS_THAT_END: Final = frozenset({
    "so far", "i do", "i did", "i am", "i will", "i would", "i can", "i have", "you are", "it is", "they are", "we are",
    "that is", "i was", "it was", "yes i", "right now", "not at all", "at all", "after all", "that's all", "is all",
    "come in", "go on", "turn on", "hold on", "come on", "move on", "log in", "does it", "do they",
    "sign in", "turn off", "think so",
    "guess so", "hope so", "how so", "once more", "any more", "no more", "one more", "tell me more", "me more",
    "the other", "each other", "so much", "very much", "too much", "how much", "how many", "too many", "at last",
    "or not", "why not", "if not", "i think not", "the first", "the last", "the next", "and so on", "so on",
    "like that", "do that", "about that", "for that", "with that", "of that", "on that",
    "like this", "about her", "to her", "with her", "for her", "tell her", "the most", "at most", "at first",
    "what for",
})  # fmt: skip
_PREPOSITIONS: Final = _word_set("to of for from with at by in on about")
_OBJECTS: Final = _word_set("me it them you him us")
"""Of a sentence broken off at "for" or "for my" the recogniser likes to make one that ends: "for me."."""
_MAY_LEAD_ON: Final = _word_set("first last next more less few many much all")
_PAIRS_THAT_LEAD_ON: Final = frozenset({
    "could you", "can you", "would you", "will you", "do you", "did you", "are you", "should i", "can i", "could i",
    "may i", "do i", "am i", "is it", "is there", "are there", "there is", "there are", "there was", "i think",
    "i guess", "i mean", "i want", "i need", "i wonder", "let me", "let us", "tell me", "give me", "show me", "that i",
    "if i", "when i", "what i", "and i", "but i", "because i", "which one", "one of", "kind of", "sort of", "a lot",
})  # fmt: skip
_OPENERS: Final = frozenset({
    "hello", "hi", "hi there", "hey", "well", "okay", "ok", "yes", "no", "right", "alright", "all right", "sure",
    "wait", "listen", "look", "sorry", "excuse me", "good morning", "good evening", "good afternoon", "thank you",
    "thanks", "please", "yes please", "let me think", "let me see", "guess what", "actually", "hello there",
})  # fmt: skip
"""Whole in themselves, but people often go on after them."""
_FILLERS: Final = _word_set("um uh uhm er erm hmm hm mm ah eh well like actually basically")
_DIGIT_WORDS: Final = _word_set("zero oh one two three four five six seven eight nine ten double triple")
_DICTATED: Final = re.compile(r"^(?:\d+|[a-z])$")
_ANNOUNCERS: Final = re.compile(
    r"\b(?:number|code|phone|zip|address|email|e-mail|spelled|spell|reservation|account|serial|pin|is it)\b"
)


def _leads_on(words: list[str]) -> bool:
    """Return whether a modal or an auxiliary with its subject waits for its verb: "that we could", "when does he"."""
    return words[-2] in _word_set("that if when because and but what where how why which") and words[-1] in _word_set(
        "i you he she it we they"
    )


def _dictates(words: list[str], units: list[str]) -> bool:
    """Return whether the text ends in digits or letters one by one, or a number announced and not yet given."""
    run = 0
    for word in reversed(words):
        if not (word in _DIGIT_WORDS or _DICTATED.match(word)) or word in {"a", "i"}:
            break
        run += 1
    digits = re.search(r"\d[\d\s.,-]*$", "".join(units).rstrip(" .?!,"))
    long_number = digits is not None and sum(char.isdigit() for char in digits[0]) >= 3
    announced = _ANNOUNCERS.search(" ".join(words).lower()) is not None
    return run >= 3 or (announced and (run >= 1 or long_number)) or (announced and words[-1] in {"is", "at", "dot"})


_ZH_NEVER_LAST: Final = (
    "的话", "因为", "所以", "但是", "可是", "而且", "如果", "虽然", "或者", "还有", "然后", "以及", "比如", "关于",
    "为了", "对于", "和", "跟", "把", "被", "从", "向", "在", "是", "想", "要", "请", "这个", "那个", "就是", "不过",
    "到", "给", "让",
)  # fmt: skip
_ZH_OPENERS: Final = frozenset(
    {"你好", "您好", "喂", "嗯", "好", "好的", "请问", "对", "是的", "不好意思", "早上好", "谢谢"}
)
_ZH_DIGITS: Final = re.compile(r"[\d零〇一二三四五六七八九幺两]{3,}$")


def _judge_chinese(text: str) -> Completeness:
    bare = text.rstrip("。！？!?.，,、… ")
    if _ZH_DIGITS.search(bare):
        return Completeness.DICTATION
    if bare == "请问" or text.endswith(("，", "、", "…", ",")):
        return Completeness.INCOMPLETE
    if bare in _ZH_OPENERS:
        return Completeness.OPEN
    if text.endswith(("？", "?")) or bare.endswith(("吗", "呢", "吧", "了")):
        return Completeness.COMPLETE
    if bare.endswith(_ZH_NEVER_LAST):
        return Completeness.INCOMPLETE
    return Completeness.COMPLETE if text.endswith(("。", "！", "!", ".")) else Completeness.OPEN
