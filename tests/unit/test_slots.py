"""What survives the window."""

from __future__ import annotations

from peer.dialogue import Dialogue, estimate_tokens
from peer.slots import Slots


def heard(*texts: str) -> Slots:
    slots = Slots()
    for text in texts:
        slots.handle_text(text, from_caller=True)
    return slots


def test_slots_of_a_caller() -> None:
    slots = heard("My name is Sam, and I live in New York.", "I would like a table for four people at seven thirty.")
    assert slots.values == {"name": "Sam", "place": "New York", "people": "four", "time": "seven thirty"}
    assert heard("我叫王小明。").values == {"name": "王小明"}


def test_the_newest_value_counts() -> None:
    assert heard("A table for two at 7 pm.", "No, a table for three.").values["people"] == "three"


def test_things_that_pronouns_may_mean_newest_last() -> None:
    slots = heard("Is there a restaurant called Blue Door?", "I read the book about Rome.")
    assert slots.entities[0] == "restaurant Blue Door"
    assert slots.entities[-2:] == ["book", "Rome"]
    for number in range(20):
        slots.handle_text(f"We met Anna{'abcdefghijklmnopqrst'[number]} there.", from_caller=False)
    assert len(slots.entities) == 6


def test_the_peer_fills_no_slots() -> None:
    slots = Slots()
    slots.handle_text("My name is Antiphon. The museum is open.", from_caller=False)
    assert slots.values == {}
    assert "museum" in slots.entities


def test_what_fell_out_of_the_window_is_told_and_the_rest_is_not_repeated() -> None:
    dialogue = Dialogue("Be brief.")
    dialogue.add_user("My name is Sam.")
    dialogue.add_assistant("Hello Sam, how are you today?")
    for number in range(10):
        dialogue.add_user(f"Tell me something new about topic {number}, would you?")
        dialogue.add_assistant(f"Here is something new about topic {number} for you.")
    dialogue.add_user("What is my name?")
    messages = dialogue.window(90)
    assert messages[0].role == "system"
    assert "name: Sam" in messages[0].content
    assert sum(map(estimate_tokens, messages)) <= 90
    assert "Known from before" not in dialogue.window(10_000)[0].content


def test_without_a_system_prompt_what_is_known_still_gets_one() -> None:
    dialogue = Dialogue()
    dialogue.add_user("My name is Sam.")
    dialogue.add_assistant("Hello.")
    dialogue.add_user("Tell me a long story about the sea and the wind and the sand, if you please, right now.")
    messages = dialogue.window(40)
    assert [message.role for message in messages] == ["system", "user"]
