"""What survives the window."""

from __future__ import annotations

import pytest

from peer.dialogue import Dialogue, estimate_tokens
from peer.slots import Slots, topic_of


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


@pytest.mark.parametrize(
    ("turn", "topic"),
    [
        ("What is the tallest mountain in the world?", "tallest mountain in the world"),
        ("Okay, could you tell me how to start a vegetable garden? I have no idea.", "start a vegetable garden"),
        ("Why is the sky blue during the day?", "sky blue during the day"),
        ("Yes.", ""),
        ("Okay, thank you.", ""),
        ("你好，请问北京今天的天气怎么样？", "北京今天的天气怎么样"),
        ("我想订一张去上海的火车票，明天早上八点的。", "订一张去上海的火车票，明"),
        ("", ""),
    ],
)
def test_what_a_turn_is_about_in_a_few_words(turn: str, topic: str) -> None:
    assert topic_of(turn) == topic


def test_a_long_call_is_summed_up_in_a_quarter_of_the_window_the_newest_first() -> None:
    dialogue = Dialogue("Be brief.")
    for number in range(300):
        dialogue.add_user(f"What do you know of castle {number}? My name is Sam.")
        dialogue.add_assistant(f"The castle number {number} is old, and nobody knows who built it.")
    dialogue.add_user("Is there a restaurant called Blue Door? I would like a table for four.")
    dialogue.add_assistant("Yes, it is by the river.")
    for subject in ("penguins", "thunder", "sailing boats", "violins"):
        dialogue.add_user(f"Tell me something about {subject}.")
        dialogue.add_assistant(f"There is much to be said about {subject}, and this is only the beginning of it all.")
    dialogue.add_user("And what was that restaurant called?")
    messages = dialogue.window(160)
    assert sum(map(estimate_tokens, messages)) <= 160
    known = messages[0].content
    assert "name: Sam" in known
    assert "people: four" in known
    assert "restaurant Blue Door" in known
    line = known.removeprefix("Be brief. ")
    assert (
        estimate_tokens(messages[0]) - estimate_tokens(messages[0].__class__(role="system", content="Be brief.")) <= 40
    )
    larger = dialogue.window(400)[0].content
    assert len(larger) > len(known)
    assert "asked about: " in larger
    assert line.startswith("Known from before: ")


def test_a_turn_that_is_longer_than_the_window_keeps_its_end() -> None:
    dialogue = Dialogue("Be brief.")
    dialogue.add_user("So I began " + "and I went on " * 200 + "and now I ask what to do?")
    messages = dialogue.window(100)
    assert sum(map(estimate_tokens, messages)) <= 110
    assert messages[-1].content.endswith("and now I ask what to do?")
    dialogue = Dialogue()
    dialogue.add_user("很久以前有一个人" * 60 + "现在怎么办？")
    assert sum(map(estimate_tokens, dialogue.window(100))) <= 110
    assert dialogue.window(100)[-1].content.endswith("现在怎么办？")


@pytest.mark.parametrize(
    ("text", "shown", "meant"),
    [
        ("What was that restaurant called?", ["Boats are fine."], "The restaurant is called Blue Door."),
        ("Is the little restaurant open?", [], "The restaurant is called Blue Door."),
        ("Is that restaurant open?", ["Blue Door is by the river."], ""),
        ("Is that hotel open?", [], ""),
        ("What is my name?", [], "My name is Sam."),
        ("What is my name?", ["Hello Sam."], ""),
        ("Is it open?", ["All right."], "I mean the restaurant Blue Door."),
        ("Is it open?", ["The museum is by the river."], ""),
        ("Well then.", [], ""),
    ],
)
def test_what_a_word_means_that_was_said_before_the_window(text: str, shown: list[str], meant: str) -> None:
    slots = heard("My name is Sam.", "Is there a restaurant called Blue Door?")
    slots._entities.sort(key=lambda entity: entity == "restaurant Blue Door")
    assert slots.resolve(text, shown=shown) == meant


def test_the_model_is_told_with_the_question_what_it_means() -> None:
    dialogue = Dialogue("Be brief.")
    dialogue.add_user("Is there a restaurant called Blue Door?")
    for subject in ("penguins", "thunder", "boats", "violins"):
        dialogue.add_assistant(f"There is much to be said about {subject}, and this is only the beginning of it all.")
        dialogue.add_user(f"Tell me something about {subject}.")
    dialogue.add_assistant("There is much to be said about it.")
    dialogue.add_user("What was that restaurant called?")
    messages = dialogue.window(100)
    assert messages[-1].content == "The restaurant is called Blue Door. What was that restaurant called?"
    assert sum(map(estimate_tokens, messages)) <= 100
    assert dialogue.entries[-1].text == "What was that restaurant called?", "the history is what was said"
