"""The stable prefix of changing hypotheses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peer.agreement import LocalAgreement, Partial
from peer.words import count_units, normalize, split_units


def push_all(*hypotheses: str) -> list[Partial]:
    agreement = LocalAgreement()
    return [agreement.push(text, end_samples=index) for index, text in enumerate(hypotheses)]


def test_what_two_agree_on_is_stable_except_the_last_word_heard() -> None:
    partials = push_all("What is", "What is the cap", "What is the capital of", "What is the capital of France?")
    assert [partial.stable_text for partial in partials] == ["", "What", "What is the", "What is the capital"]
    assert partials[-1].text == "What is the capital of France?"


def test_a_word_cut_by_the_end_of_the_audio_does_not_become_stable() -> None:
    partials = push_all("A tip for sleep", "A tip for sleep", "A tip for sleeping better")
    assert partials[1].stable_text == "A tip for"
    assert partials[2].stable_text == "A tip for"
    assert partials[2].text == "A tip for sleeping better"


def test_what_is_stable_survives_a_hypothesis_that_disagrees() -> None:
    partials = push_all("How do I make", "How do I make tea", "How do you make tea and cake")
    assert partials[1].stable_text == "How do I"
    assert partials[2].text == "How do I make tea and cake"


def test_case_and_marks_are_no_disagreement() -> None:
    partials = push_all("well I think so", "Well, I think so.", "Well, I think so. And you")
    assert partials[1].stable_text == "Well, I think"
    assert partials[2].text.startswith("Well, I think so")


def test_marks_at_the_stable_edge_follow_the_newest_hypothesis() -> None:
    partials = push_all("I see. It", "I see. It is", "I see it is cold", "I see it is cold here")
    assert partials[-1].stable_text == "I see it is"


def test_a_lost_word_in_a_newer_hypothesis_does_not_duplicate_text() -> None:
    partials = push_all("one two three four", "one two three four five", "one three four five six")
    assert partials[-1].text == "one two three four five six"


def test_chinese_goes_by_characters() -> None:
    partials = push_all("今天天", "今天天气很", "今天天气很好。")
    assert [partial.stable_text for partial in partials] == ["", "今天", "今天天气"]


@given(st.lists(st.text(alphabet="ab ,.你好", max_size=30), max_size=8))
def test_stable_text_only_grows_and_is_always_a_prefix(hypotheses: list[str]) -> None:
    before = ""
    for partial in push_all(*hypotheses):
        assert partial.stable_chars <= len(partial.text)
        assert partial.stable_text.startswith(before.rstrip(" ,.")), (before, partial)
        before = partial.stable_text


@given(st.text(max_size=60))
def test_units_join_to_the_text(text: str) -> None:
    assert "".join(split_units(text)) == (text if text.strip() else "")


def test_units() -> None:
    assert split_units("Hi, 你好！ ok") == ["Hi, ", "你", "好！ ", "ok"]
    assert [normalize(unit) for unit in ("Don't!", "“Yes,” ", "3.5")] == ["don't", "yes", "35"]
    assert count_units("Hello, — 你好") == 3
