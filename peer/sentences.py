"""Cuts a reply that is still being written into pieces to speak: the first clause early, then sentence by sentence.

A cut never falls inside a number (3.5), a title or abbreviation (Dr., St. James St.), an address (URL, e-mail) or a
word, and no piece grows past `max_chars`, whatever the model writes. Pieces keep their white space: joined, they are
the text that was fed, fenced code blocks excepted, which nobody can listen to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_TITLES: Final = _word_set(
    "dr mr mrs ms mx prof gen col lt sgt capt cmdr adm rev hon pres gov sen rep mt ft fig figs eq eqs sec ch vol pp vs "
    "eg e.g ie i.e cf viz approx dept est min max tel ext no nos art ca esp incl resp"
)
"""Abbreviations that something always follows: a sentence hardly ends on them."""
_AMBIGUOUS: Final = _word_set(
    "st ave blvd rd ln hwy sq jr sr inc ltd co corp llc bros etc al a.m p.m u.s u.k u.n e.u d.c b.c a.d ph.d "
    "jan feb apr jun jul aug sep sept oct nov dec tue thu fri"
)
"""Abbreviations on which a sentence may end too; only an unmistakable beginning after them is a cut."""
_UNITS: Final = _word_set("in oz lb lbs cm km kg hr hrs mins secs am pm")
"""The same, behind a number: "12 in. wide", but "come in. Sit down"."""
_STARTERS: Final = _word_set(
    "the a an i you he she it we they this that these those there here but and so then if when what who why how where "
    "my your his her its our their is are do does did can could would will let please yes no not also however"
)
_NUMBERED: Final = _word_set("no nos fig figs eq sec ch vol min max est art tel")
"""Words of their own, or abbreviations before a number: "No. 5"."""
_CJK: Final = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_CLOSERS: Final = r"[\"'”’)\]}»*_`]*"
_SENTENCE_END: Final = re.compile(
    rf"(?P<wide>[。！？；]+[”’』」）》]*)|(?P<ascii>[.!?…]+{_CLOSERS})(?=(?P<gap>\s+)(?P<next>\S))|(?P<line>\n+)|"
    rf"(?P<mixed>(?<=[{_CJK}])[!?]+)"
)
_CLAUSE_END: Final = re.compile(rf"[，、：]|[,;:–—]{_CLOSERS}\s+|\s-+\s+")
_WORD_BEFORE: Final = re.compile(r"[\w.&’']+$")
_SPACE: Final = re.compile(r"\s")
_JOINTS: Final = re.compile(
    r"(?<=\s)(?=(?:and|but|or|because|which|who|so|when|where|while|although|if|unless|until)\s)"
)
_PHRASE_HEADS: Final = _word_set(
    "is are was were has have had will would can could should may might must do does did in on at to for with from by "
    "about as than into over under after before during through between and or but because that which who when where "
    "while if unless until so"
)
"""Words with which a phrase begins, so that a voice may take breath before them."""
_NEVER_BEFORE_A_BREATH: Final = _PHRASE_HEADS | _word_set(
    "the a an this these those my your his her its our their of no not very so more most i you he she it we they "
    "there be been"
)
_BETWEEN_WORDS: Final = re.compile(r"(?<=[^\W_])\s+(?=([^\W_][\w'’-]*)[\s,;:.!?])")
_HAS_CJK: Final = re.compile(f"[{_CJK}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkerOptions:
    """How pieces are cut; lengths in characters, times in seconds."""

    first_clause_words: int = 2
    """A reply's first piece may end at a comma or dash after at least so many words."""
    first_joint_words: int = 7
    """A reply's first piece may end before "and", "because" … once it has so many words."""
    first_phrase_words: int = 0
    """A reply's first piece may end between two phrases once it has so many words, and between any two words at twice
    as many; 0 never."""
    second_phrase_words: int = 0
    """The same for the second piece, which has only the first's sound to be made in."""
    max_chars: int = 220
    """No piece is longer: text that never ends a sentence is cut at a clause, else at a word (about 15 s of speech)."""
    max_cjk_chars: int = 60
    """The same for Chinese, Japanese and Korean, whose characters take about four times as long."""
    trickle_s: float = 0.8
    """Whole words that have waited so long for the rest of their sentence are spoken without it."""


