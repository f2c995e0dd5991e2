"""What was said in a call, as the LLM is told it: entries, corrections after an interruption, a window by tokens.

Pure. The history holds what was heard, never what was merely written: a reply that was cut is cut here too, a reply
that nobody heard a word of is withdrawn and the caller's turn reopened, so that one thought stays one user entry.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from peer.engines.base import ChatMessage
from peer.slots import Facts, Slots
from transport.spoken_text import join_spoken

_WIDE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_PIECES: Final = re.compile(r"[A-Za-z']+|\d|[^\sA-Za-z\d]")
_KNOWN_PART: Final = 4
"""What is known from before the window takes this part of it at most."""
_LEAST_KNOWN_TOKENS: Final = 20


def estimate_tokens(message: ChatMessage) -> int:
    """Return about how many tokens `message` takes with its template's marks, rather too many than too few."""
    wide = len(_WIDE.findall(message.content))
    words = sum(1 + (len(piece) - 1) // 5 for piece in _PIECES.findall(_WIDE.sub(" ", message.content)))
    return 5 + words + (wide * 3 + 1) // 2


@dataclass(slots=True, kw_only=True)
class Entry:
    """One thing said by one side."""

    role: Literal["user", "assistant"]
    text: str
    interrupted: bool = False
    """An assistant's entry that ends where the caller cut it."""
    _facts: tuple[str, Facts] | None = field(default=None, compare=False, repr=False)

    @property
    def facts(self) -> Facts:
        """What the text tells; found once for each text."""
        if self._facts is None or self._facts[0] != self.text:
            self._facts = (self.text, Facts(self.text, from_caller=self.role == "user"))
        return self._facts[1]

    def to_message(self) -> ChatMessage:
        """Return the entry as the engine takes it."""
        return ChatMessage(role=self.role, content=self.text)


class Dialogue:
    """The history of one call; `greeting`, if any, is what the assistant said first."""

    def __init__(self, system_prompt: str = "", *, greeting: str = "") -> None:
        self._system_prompt = system_prompt
        self._entries: list[Entry] = []
        self._earlier = ""
        """What the last user entry held before the turn that was entered last."""
        if greeting:
            self.add_assistant(greeting)

    @property
    def entries(self) -> Sequence[Entry]:
        """All that was said, oldest first, whether or not the window still holds it."""
        return self._entries

    @property
    def last_user_text(self) -> str:
        """What the caller said last, or ""."""
        return next((entry.text for entry in reversed(self._entries) if entry.role == "user"), "")

    def add_user(self, text: str) -> None:
        """Enter a turn of the caller; a turn that follows a user entry without a reply between is joined to it."""
        text = text.strip()
        if not text:
            return
        last = self._entries[-1] if self._entries else None
        if last is not None and last.role == "user":
            self._earlier = last.text
            last.text = join_spoken((last.text, text))
        else:
            self._earlier = ""
            self._entries.append(Entry(role="user", text=text))

    def set_user(self, text: str) -> None:
        """Replace what the turn entered last said, as its longer transcript does; enters it where none is open.

        What the caller said in a turn before, to which the entry was joined, stays.
        """
        if text.strip() and self._entries and self._entries[-1].role == "user":
            self._entries[-1].text = join_spoken((self._earlier, text.strip()))
        else:
            self.add_user(text)

    def add_assistant(self, text: str) -> None:
        """Enter a reply that begins with `text`; empty text enters nothing."""
        if text.strip():
            self._entries.append(Entry(role="assistant", text=text.strip()))

    def truncate_assistant(self, heard_text: str) -> None:
        """Cut the last entry, a reply, to what the caller heard of it; nothing heard withdraws it."""
        if not self._entries or self._entries[-1].role != "assistant":
            return
        last = self._entries[-1]
        heard = cut_to_heard(last.text, heard_text)
        if not heard:
            self._entries.pop()
        elif heard != last.text:
            last.text, last.interrupted = heard, True

    def reopen_user(self) -> str:
        """Withdraw an unheard reply, so that the caller's turn goes on; return that turn's text so far."""
        while self._entries and self._entries[-1].role != "user":
            self._entries.pop()
        return self._entries[-1].text if self._entries else ""

    def window(self, max_tokens: int) -> list[ChatMessage]:
        """Return the system prompt and the newest entries that fit in `max_tokens`, at least the last user turn.

        The window begins with a user entry, because chat templates expect one after the system prompt. What was told
        and asked before it (peer.slots) is added to the system message in a line, of a quarter of the window at most.
        Of a last turn that alone is too long the end is kept.
        """
        first = self._first_that_fits(max_tokens)
        if first == 0:
            return self._fitted(self._messages_from(0, ""), max_tokens)
        known_tokens = max(_LEAST_KNOWN_TOKENS, max_tokens // _KNOWN_PART)
        # What is known takes room of its own, so the window is cut once more with it.
        known, meant = self._known_before(first, known_tokens)
        first = self._first_that_fits(max_tokens - _tokens_of(known) - _tokens_of(meant))
        known, meant = self._known_before(first, known_tokens)
        messages = self._messages_from(first, known)
        if meant and messages[-1].role == "user":
            messages[-1] = ChatMessage(role="user", content=join_spoken((meant, messages[-1].content)))
        return self._fitted(messages, max_tokens)

    def _fitted(self, messages: list[ChatMessage], max_tokens: int) -> list[ChatMessage]:
        """Cut the beginning of a last turn that alone is too long."""
        excess = sum(map(estimate_tokens, messages)) - max_tokens
        if excess > 0 and sum(message.role != "system" for message in messages) == 1:
            messages[-1] = _without_beginning(messages[-1], estimate_tokens(messages[-1]) - excess)
        return messages

    def _first_that_fits(self, max_tokens: int) -> int:
        left = max_tokens
        if self._system_prompt:
            left -= estimate_tokens(ChatMessage(role="system", content=self._system_prompt))
        first = len(self._entries)
        for index in range(len(self._entries) - 1, -1, -1):
            entry = self._entries[index]
            left -= estimate_tokens(entry.to_message())
            if left < 0 and first < len(self._entries):
                break
            if entry.role == "user" or index == 0:
                first = index
        return first

    def _known_before(self, first: int, most_tokens: int) -> tuple[str, str]:
        """Return in a line what the entries before `first` tell and those from it on do not, and what the last one's
        "it" or "that restaurant" means by them."""
        slots = Slots()
        for entry in self._entries[:first]:
            slots.handle_facts(entry.facts)
        shown = [entry.text for entry in self._entries[first:]]
        known = slots.describe(without=shown, fits=lambda line: _tokens_of(line) <= most_tokens)
        return known, slots.resolve(shown[-1], shown=shown[:-1]) if shown else ""

    def _messages_from(self, first: int, known: str) -> list[ChatMessage]:
        messages = [entry.to_message() for entry in self._entries[first:]]
        system = " ".join(part for part in (self._system_prompt, known) if part)
        return [ChatMessage(role="system", content=system), *messages] if system else messages


def _tokens_of(line: str) -> int:
    return estimate_tokens(ChatMessage(role="system", content=line)) if line else 0


def _without_beginning(message: ChatMessage, most_tokens: int) -> ChatMessage:
    """Return the end of `message` that takes about `most_tokens`, cut at a word."""
    words = re.findall(rf"{_WIDE.pattern}|\S+\s*", message.content)
    while len(words) > 1 and _tokens_of("".join(words)) > most_tokens:
        del words[: max(1, len(words) // 16)]
    return ChatMessage(role=message.role, content="".join(words))


def cut_to_heard(text: str, heard: str) -> str:
    """Return the beginning of `text` that `heard` covers, word by word, whatever the two differ in besides words.

    `heard` may be the start of `text` itself, or of its spoken form with other spacing and marks; the cut falls on a
    word's end and never beyond the number of words heard.
    """
    heard = heard.strip()
    if not heard:
        return ""
    if text.startswith(heard):
        return heard if len(heard) < len(text) else text
    count = len(_WORDS.findall(heard))
    ends = [found.end() for found in _WORDS.finditer(text)]
    if count >= len(ends):
        return text
    return text[: ends[count - 1]].strip() if count else ""


_WORDS: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\s\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
