"""Smart Turn: whole sentences end a turn, begun ones do not, and its features are Whisper's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from faster_whisper.feature_extractor import FeatureExtractor

from peer.engines.mel import LogMel
from peer.engines.turn_smart import SmartTurn, create
from peer.errors import EngineError
from tests.engines.speech import speak

WHOLE = [
    "I would like to book a table for two people at seven o'clock tonight.",
    "What is the weather going to be like tomorrow in London?",
    "Turn the lights off in the kitchen and close the garage door.",
    "The children were playing football in the park until it started to rain.",
    "How many ounces are there in a pound?",
]


@pytest.fixture(scope="module")
def turn() -> SmartTurn:
    return create({}, lambda *_: None)


def test_whole_sentences_end_the_turn_and_halves_do_not(turn: SmartTurn) -> None:
    whole = [turn.judge_now(speak(text)) for text in WHOLE]
    halves = [turn.judge_now(audio[: round(0.55 * len(audio))]) for audio in map(speak, WHOLE)]
    assert sum(probability > 0.5 for probability in whole) >= 4
    assert sum(probability < 0.5 for probability in halves) >= 4


async def test_only_the_last_8_seconds_count(turn: SmartTurn) -> None:
    audio = speak(WHOLE[0])
    before = np.random.default_rng(0).normal(0, 2_000, 200_000).astype(np.int16)
    tail = np.concatenate([before, audio])[-128_000:]
    assert await turn.end_of_turn_probability(np.concatenate([before, audio])) == turn.judge_now(tail)


@pytest.mark.parametrize("length", [0, 1, 16_000, 127_999, 128_001])
def test_audio_of_any_length_gives_a_probability(turn: SmartTurn, length: int) -> None:
    assert 0.0 <= turn.judge_now(np.zeros(length, np.int16)) <= 1.0


def test_the_features_are_whispers(turn: SmartTurn) -> None:
    audio = np.random.default_rng(0).normal(0, 0.1, 128_000).astype(np.float32)
    expected = FeatureExtractor(80, chunk_length=8)(audio, padding=0)
    assert LogMel(bands=80).extract(audio) == pytest.approx(expected, abs=1e-5)


def test_a_model_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="end-of-turn model"):
        create({"model": str(tmp_path / "none.onnx")}, lambda *_: None)