class SentenceChunker:
    """Streaming cutter of one reply; feed it text as it comes, speak what it returns, flush it at the end."""

    def __init__(self, options: ChunkerOptions | None = None) -> None:
        self._options: Final = options or ChunkerOptions()
        self._buffer = ""
        self._fences = _FenceFilter()
        self._given = 0
        self._waiting_since: float | None = None

    @property
    def pending(self) -> str:
        """Text fed and not yet returned."""
        return self._buffer

    def feed(self, text: str, *, now: float | None = None) -> list[str]:
        """Take more of the reply and return the pieces that it completes; `now` arms the timer against trickling."""
        self._buffer += self._fences.feed(text)
        pieces = self._cut()
        self._rearm(now, cut=bool(pieces))
        return pieces

    def flush(self) -> list[str]:
        """Return the rest, at the end of the reply, still bounded in length; the next text begins a new reply."""
        self._buffer += self._fences.flush()
        pieces = self._cut()
        if self._buffer.strip():
            pieces.append(self._buffer)
        self._buffer, self._given, self._waiting_since = "", 0, None
        return pieces

    def release(self, *, now: float | None = None) -> list[str]:
        """Return the whole words that wait, for a voice that is about to fall silent; keeps an unfinished word."""
        end = self._last_safe_space(len(self._buffer))
        if not self._buffer[:end].strip():
            return []
        pieces = [self._take(end)]
        self._rearm(now, cut=True)
        return pieces

    def get_timer(self) -> float | None:
        """Return when `handle_timer` is due, if text waits."""
        return None if self._waiting_since is None else self._waiting_since + self._options.trickle_s

    def handle_timer(self, *, now: float) -> list[str]:
        """Return what has waited too long for the end of its sentence."""
        due = self.get_timer()
        if due is None or now < due:
            return []
        pieces = self.release(now=now)
        if not pieces:
            self._waiting_since = now
        return pieces

    def _rearm(self, now: float | None, *, cut: bool) -> None:
        if not self._buffer.strip():
            self._waiting_since = None
        elif now is not None and (cut or self._waiting_since is None):
            self._waiting_since = now

    def _take(self, end: int) -> str:
        piece, self._buffer = self._buffer[:end], self._buffer[end:]
        self._given += 1
        return piece

    def _cut(self) -> list[str]:
        pieces = []
        while (end := self._next_cut()) is not None:
            pieces.append(self._take(end))
        return pieces

    def _next_cut(self) -> int | None:
        limit = self._limit()
        end = self._sentence_end()
        if end is None and self._given == 0:
            end = self._first_clause_end() or self._phrase_end(self._options.first_phrase_words)
        elif end is None and self._given == 1:
            end = self._phrase_end(self._options.second_phrase_words)
        if end is not None and end <= limit:
            return end
        if len(self._buffer) <= limit:
            return None
        clause = max((m.end() for m in _CLAUSE_END.finditer(self._buffer, 0, limit)), default=0)
        return clause if clause >= limit // 3 else self._last_safe_space(limit) or limit

    def _limit(self) -> int:
        head = self._buffer[: self._options.max_chars]
        wide = len(_HAS_CJK.findall(head))
        return self._options.max_cjk_chars if wide * 3 > len(head) else self._options.max_chars

    def _sentence_end(self) -> int | None:
        for match in _SENTENCE_END.finditer(self._buffer):
            if not self._buffer[: match.start()].strip():
                continue
            if match["ascii"] is None:
                return match.end()
            following = self._buffer[match.start("next") :]
            if self._ends_sentence(self._buffer[: match.start()], match["ascii"], following):
                return match.end("gap")
        return None

    def _ends_sentence(self, before: str, mark: str, following: str) -> bool:
        if following[0] in ",;:)":
            return False
        if not mark.startswith((".", "…")):
            return True
        if following[0].islower():
            return False
        found = _WORD_BEFORE.search(before)
        if found is None or mark.startswith(("..", "…")):
            return True
        word = found[0].lower().rstrip(".")
        if word.isdigit() and not before[: found.start()].rsplit("\n", maxsplit=1)[-1].strip(" \t>*-"):
            return False  # "1. First": the number of a list item belongs to its item
        if word in _NUMBERED:
            return not following[0].isdigit()
        if word in _TITLES:
            return False
        initials = len(word) == 1 and word.isalpha() and found[0].isupper() and word != "i"
        unit = word in _UNITS and before[: found.start()].rstrip()[-1:].isdigit()
        if word in _AMBIGUOUS or unit or initials or re.fullmatch(r"(?:\w\.)+\w", word):
            head = re.match(r"[\"“‘(]*([A-Za-z]+)(?=[^A-Za-z])", following)
            return head is not None and head[1].lower() in _STARTERS
        return True

    def _first_clause_end(self) -> int | None:
        for match in _CLAUSE_END.finditer(self._buffer):
            head = self._buffer[: match.start()]
            words = len(head.split()) + len(_HAS_CJK.findall(head)) // 2
            if words >= self._options.first_clause_words:
                return match.end()
        for joint in _JOINTS.finditer(self._buffer):
            if len(self._buffer[: joint.start()].split()) >= self._options.first_joint_words:
                return joint.start()
        return None

    def _phrase_end(self, least_words: int) -> int | None:
        """Return where a phrase of so many words ends, or where twice as many have come without one."""
        if not least_words:
            return None
        for gap in _BETWEEN_WORDS.finditer(self._buffer):
            words = self._buffer[: gap.start()].split()
            if len(words) < least_words or words[-1].lower() in _NEVER_BEFORE_A_BREATH:
                continue
            if gap[1].lower() in _PHRASE_HEADS or len(words) >= 2 * least_words:
                return gap.end()
        return None

    def _last_safe_space(self, limit: int) -> int:
        """Return the position after the last white space that ends a whole word and splits no abbreviation."""
        for match in reversed(list(_SPACE.finditer(self._buffer, 0, limit))):
            head = self._buffer[: match.start()]
            found = _WORD_BEFORE.search(head)
            if found is None or not found[0].endswith(".") or found[0].lower().strip(".") not in _TITLES | _AMBIGUOUS:
                return match.end()
        return 0


