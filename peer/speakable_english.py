"""English for the voice: numbers, money, units, times, dates, abbreviations and addresses as they are said."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from peer.numerals import english_cardinal, english_decimal, english_digits, english_ordinal, english_year

_UNITS: Final = {
    "km/h": "kilometers per hour", "m/s": "meters per second", "mph": "miles per hour", "kb/s": "kilobits per second",
    "mb/s": "megabits per second", "kbps": "kilobits per second", "mbps": "megabits per second", "km": "kilometers",
    "cm": "centimeters", "mm": "millimeters", "kg": "kilograms", "mg": "milligrams", "g": "grams", "lb": "pounds",
    "lbs": "pounds", "oz": "ounces", "ft": "feet", "mi": "miles", "ml": "milliliters", "l": "liters",
    "ms": "milliseconds",
    "min": "minutes", "hr": "hours", "hrs": "hours", "khz": "kilohertz", "mhz": "megahertz", "ghz": "gigahertz",
    "hz": "hertz", "kb": "kilobytes", "mb": "megabytes", "gb": "gigabytes", "tb": "terabytes", "kw": "kilowatts",
    "kwh": "kilowatt hours", "w": "watts", "v": "volts", "db": "decibels",
    "°c": "degrees Celsius", "℃": "degrees Celsius",
    "°f": "degrees Fahrenheit", "℉": "degrees Fahrenheit", "°": "degrees", "%": "percent", "m²": "square meters",
    "km²": "square kilometers", "m": "meters", "s": "seconds", "h": "hours",
}  # fmt: skip
_SINGULAR: Final = {"feet": "foot", "hertz": "hertz", "percent": "percent", "ounces": "ounce"}
_CURRENCIES: Final = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny"), "¥": ("yen", "")}
_ABBREVIATIONS: Final = {
    "dr.": "Doctor", "mr.": "Mister", "mrs.": "Missus", "ms.": "Miz", "prof.": "Professor", "e.g.": "for example",
    "i.e.": "that is", "etc.": "et cetera", "vs.": "versus", "vs": "versus",
    "approx.": "approximately", "ave.": "Avenue",
    "blvd.": "Boulevard", "rd.": "Road", "jr.": "Junior", "sr.": "Senior", "inc.": "Incorporated", "ltd.": "Limited",
    "gov.": "Governor", "gen.": "General", "sgt.": "Sergeant", "capt.": "Captain", "mt.": "Mount",
    "dept.": "Department",
    "w/": "with", "w/o": "without",
}  # fmt: skip
_ENDS_TOO: Final = frozenset({"etc.", "inc.", "ltd.", "jr.", "sr.", "ave.", "blvd.", "rd."})
"""Abbreviations whose point may be the sentence's as well."""
_PREPOSITIONS: Final = frozenset({"in", "on", "at", "the", "of", "to", "from", "near", "and", "or", "by", "for"})
_MONTHS: Final = "January|February|March|April|May|June|July|August|September|October|November|December"
_NUMBER: Final = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
_UNIT: Final = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
_MAGNITUDE: Final = r"(?:\s+(?:thousand|million|billion|trillion))"
_FRACTIONS: Final = {"½": "a half", "¼": "a quarter", "¾": "three quarters", "⅓": "a third", "⅔": "two thirds"}


def _plain(number: str) -> str:
    return english_decimal(number.replace(",", ""))


def _unit(found: re.Match[str]) -> str:
    number = found[1].replace(",", "")
    name = _UNITS[found[2].lower()]
    if number == "1":
        head, *rest = name.split(" ")
        name = " ".join([_SINGULAR.get(head, head.removesuffix("s")), *rest])
    return f"{_plain(number)} {name}"


def _money(found: re.Match[str]) -> str:
    one, cent = _CURRENCIES[found[1]]
    number, magnitude = found[2].replace(",", ""), found[3] or ""
    whole, _, fraction = number.partition(".")
    many = one if one == "yen" else f"{one}s"
    if magnitude or (fraction and len(fraction) != 2):
        return f"{_plain(number)}{magnitude} {many}"
    value = int(whole or "0")
    spoken = f"{english_cardinal(value)} {one if value == 1 else many}"
    cents = int(fraction or "0")
    if not cents or not cent:
        return spoken
    coins = {"cent": "cents", "penny": "pence"}[cent] if cents != 1 else cent
    small = f"{english_cardinal(cents)} {coins}"
    return small if value == 0 else f"{spoken} and {small}"


def _time(found: re.Match[str]) -> str:
    hour, minute = int(found[1]), int(found[2])
    if hour > 24 or minute > 59:
        return f"{english_cardinal(hour)} {english_cardinal(minute)}"
    spoken = english_cardinal(hour)
    if minute:
        spoken += f" {'oh ' if minute < 10 else ''}{english_cardinal(minute)}"
    elif not found[3]:
        spoken += " o'clock" if 1 <= hour <= 12 else " hundred hours"
    return spoken + (f" {found[3][0].lower()} m" if found[3] else "")


