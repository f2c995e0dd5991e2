"""Numbers as words: English cardinals, ordinals, years and digits, and Chinese numerals. Pure tables and arithmetic."""

from __future__ import annotations

from typing import Final

_ONES: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS: Final = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES: Final = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"))
_ORDINALS: Final = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
_LARGEST: Final = 10**15
"""From here on a number is an identifier and its digits are read one by one."""
_ZH_DIGITS: Final = "零一二三四五六七八九"


def english_cardinal(value: int) -> str:
    """Return `value` in English words, American style (no "and"); digit by digit from 10^15 on."""
    if value < 0:
        return f"minus {english_cardinal(-value)}"
    if value >= _LARGEST:
        return english_digits(str(value))
    words: list[str] = []
    for scale, name in _SCALES:
        count, value = divmod(value, scale)
        if count:
            words += [_below_thousand(count), name]
    if value or not words:
        words.append(_below_thousand(value))
    return " ".join(words)


def english_ordinal(value: int) -> str:
    """Return "first", "twenty second" … for a value of 0 or more."""
    head, _, last = english_cardinal(value).rpartition(" ")
    regular = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return f"{head} {_ORDINALS.get(last, regular)}".strip()


def english_year(value: int) -> str:
    """Return a year from 1100 to 2099 as it is said: "nineteen oh five", "two thousand nine", "twenty twenty six"."""
    century, rest = divmod(value, 100)
    if century == 20 and rest < 10:
        return english_cardinal(value)
    if rest == 0:
        return f"{english_cardinal(century)} hundred"
    return f"{english_cardinal(century)} {'oh ' if rest < 10 else ''}{english_cardinal(rest)}"


def english_digits(digits: str) -> str:
    """Return each decimal digit of `digits` as a word."""
    return " ".join(_ONES[int(digit)] for digit in digits)


def english_decimal(text: str) -> str:
    """Return a decimal such as "3.50" in words: the whole part as a number, the fraction digit by digit."""
    whole, _, fraction = text.partition(".")
    spoken = english_cardinal(int(whole or "0"))
    return f"{spoken} point {english_digits(fraction)}" if fraction else spoken


def chinese_cardinal(value: int) -> str:
    """Return `value` in Chinese numerals (simplified, 一百零五); digit by digit from 10^16 on."""
    if value < 0:
        return f"负{chinese_cardinal(-value)}"
    if value >= 10**16:
        return chinese_digits(str(value))
    if value == 0:
        return _ZH_DIGITS[0]
    out = ""
    for scale, name in ((10**12, "万亿"), (10**8, "亿"), (10**4, "万"), (1, "")):
        count, value = divmod(value, scale)
        if count:
            if out and count < 1000:
                out += "零"
            out += _chinese_below_ten_thousand(count) + name
    return out[1:] if out.startswith("一十") else out


def chinese_digits(digits: str) -> str:
    """Return each decimal digit of `digits` as a Chinese numeral."""
    return "".join(_ZH_DIGITS[int(digit)] for digit in digits)


def chinese_decimal(text: str) -> str:
    """Return a decimal such as "3.50" as 三点五零."""
    whole, _, fraction = text.partition(".")
    spoken = chinese_cardinal(int(whole or "0"))
    return f"{spoken}点{chinese_digits(fraction)}" if fraction else spoken


def _below_thousand(value: int) -> str:
    hundreds, rest = divmod(value, 100)
    words = [_ONES[hundreds], "hundred"] if hundreds else []
    if rest >= 20:
        words.append(_TENS[rest // 10])
        rest %= 10
        if rest:
            words.append(_ONES[rest])
    elif rest or not words:
        words.append(_ONES[rest])
    return " ".join(words)


def _chinese_below_ten_thousand(value: int) -> str:
    out, gap = "", False
    for scale, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, value = divmod(value, scale)
        if digit:
            out += ("零" if gap and out else "") + _ZH_DIGITS[digit] + name
            gap = False
        else:
            gap = True
    return out