class _FenceFilter:
    """Streaming filter that drops fenced code blocks (``` or ~~~, CommonMark 4.5) and passes all else."""

    def __init__(self) -> None:
        self._held = ""
        self._in_fence = False
        self._line_is_blank = True
        """Nothing but white space was passed since the last line break, so a fence may begin."""

    def feed(self, text: str) -> str:
        """Return what of the text so far is known to be no code, holding back a line that may become a fence."""
        *lines, rest = (self._held + text).split("\n")
        out = [self._whole_line(line + "\n") for line in lines]
        self._held = rest
        if not self._in_fence and not self._may_become_fence(rest):
            out.append(rest)
            self._line_is_blank = self._line_is_blank and not rest.strip()
            self._held = ""
        return "".join(out)

    def flush(self) -> str:
        """Return what was held back, and begin anew."""
        rest = "" if self._in_fence or self._is_fence(self._held) else self._held
        self._held, self._in_fence, self._line_is_blank = "", False, True
        return rest

    def _whole_line(self, line: str) -> str:
        is_fence = self._is_fence(line)
        passes = not self._in_fence and not is_fence
        self._in_fence ^= is_fence
        self._line_is_blank = True
        return line if passes else ""

    def _is_fence(self, line: str) -> bool:
        mark = line.strip()[:3]
        return self._line_is_blank and mark in {"```", "~~~"} and mark not in line.strip()[3:]

    def _may_become_fence(self, rest: str) -> bool:
        mark = rest.strip()[:3]
        return self._line_is_blank and mark != "" and (mark in "```" or mark in "~~~")
