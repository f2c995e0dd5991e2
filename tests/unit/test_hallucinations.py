"""What a recogniser invents is taken out; what a person says stays."""

from __future__ import annotations

import pytest

from peer.engines.base import Transcript
from peer.hallucinations import clean_transcript, cut_loop


def clean(text: str, *, audio_ms: float = 3000, no_speech: float = 0.0, log_probability: float = -0.2) -> str:
    transcript = Transcript(text=text, no_speech_probability=no_speech, average_log_probability=log_probability)
    return clean_transcript(transcript, audio_ms=audio_ms)


@pytest.mark.parametrize(
    ("looped", "said"),
    [
        ("All right, let us talk about something else. All right,", "All right, let us talk about something else."),
        ("Do you know whether the museum is open? Do you know whether", "Do you know whether the museum is open?"),
        ("Well, what do you know? What do you", "Well, what do you know? What do you"),
        ("It broke yesterday. Can I repair it myself? Can I repair it", "It broke yesterday. Can I repair it myself?"),
        ("Please wait. I need it. Please wait. I need it. Please", "Please wait. I need it."),
        ("tell me about the sea tell me about the sea", "tell me about the sea"),
        ("I want to go go go go go", "I want to go"),
        ("Yes, of course, of course, of course", "Yes, of course,"),
        ("你好吗？你好", "你好吗？"),
    ],
)
def test_loops_are_cut(looped: str, said: str) -> None:
    assert cut_loop(looped) == said


@pytest.mark.parametrize(
    "text",
    [
        "No. No.",
        "Yes, yes, yes.",
        "Ask not what your country can do for you, ask what you can do for your country.",
        "Is it cold? It is.",
        "Bye bye",
        "I think I know what I think",
        "One two three, one two three four",
        "你好！你好！",
        "",
    ],
)
def test_honest_repetition_stays(text: str) -> None:
    assert cut_loop(text) == text


def test_a_phrase_of_subtitles_needs_evidence_to_be_dropped() -> None:
    assert clean("Thank you.") == "Thank you."
    assert clean("Thank you.", no_speech=0.4) == ""
    assert clean("Thanks for watching!", log_probability=-1.1) == ""
    assert clean("you", audio_ms=300) == ""
    assert clean("谢谢观看", no_speech=0.5) == ""


def test_a_guess_over_silence_is_nothing() -> None:
    assert clean("The weather in the north", no_speech=0.9, log_probability=-1.2) == ""
    assert clean("The weather in the north", no_speech=0.9, log_probability=-0.3) == "The weather in the north"


def test_annotations_are_not_words() -> None:
    assert clean("[BLANK_AUDIO]") == ""
    assert clean("(coughing) Hello there. ♪ la la ♪") == "Hello there."
    assert clean("It is (almost) done.") == "It is (almost) done."
    assert clean(" ... ") == ""


def test_no_more_words_than_the_audio_can_hold() -> None:
    assert len(clean(" ".join(f"w{n}" for n in range(50)), audio_ms=1000).split()) == 10
    assert clean("我今天想去北京看看我的朋友", audio_ms=2000) == "我今天想去北京看看我的朋友"
