"""Written text as it is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.numerals import chinese_cardinal, english_cardinal, english_ordinal, english_year
from peer.speakable import make_speakable


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("**Hello** _world_! 😀", "Hello world!"),
        ("***Both*** and **bold with _italic_** and ~~gone~~", "Both and bold with italic and gone"),
        ("# Title\n- one\n- two *it*", "Title. one. two it"),
        ("> quoted\n\n---\nnext", "quoted. next"),
        ("See [the docs](https://a.example/c) now.", "See the docs now."),
        ("Go to https://www.example.com/path?x=1.", "Go to example dot com slash path."),
        ("Mail me@x.org!", "Mail me at x dot org!"),
        ("It costs $3.50, or 1,250 km at 5%.",
         "It costs three dollars and fifty cents, or one thousand two hundred fifty kilometers at five percent."),
        ("$1 or $0.05, £0.01, €2, $1.2 million",
         "one dollar or five cents, one penny, two euros, one point two million dollars"),
        ("Dr. Smith lives on St. James St. in London.", "Doctor Smith lives on Saint James Street in London."),
        ("At 10:30 am, 9:05 or 5 p.m. we go at 12:00.",
         "At ten thirty a m, nine oh five or five p m we go at twelve o'clock."),
        ("On May 5th, 2024 and July 4", "On May fifth, twenty twenty four and July fourth"),
        ("In 1999, since 2005, until 1900", "In nineteen ninety nine, since two thousand five, until nineteen hundred"),
        ("It is -5°C; 1 km, 2.0 ft, 100 km/h",
         "It is minus five degrees Celsius; one kilometer, two point zero feet, one hundred kilometers per hour"),
        ("R&D: 2+2 = 4, 1/2, 50-60", "R and D: two plus two equals four, one over two, fifty to sixty"),
        ("the 21st, 112th, 5551234 and 007",
         "the twenty first, one hundred twelfth, five five five one two three four and zero zero seven"),
        ("e.g. cats, etc.", "for example cats, et cetera."),
        ("H2O and `code_name`", "H two O and code name"),
        ("Let&#39;s <b>go</b> &amp; see", "Let's go and see"),
        ("I have 3½ cups", "I have three and a half cups"),
        ("2*3*4", "two times three times four"),
        ("| a | b |\n|---|---|\n| c | d |", "a, b. c, d"),
        ("👍🏽", ""), ("...", ""), ("  \n", ""), (":-)", ""), ("```", ""),
    ],
)  # fmt: skip
def test_english(text: str, said: str) -> None:
    assert make_speakable(text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "今天是2024年5月1日，气温25.5℃，湿度60%。",
            "今天是二零二四年五月一日，气温二十五点五摄氏度，湿度百分之六十。",
        ),
        ("价格是¥1,200，2个苹果，10:05见。", "价格是一千二百元，两个苹果，十点零五分见。"),
        ("**你好**😀！", "你好！"),
        ("3–5天，-2度", "三到五天，负二度"),
    ],
)
def test_chinese(text: str, said: str) -> None:
    assert make_speakable(text, "zh") == said


def test_other_languages_lose_markup_and_keep_numbers() -> None:
    assert make_speakable("**Hallo** Welt 😀, 3,5 km!", "de") == "Hallo Welt, 3,5 km!"


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "zero"), (13, "thirteen"), (40, "forty"), (101, "one hundred one"), (-7, "minus seven"),
     (1_000_001, "one million one"), (999_999, "nine hundred ninety nine thousand nine hundred ninety nine")],
)  # fmt: skip
def test_english_cardinals(value: int, words: str) -> None:
    assert english_cardinal(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(1, "first"), (12, "twelfth"), (20, "twentieth"), (23, "twenty third"), (100, "one hundredth")],
)
def test_english_ordinals(value: int, words: str) -> None:
    assert english_ordinal(value) == words


def test_english_years() -> None:
    assert [english_year(year) for year in (1905, 2000, 2019)] == [
        "nineteen oh five", "two thousand", "twenty nineteen",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "零"), (10, "十"), (15, "十五"), (20, "二十"), (105, "一百零五"), (1_000, "一千"), (1_005, "一千零五"),
     (10_500, "一万零五百"), (100_000, "十万"), (100_000_001, "一亿零一")],
)  # fmt: skip
def test_chinese_cardinals(value: int, words: str) -> None:
    assert chinese_cardinal(value) == words


@given(st.text(max_size=200))
def test_any_text_is_taken_and_no_digit_markup_or_emoji_survives(text: str) -> None:
    said = make_speakable(text)
    assert not any(char in said for char in "0123456789*`~^|\\<>{}[]#😀")
    assert said == said.strip()


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("It is 25 °C.", "It is twenty five degrees Celsius."),
        ("气温25°C。", "气温二十五摄氏度。"),
        ("25度です。", "25度です。"),
        ("Сейчас 25 градусов.", "Сейчас 25 градусов."),
    ],
)
def test_without_a_language_the_script_decides(text: str, spoken: str) -> None:
    assert make_speakable(text, "") == spoken
