"""The chunker: where it cuts, where it never cuts, and that nothing is lost or unbounded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.sentences import ChunkerOptions, SentenceChunker


def cut(text: str, step: int = 1, options: ChunkerOptions | None = None) -> list[str]:
    chunker = SentenceChunker(options)
    pieces = []
    for at in range(0, len(text), step):
        pieces += chunker.feed(text[at : at + step])
    return pieces + chunker.flush()


@pytest.mark.parametrize("step", [1, 4, 1000])
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("It is 3.5 meters. Good.", ["It is 3.5 meters. ", "Good."]),
        ("Dr. Smith is in. Ask Mrs. Jones.", ["Dr. Smith is in. ", "Ask Mrs. Jones."]),
        ("He lives on St. James St. in London. Go.", ["He lives on St. James St. in London. ", "Go."]),
        ("He lives on St. James St. The house is red.", ["He lives on St. James St. ", "The house is red."]),
        ("See https://a.example/b.c?d=1.5&e=f! Then mail a.b@c.example. Done.",
         ["See https://a.example/b.c?d=1.5&e=f! ", "Then mail a.b@c.example. ", "Done."]),
        ("The U.S. is big. J. K. Rowling wrote it.", ["The U.S. is big. ", "J. K. Rowling wrote it."]),
        ("No. 5 is alive. No. That is wrong.", ["No. 5 is alive. ", "No. ", "That is wrong."]),
        ("1. Wash it\n2. Dry it", ["1. Wash it\n", "2. Dry it"]),
        ("Is it? Yes! It is... maybe. Fine", ["Is it? ", "Yes! ", "It is... maybe. ", "Fine"]),
        ("We met at 5 p.m. It was cold.", ["We met at 5 p.m. ", "It was cold."]),
        ("It costs $1,000.50 today. Yes.", ["It costs $1,000.50 today. ", "Yes."]),
        ('He said "no." She left.', ['He said "no." ', "She left."]),
    ],
)  # fmt: skip
def test_cuts_at_sentences_and_never_inside_a_token(text: str, pieces: list[str], step: int) -> None:
    assert cut(text, step) == pieces


def test_first_clause_comes_before_its_sentence_ends() -> None:
    chunker = SentenceChunker()
    assert chunker.feed("In the morning, ") == ["In the morning, "]
    assert chunker.feed("after breakfast, we ") == [], "only the first piece is cut at a clause"
    assert chunker.feed("walk. N") == ["after breakfast, we walk. "]


def test_a_single_word_before_a_comma_is_no_clause() -> None:
    assert SentenceChunker().feed("Well, I think ") == []


def test_a_long_first_sentence_without_commas_is_cut_before_a_joint() -> None:
    chunker = SentenceChunker()
    assert chunker.feed("I think that the weather is going to be nice because it ") == [
        "I think that the weather is going to be nice "
    ]


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The capital of France is Paris.", ["The capital of France ", "is Paris."]),
        ("The moon is a bright body that orbits the Earth.", ["The moon is a bright body ", "that orbits the Earth."]),
        ("I met Dr. Smith in Rome.", ["I met Dr. Smith ", "in Rome."]),
        ("It was very cold there today.", ["It was very cold there today."]),
        ("Big red old cars need new good tires now.", ["Big red old cars need new ", "good tires now."]),
        ("Yes. It is so.", ["Yes. ", "It is so."]),
        ("It took 3.5 hours in all.", ["It took 3.5 hours ", "in all."]),
    ],
)
def test_a_first_phrase_is_cut_where_a_voice_could_take_breath(text: str, pieces: list[str], step: int) -> None:
    assert cut(text, step, ChunkerOptions(first_phrase_words=3)) == pieces


def test_only_the_first_pieces_are_cut_between_phrases() -> None:
    text = "The old house stood in the woods and the owl in the tree looked at the moon with a smile on its face."
    pieces = cut(text, 1, ChunkerOptions(first_phrase_words=3, second_phrase_words=9))
    assert pieces == ["The old house stood ", "in the woods and the owl in the tree looked ", text[64:]]


def test_the_next_reply_gets_its_first_clause_early_again() -> None:
    chunker = SentenceChunker()
    chunker.feed("One two, three four. Five")
    chunker.flush()
    assert chunker.feed("In the morning, we") == ["In the morning, "]


@pytest.mark.parametrize("step", [1, 1000])
def test_chinese(step: int) -> None:
    text = "你好。今天气温3.5度，很冷！要不要带伞？我觉得要带"
    assert cut(text, step) == ["你好。", "今天气温3.5度，很冷！", "要不要带伞？", "我觉得要带"]


def test_chinese_first_clause() -> None:
    assert SentenceChunker().feed("今天天气很好，") == ["今天天气很好，"]
    assert SentenceChunker().feed("好，") == []


@pytest.mark.parametrize("unit", ["word ", "a", "你好", "well, ", "x-y "])
def test_pieces_are_bounded_without_punctuation(unit: str) -> None:
    options = ChunkerOptions()
    text = unit * (4000 // len(unit))
    pieces = cut(text, 3)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= options.max_chars
    if unit == "你好":
        assert max(map(len, pieces)) <= options.max_cjk_chars
    if " " in unit:
        assert all(piece.endswith(" ") for piece in pieces), "cut at a word's end"


def test_trickling_words_are_released_by_the_timer() -> None:
    chunker = SentenceChunker(ChunkerOptions(trickle_s=0.5))
    assert chunker.get_timer() is None
    assert chunker.feed("I am still thin", now=10.0) == []
    assert chunker.get_timer() == 10.5
    assert chunker.handle_timer(now=10.4) == []
    assert chunker.handle_timer(now=10.5) == ["I am still "]
    assert chunker.feed("king", now=10.6) == []
    assert chunker.handle_timer(now=11.2) == [], "an unfinished word is not spoken"
    assert chunker.feed(" of it. Yes", now=11.3) == ["thinking of it. "]
    assert chunker.flush() == ["Yes"]
    assert chunker.get_timer() is None


def test_release_does_not_part_a_title_from_its_name() -> None:
    chunker = SentenceChunker()
    chunker.feed("I saw Dr. Sm")
    assert chunker.release() == ["I saw "]


@pytest.mark.parametrize("step", [1, 5, 1000])
def test_fenced_code_is_not_spoken(step: int) -> None:
    text = "Try this:\n```python\nprint('a. b')\n```\nAnd `inline` stays. ```too``` ok"
    assert "".join(cut(text, step)) == "Try this:\nAnd `inline` stays. ```too``` ok"


def test_an_unclosed_fence_hides_only_the_code() -> None:
    assert cut("Yes.\n~~~\ncode. code") == ["Yes.\n"]


ALPHABET = st.text(alphabet="ab .,!?1-\n你。，St`~\"'", max_size=400)


@settings(max_examples=200, deadline=None)
@given(text=ALPHABET, step=st.integers(1, 50))
def test_nothing_is_lost_or_unbounded(text: str, step: int) -> None:
    text = re.sub(r"[`~]{3,}", "``", text)
    pieces = cut(text, step, ChunkerOptions(max_chars=40, max_cjk_chars=20))
    assert "".join(pieces).rstrip() == text.rstrip()
    assert all(len(piece) <= 40 for piece in pieces)
    assert all(piece.strip() for piece in pieces)
