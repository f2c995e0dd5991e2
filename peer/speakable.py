"""Makes written text speakable: no markdown, no emoji, no addresses read letter by letter; numbers and units as words.

Pure and stateless: one piece of a reply in, what the voice should say out. English and Chinese are rewritten in full;
other languages lose their markup and symbols and keep their numbers, which the voice reads by its own rules.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Final

from peer.speakable_chinese import speak_chinese
from peer.speakable_english import speak_english

_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)\s]*(?:\s+\"[^\"]*\")?\)")
_AUTOLINK: Final = re.compile(r"<((?:https?://|mailto:)[^>\s]+)>")
_TAG: Final = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
_LINE_MARK: Final = re.compile(r"(?m)^[ \t]*(?:#{1,6}[ \t]+|>+[ \t]?|[-*+•][ \t]+(?:\[[ xX]\][ \t]+)?)")
_RULE: Final = re.compile(r"(?m)^[ \t]*(?:[-*_=][ \t]*){3,}$|^[ \t]*(?:```|~~~).*$")
_TABLE_RULE: Final = re.compile(r"(?m)^[ \t]*\|?[ \t:|-]*-{3,}[ \t:|-]*$")
_EMPHASIS: Final = re.compile(r"(?<![\w*_~`])(\*{1,3}|_{1,3}|~~|`{1,3})(?=\S)(.+?)(?<=\S)\1(?![\w])|(\*{2,}|`+|~~)")
_INNER_BOLD: Final = re.compile(r"(?<!\d)(\*{1,3})(\S(?:[^*\n]*\S)?)\1(?!\d)")
_LINE_END: Final = re.compile(r"(?<=[^\s.!?…:;,。！？；：，、])[ \t]*\n+(?=\s*\S)")
_SPACES: Final = re.compile(r"[ \t\u00a0\u2000-\u200a\u202f\u3000]*\n[\s]*|[ \t\u00a0\u2000-\u200a\u202f\u3000]+")
_SPACE_BEFORE_MARK: Final = re.compile(r"\s+([,.;:!?，。！？；：])(?!\w)")
_EMOTICON: Final = re.compile(r"(?<!\S)[:;=8][-o']?[)(DPp/\\|*](?!\S)|(?<!\S)<3(?!\S)")
_STRAY_CATEGORIES: Final = frozenset({"So", "Cs", "Co", "Cn", "Cf", "Cc", "Sk"})
_KEPT_SYMBOLS: Final = frozenset("°©®™℃℉№\n\t")
_NOTHING_SAID: Final = re.compile(r"[\w°%$€£¥+=]")

_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_OTHER_SCRIPT: Final = re.compile(r"[\u0370-\u1fff\u3040-\u30ff\uac00-\ud7af]")


def _language_by_script(text: str) -> str:
    if _OTHER_SCRIPT.search(text):
        return "und"
    return "zh" if _HAN.search(text) else "en"


def make_speakable(text: str, language: str = "en") -> str:
    """Return `text` as it should be said in `language` (ISO 639-1), or "" where nothing is left to say.

    Without a language its script decides between English, Chinese and any other.
    """
    language = language or _language_by_script(text)
    text = _drop_symbols(_drop_markup(unicodedata.normalize("NFC", text)))
    if language.startswith("en"):
        text = speak_english(text)
    elif language.startswith("zh"):
        text = speak_chinese(text)
    text = _SPACE_BEFORE_MARK.sub(r"\1", _SPACES.sub(" ", text)).strip()
    return text if _NOTHING_SAID.search(text) else ""


def _drop_markup(text: str) -> str:
    text = _AUTOLINK.sub(r"\1", _LINK.sub(r"\1", text))
    text = html.unescape(_TAG.sub("", text))
    text = _LINE_MARK.sub("", _TABLE_RULE.sub("", _RULE.sub("", text)))
    text = re.sub(r"(?m)^[ \t]*\|[ \t]*|[ \t]*\|[ \t]*$", "", text)
    text = re.sub(r"[ \t]\|[ \t]", ", ", text)
    for _ in range(3):  # ***both*** and **bold with _italic_** nest at most so deep
        text = _EMPHASIS.sub(lambda found: found[2] or "", text)
    text = _INNER_BOLD.sub(r"\2", text)
    return _LINE_END.sub(". ", text)


def _drop_symbols(text: str) -> str:
    text = _EMOTICON.sub("", text)
    return "".join(
        char
        for char in text
        if char in _KEPT_SYMBOLS
        or (
            unicodedata.category(char) not in _STRAY_CATEGORIES
            and not "\ufe00" <= char <= "\ufe0f"
            and char != "\u20e3"
        )
    )
