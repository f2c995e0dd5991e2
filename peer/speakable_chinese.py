"""Chinese for the voice: numbers, money, units, times and dates in Chinese words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from peer.numerals import chinese_cardinal, chinese_decimal, chinese_digits

_UNITS: Final = {
    "km/h": "公里每小时", "m/s": "米每秒", "km": "公里", "cm": "厘米", "mm": "毫米", "kg": "公斤", "mg": "毫克",
    "ml": "毫升", "ms": "毫秒", "hz": "赫兹", "gb": "吉字节", "mb": "兆字节",
    "°c": "摄氏度", "℃": "摄氏度", "°f": "华氏度",
    "℉": "华氏度", "°": "度", "m": "米", "g": "克", "l": "升",
}  # fmt: skip
_CURRENCIES: Final = {"$": "美元", "€": "欧元", "£": "英镑", "¥": "元", "￥": "元"}
_NUMBER: Final = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_UNIT: Final = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))


def _plain(number: str) -> str:
    return chinese_decimal(number.replace(",", ""))


def _integer(found: re.Match[str]) -> str:
    digits = found[0]
    if (len(digits) > 1 and digits[0] == "0") or len(digits) >= 9:
        return chinese_digits(digits)
    return chinese_cardinal(int(digits))


def _time(found: re.Match[str]) -> str:
    hour, minute = int(found[1]), int(found[2])
    spoken = f"{chinese_cardinal(hour)}点"
    if not minute:
        return f"{spoken}整"
    return f"{spoken}{'零' if minute < 10 else ''}{chinese_cardinal(minute)}分"


_RULES: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"https?://\S+|www\.[\w./-]+"), " "),
    (re.compile(r"(\d{4})(?=\s*年)"), lambda m: chinese_digits(m[1])),
    (re.compile(r"\b([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d)?"), _time),
    (re.compile(rf"([$€£¥￥])\s?({_NUMBER})"), lambda m: f"{_plain(m[2])}{_CURRENCIES[m[1]]}"),
    (re.compile(rf"({_NUMBER})\s?[%％]"), lambda m: f"百分之{_plain(m[1])}"),
    (re.compile(rf"({_NUMBER})\s?({_UNIT})(?![\w/])", re.IGNORECASE),
     lambda m: f"{_plain(m[1])}{_UNITS[m[2].lower()]}"),
    (re.compile(r"(?<![\d.])2(?=\s*[个只本张条位件次天年间辆杯瓶双块种])(?![.\d])"), "两"),
    (re.compile(r"(?<![\d.])(\d+)\s?[–~～-]\s?(\d+)(?![\d-])"), r"\1到\2"),
    (re.compile(r"(?<!\w)[-−](?=\d)"), "负"),
    (re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+"), lambda m: _plain(m[0])),
    (re.compile(r"\d+"), _integer),
    (re.compile(r"\s*&\s*"), "和"),
    (re.compile(r"\s*=\s*"), "等于"),
    (re.compile(r"\s*\+\s*"), "加"),
    (re.compile(r"[–—]+"), "，"),
    (re.compile(r"[*_`~^|\\<>{}\[\]#\"“”()（）《》「」『』【】°•]"), ""),
)  # fmt: skip


def speak_chinese(text: str) -> str:
    """Return `text` with numbers, units and symbols as Chinese words."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
