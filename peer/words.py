"""Text as a row of units: words, or characters where a script writes none apart. Pure."""

from __future__ import annotations

import re
from typing import Final

_WIDE: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_UNIT: Final = re.compile(rf"\s*(?:[{_WIDE}][^\w\s]*|[^\s{_WIDE}]+)\s*")
_MARKS: Final = re.compile(r"[^\w']+")


def split_units(text: str) -> list[str]:
    """Return words, and single characters of Chinese and Japanese, each with the marks and the white space it carries.

    Joined they are `text`.
    """
    return _UNIT.findall(text)


def normalize(unit: str) -> str:
    """Return `unit` for comparison: lower case, without marks."""
    return _MARKS.sub("", unit.lower()).strip("'")


def count_units(text: str) -> int:
    """Return how many words or wide characters `text` has."""
    return sum(1 for unit in split_units(text) if normalize(unit))
