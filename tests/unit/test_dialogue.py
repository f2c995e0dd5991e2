"""The history that the LLM is given."""

from __future__ import annotations

import pytest

from peer.dialogue import Dialogue, cut_to_heard, estimate_tokens
from peer.engines.base import ChatMessage


def texts(dialogue: Dialogue, max_tokens: int = 10_000) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in dialogue.window(max_tokens)]


def test_turns_in_order_after_the_system_prompt() -> None:
    dialogue = Dialogue("Be brief.", greeting="Hello!")
    dialogue.add_user("Hi.")
    dialogue.add_assistant("How are you?")
    assert texts(dialogue) == [
        ("system", "Be brief."), ("assistant", "Hello!"), ("user", "Hi."), ("assistant", "How are you?"),
    ]  # fmt: skip


def test_two_user_turns_without_a_reply_between_are_one_entry() -> None:
    dialogue = Dialogue()
    dialogue.add_user("Hello,")
    dialogue.add_user("can you hear me?")
    assert texts(dialogue) == [("user", "Hello, can you hear me?")]


def test_a_longer_transcript_replaces_the_open_turn() -> None:
    dialogue = Dialogue()
    dialogue.add_user("What is the")
    dialogue.set_user("What is the time?")
    assert texts(dialogue) == [("user", "What is the time?")]


def test_a_longer_transcript_leaves_what_an_unanswered_turn_said_before() -> None:
    dialogue = Dialogue()
    dialogue.add_user("I live in Rome.")
    dialogue.add_user("What is the")
    dialogue.set_user("What is the time?")
    dialogue.set_user("What is the time there?")
    assert texts(dialogue) == [("user", "I live in Rome. What is the time there?")]


def test_an_unheard_reply_is_withdrawn_and_the_turn_reopened() -> None:
    dialogue = Dialogue()
    dialogue.add_user("Hello,")
    dialogue.add_assistant("Hi there, how may I help?")
    dialogue.truncate_assistant("")
    assert dialogue.reopen_user() == "Hello,"
    dialogue.add_user("what is the time?")
    assert texts(dialogue) == [("user", "Hello, what is the time?")]


def test_an_interrupted_reply_holds_what_was_heard() -> None:
    dialogue = Dialogue()
    dialogue.add_user("Count.")
    dialogue.add_assistant("One, two, three, four, five.")
    dialogue.truncate_assistant("One, two,")
    assert dialogue.entries[-1].text == "One, two,"
    assert dialogue.entries[-1].interrupted


def test_a_reply_heard_whole_is_not_interrupted() -> None:
    dialogue = Dialogue()
    dialogue.add_assistant("One. Two.")
    dialogue.truncate_assistant("One. Two.")
    assert not dialogue.entries[-1].interrupted


def test_truncation_without_a_reply_changes_nothing() -> None:
    dialogue = Dialogue()
    dialogue.add_user("Hm.")
    dialogue.truncate_assistant("what")
    assert texts(dialogue) == [("user", "Hm.")]


@pytest.mark.parametrize(
    ("text", "heard", "kept"),
    [
        ("It costs $3.50 today.", "It costs", "It costs"),
        ("**Bold** words are here.", "Bold words", "**Bold** words"),
        ("One, two.", "One, two. Three.", "One, two."),
        ("你好，我是助手。", "你好", "你好"),
        ("Anything", "", ""),
    ],
)
def test_cut_to_heard(text: str, heard: str, kept: str) -> None:
    assert cut_to_heard(text, heard) == kept


def test_the_window_keeps_the_newest_and_starts_with_a_user_turn() -> None:
    dialogue = Dialogue("Be brief.")
    for number in range(20):
        dialogue.add_user(f"Question number {number} about something.")
        dialogue.add_assistant(f"Answer number {number} about it.")
    dialogue.add_user("And now?")
    messages = dialogue.window(100)
    assert messages[0].role == "system"
    assert messages[1].role == "user"
    assert messages[-1].content == "And now?"
    assert sum(map(estimate_tokens, messages)) <= 100
    assert len(messages) >= 5
    assert len(dialogue.entries) == 41, "the window forgets nothing for good"


def test_the_last_user_turn_is_kept_even_if_it_alone_is_too_long() -> None:
    dialogue = Dialogue("Be brief.")
    dialogue.add_user("word " * 500)
    assert [message.role for message in dialogue.window(50)] == ["system", "user"]


def test_the_estimate_grows_with_the_text_and_counts_chinese() -> None:
    def tokens(text: str) -> int:
        return estimate_tokens(ChatMessage(role="user", content=text))

    assert tokens("one two three four") - tokens("one two") == 2
    assert tokens("你好吗") >= tokens("") + 3
