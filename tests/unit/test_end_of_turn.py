"""What words and sound say about the end of a turn, and the wait that follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.end_of_turn import Completeness, EndOfTurnOptions, choose_wait_ms, judge_words, weigh_looks

SETS = Path(__file__).parents[2] / "bench" / "sets"


def halves(name: str) -> list[str]:
    lines = (SETS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.mark.parametrize(
    "text",
    ["What is the capital of France?", "I would like a coffee.", "Yes, I do.", "What is it for?", "Tell me more.",
     "That is all.", "Can you tell me what it is?", "I think so.", "Where are you from?", "Turn on the light.",
     "I have three cats.", "今天天气怎么样？", "我想喝咖啡。", "你吃饭了吗", "Who are you?"],
)  # fmt: skip
def test_an_end_is_possible(text: str) -> None:
    assert judge_words(text) in {Completeness.COMPLETE, Completeness.OPEN}


@pytest.mark.parametrize(
    "text",
    ["I would like to", "I would like to.", "What is the", "Can you tell me how to get to the...", "It is cold and",
     "I was thinking that we could", "because", "Could you", "My", "I want a,", "Um", "It was, uh", "When I",
     "我想要一个，", "因为", "我今天想去和", "How long does it take to drive from?",
     "I am looking for a restaurant that's."],
)  # fmt: skip
def test_no_sentence_ends_here(text: str) -> None:
    assert judge_words(text) is Completeness.INCOMPLETE


@pytest.mark.parametrize(
    "text",
    ["My number is 555", "It's five five five one", "The code is", "My email address is j o h n",
     "My name is spelled s m", "0 1 7 2", "我的电话是一三八"],
)  # fmt: skip
def test_dictation_is_heard(text: str) -> None:
    assert judge_words(text) is Completeness.DICTATION


@pytest.mark.parametrize("text", ["I have 3 cats.", "At 7:30.", "I am one of two.", "In 1999 we moved."])
def test_a_number_alone_is_no_dictation(text: str) -> None:
    assert judge_words(text) is not Completeness.DICTATION


def test_openers_are_neither_sure_ends_nor_beginnings() -> None:
    assert {judge_words(text) for text in ("Hello.", "Good morning", "Well,...", "你好。", "")} <= {
        Completeness.OPEN, Completeness.INCOMPLETE,
    }  # fmt: skip


def test_the_benchs_open_halves_are_incomplete_and_its_sentences_are_not() -> None:
    assert [line for line in halves("open") if judge_words(line.partition("|")[0]) is not Completeness.INCOMPLETE] == []
    wholes = halves("plain") + [line.replace("|", "") for line in halves("open") + halves("closed")]
    assert [line for line in wholes if judge_words(line) in {Completeness.INCOMPLETE, Completeness.DICTATION}] == []


@pytest.mark.parametrize(
    "text", ["I want to buy a present for me.", "What do you think about them?", "I went to them."]
)
def test_an_end_that_the_recogniser_likes_to_invent_is_no_sure_end(text: str) -> None:
    assert judge_words(text) is Completeness.OPEN


def test_the_wait_is_short_only_where_words_and_sound_agree() -> None:
    options = EndOfTurnOptions()

    def wait(completeness: Completeness, probability: float | None) -> float:
        return choose_wait_ms(completeness, probability, options=options)

    assert wait(Completeness.COMPLETE, 0.9) == options.complete_ms
    assert wait(Completeness.COMPLETE, 0.3) == options.doubtful_ms
    assert wait(Completeness.COMPLETE, 0.01) == options.disputed_ms
    assert wait(Completeness.OPEN, 0.9) == options.open_ms
    assert wait(Completeness.OPEN, 0.3) == options.unsure_ms
    assert wait(Completeness.INCOMPLETE, 0.99) == options.incomplete_ms
    assert wait(Completeness.DICTATION, 0.99) == options.dictation_ms
    assert wait(Completeness.COMPLETE, None) == options.open_ms


def test_a_later_yes_does_not_undo_a_pause_that_was_heard_at_first() -> None:
    options = EndOfTurnOptions()

    def wait(first: float, second: float) -> float:
        looks = weigh_looks(first, second, options=options)
        return choose_wait_ms(Completeness.COMPLETE, looks, options=options)

    assert wait(0.05, 0.9) == options.doubtful_ms
    assert wait(0.05, 0.05) == options.disputed_ms
    assert wait(0.3, 0.9) == options.complete_ms