def _address(found: re.Match[str]) -> str:
    text = re.sub(r"^(?:https?://|mailto:)?(?:www\.)?", "", found[0])
    tail = re.search(r"[.,!?;:)]+$", text)
    end = tail[0] if tail else ""
    text = text.removesuffix(end).split("?")[0].rstrip("/")
    said = re.sub(
        r"[-_]", " ", text.replace("@", " at ").replace("/", " slash ").replace(".", " dot ").replace(":", " ")
    )
    return said + end


def _abbreviation(found: re.Match[str]) -> str:
    word = found[0].lower()
    at_end = found.end() == len(found.string.rstrip())
    return _ABBREVIATIONS[word] + ("." if word in _ENDS_TOO and at_end else "")


def _integer(found: re.Match[str]) -> str:
    digits = found[0]
    as_code = len(digits) >= 7 or (len(digits) > 1 and digits[0] == "0")
    spoken = english_digits(digits) if as_code else english_cardinal(int(digits))
    before, after = found.string[: found.start()][-1:], found.string[found.end() :][:1]
    return f"{' ' if before.isalpha() else ''}{spoken}{' ' if after.isalpha() else ''}"  # "H2O" is three words


def _saint_or_street(found: re.Match[str]) -> str:
    before = found[1] or ""
    of_a_name = before[:1].isupper() and before.lower() not in _PREPOSITIONS
    said = "Saint" if found[2] and not of_a_name else "Street"
    at_end = found.end() == len(found.string.rstrip())
    return f"{before} {said}".strip() + ("." if at_end else "")


def _range(found: re.Match[str]) -> str:
    return f"{found[1]} to {found[2]}"


def _date(found: re.Match[str]) -> str:
    return f"{found[1]} {english_ordinal(int(found[2]))}"


_RULES: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"https?://\S+|www\.\S+|mailto:\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b[\w-]+(?:\.[\w-]+)*\."
                r"(?:com|org|net|edu|gov|io|dev|ai)\b(?:/\S*)?"), _address),
    (re.compile(r"(?:(\w+)\s+)?\bSt\.(?=(\s+[A-Z])?)"), _saint_or_street),
    (re.compile(r"(?i)(?<![\w.])(?:" + "|".join(re.escape(a) for a in sorted(_ABBREVIATIONS, key=len, reverse=True))
                + r")(?=\W|$)"), _abbreviation),
    (re.compile(r"\bNo\.\s*(?=\d)"), "number "),
    (re.compile(r"#(?=\d)"), "number "),
    (re.compile(r"\b([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d)?(?:\s*([AaPp])\.?[Mm]\b\.?)?"), _time),
    (re.compile(r"\b(\d{1,2})\s*([AaPp])\.?[Mm]\b\.?(?=\W|$)"),
     lambda m: f"{english_cardinal(int(m[1]))} {m[2].lower()} m"),
    (re.compile(rf"\b({_MONTHS})\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?![.,]?\d)"), _date),
    (re.compile(rf"([$€£¥])\s?({_NUMBER})({_MAGNITUDE})?"), _money),
    (re.compile(r"(?<![\d.])(\d+)\s?[–-]\s?(\d+)(?![\d-])"), _range),
    (re.compile(r"(?<!\w)[-−](?=\d)"), "minus "),
    (re.compile(rf"(?<![\w.])({_NUMBER})\s?({_UNIT})(?![\w/°²])", re.IGNORECASE), _unit),
    (re.compile(r"\b(\d+)(?:st|nd|rd|th)\b"), lambda m: english_ordinal(int(m[1]))),
    (re.compile(r"(?i)(?:(?<=\bin )|(?<=\bof )|(?<=\bsince )|(?<=\bfrom )|(?<=\buntil )|(?<=[a-z]th, )|(?<=[a-z]t, )|"
                r"(?<=[a-z]d, )|(?<=\bby )|(?<=\byear ))(1[1-9]\d\d|20\d\d)\b(?![,.]?\d)"),
     lambda m: english_year(int(m[1]))),
    (re.compile(r"(\d)\s*[½¼¾⅓⅔]"), lambda m: f"{english_cardinal(int(m[1]))} and {_FRACTIONS[m[0][-1]]}"),
    (re.compile(r"[½¼¾⅓⅔]"), lambda m: _FRACTIONS[m[0]]),
    (re.compile(r"(?<=\d)\s*[×x*]\s*(?=\d)"), " times "),
    (re.compile(r"(?<=\d)\s*[÷/]\s*(?=\d)"), " over "),
    (re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|(?<!\d)\.\d+"), lambda m: _plain(m[0])),
    (re.compile(r"\d+"), _integer),
    (re.compile(r"\s*&\s*"), " and "),
    (re.compile(r"\s*=\s*"), " equals "),
    (re.compile(r"\s+[+]\s+|[+](?=\w)"), " plus "),
    (re.compile(r"[@]"), " at "),
    (re.compile(r"%"), " percent"),
    (re.compile(r"(?<=\w)\s*/\s*(?=\w)"), " or "),
    (re.compile(r"[–—]|\s-+\s"), ", "),
    (re.compile(r"[*_`~^|\\<>{}\[\]#\"“”()°•]"), " "),
    (re.compile(r"\s+,"), ","),
)  # fmt: skip


def speak_english(text: str) -> str:
    """Return `text` with everything that is not said as it is written put into words."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
