"""Whisper in short windows: words right, no loops, nothing invented on noise, long turns whole, word times in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import jiwer
import numpy as np
import psutil
import pytest

from peer.engines.asr_whisper import WhisperAsr, create
from peer.engines.base import AsrOptions
from peer.errors import EngineError
from peer.memory import release_free_memory
from tests.engines.speech import plain, speak

SENTENCES = [
    "Can you tell me what the capital of France is?",
    "I would like to book a table for two people at seven o'clock tonight.",
    "What is the weather going to be like tomorrow in London?",
    "How many ounces are there in a pound?",
    "Turn the lights off in the kitchen and close the garage door.",
    "No, thank you.",
    "Hello there.",
    "Could you play some quiet music?",
    "Set a timer for twelve minutes.",
    "The children were playing football in the park until it started to rain.",
    "Wait, go back to the second item on the list.",
    "Thanks, that is everything I wanted to know.",
]
RNG = np.random.default_rng(3)
TIME = np.arange(48_000) / 16_000
NOT_SPEECH = {
    "nothing": np.zeros(48_000),
    "faint noise": RNG.normal(0, 32, 48_000),
    "noise": RNG.normal(0, 1_000, 48_000),
    "loud noise": RNG.normal(0, 3_200, 48_000),
    "hum": 3_000 * np.sin(2 * np.pi * 100 * TIME),
    "a tone": 3_000 * np.sin(2 * np.pi * 440 * TIME),
    "clicks": np.where(RNG.random(48_000) < 3e-4, 20_000, 0) + RNG.normal(0, 20, 48_000),
    "a cough": RNG.normal(0, 6_000, 48_000) * np.exp(-(((TIME - 1) / 0.15) ** 2)),
}


def error_rate(said: list[str], heard: list[str]) -> float:
    return float(jiwer.wer([plain(text) for text in said], [plain(text) or "(nothing)" for text in heard]))


@pytest.fixture(scope="module")
def asr() -> Iterator[WhisperAsr]:
    engine = create({}, lambda *_: None)
    yield engine
    engine._executor.shutdown()


def test_words_of_the_domain_are_heard_where_they_are_expected(asr: WhisperAsr) -> None:
    wanted = {
        "I have a question about Antiphon and Opus.": "Antiphon",
        "Please connect me to Doctor Kowalczyk.": "Kowalczyk",
        "Is the Zalgreb router in stock?": "Zalgreb",
    }
    hotwords = ", ".join(wanted.values())
    for text, word in wanted.items():
        speech = speak(text)
        window_ms = len(speech) // 16 + 4_000
        assert word not in asr.transcribe_now(speech, AsrOptions(window_ms=window_ms)).text
        assert word in asr.transcribe_now(speech, AsrOptions(window_ms=window_ms, hotwords=hotwords)).text


def test_sentences_are_heard_right_in_short_windows(asr: WhisperAsr) -> None:
    heard = [asr.transcribe_now(speak(text)).text for text in SENTENCES]
    assert error_rate(SENTENCES, heard) <= 0.08
    assert all(len(text.split()) <= 1.3 * len(said.split()) + 1 for text, said in zip(heard, SENTENCES, strict=True))


def test_two_sentences_with_a_pause_are_one_transcript(asr: WhisperAsr) -> None:
    said = ["Hello there. Could you play some quiet music?", "No, thank you. Set a timer for twelve minutes."]
    heard = []
    for text in said:
        first, second = text.split(". ", 1)
        heard.append(asr.transcribe_now(np.concatenate([speak(first, silence_after_s=1.0), speak(second)])).text)
    assert error_rate(said, heard) <= 0.15


def test_a_quiet_voice_is_heard(asr: WhisperAsr) -> None:
    assert (
        error_rate(SENTENCES[:3], [asr.transcribe_now(speak(text, level=0.02)).text for text in SENTENCES[:3]]) <= 0.1
    )


@pytest.mark.parametrize("name", NOT_SPEECH)
def test_nothing_is_invented(asr: WhisperAsr, name: str) -> None:
    assert asr.transcribe_now(NOT_SPEECH[name].astype(np.int16)).text == ""


def test_no_audio_at_all_is_no_text(asr: WhisperAsr) -> None:
    assert asr.transcribe_now(np.zeros(0, np.int16)).text == ""


def test_a_turn_longer_than_the_window_is_whole(asr: WhisperAsr) -> None:
    said = " ".join(SENTENCES)
    audio = np.concatenate([speak(text, silence_after_s=0.5) for text in SENTENCES])
    assert len(audio) > 30 * 16_000
    assert error_rate([said], [asr.transcribe_now(audio).text]) <= 0.1


def test_word_times_lie_in_the_audio_and_in_order(asr: WhisperAsr) -> None:
    audio = np.concatenate([np.zeros(8_000, np.int16), speak(SENTENCES[0])])
    words = asr.transcribe_now(audio, AsrOptions(word_times=True)).words
    assert [plain(word.text) for word in words] == plain(SENTENCES[0]).split()
    starts = [word.start_ms for word in words]
    assert starts == sorted(starts)
    assert all(word.start_ms <= word.end_ms <= len(audio) / 16 + 20 for word in words)
    assert words[-1].start_ms > 1_500


def test_a_loop_in_a_window_that_is_too_short_is_decoded_again(asr: WhisperAsr) -> None:
    """The window given leaves no silence, which makes Whisper loop on some of these; the guard must catch it."""
    said = SENTENCES[2:7]
    windows = [(audio, AsrOptions(window_ms=round(len(audio) / 16))) for audio in map(speak, said)]
    heard = [asr.transcribe_now(audio, options).text for audio, options in windows]
    assert all(len(text.split()) <= 1.5 * len(words.split()) + 1 for text, words in zip(heard, said, strict=True))


async def test_requests_run_in_threads_and_a_cancelled_one_does_no_harm(asr: WhisperAsr) -> None:
    audio = speak(SENTENCES[3])
    cancelled = asyncio.create_task(asr.transcribe(audio))
    await asyncio.sleep(0)
    cancelled.cancel()
    texts = await asyncio.gather(asr.transcribe(audio), asr.transcribe(audio))
    assert {plain(transcript.text) for transcript in texts} == {plain(SENTENCES[3])}


def test_hotwords_and_a_prompt_do_not_leak_into_the_text(asr: WhisperAsr) -> None:
    options = AsrOptions(hotwords="Antiphon, Zanzibar", prompt="We spoke about music.")
    assert error_rate([SENTENCES[7]], [asr.transcribe_now(speak(SENTENCES[7]), options).text]) <= 0.2


def test_a_model_that_is_not_one_is_a_clear_error(tmp_path: object) -> None:
    with pytest.raises(EngineError, match="cannot load the speech recogniser") as caught:
        create({"model": str(tmp_path)}, lambda *_: None)
    assert not caught.value.retryable


def test_hundreds_of_lengths_of_audio_take_no_more_memory_than_a_few(asr: WhisperAsr) -> None:
    """What is prepared for one width of the encoder's window is kept for ever; there must be few widths."""
    speech = speak("The boats came up the river one behind the other and lay still until the morning.")
    process = psutil.Process()
    lengths = np.random.default_rng(1).permutation(np.arange(8_000, 56_000, 60))

    def hear(lengths: Iterable[int]) -> int:
        for length in lengths:
            asr.transcribe_now(speech[:length], AsrOptions(window_ms=int(length) // 16 + 4_000))
        release_free_memory()
        resident: int = process.memory_info().rss
        return resident

    few = hear(lengths[:40])
    assert hear(lengths[40:120]) - few < 15 * 2**20
