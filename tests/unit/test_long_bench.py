"""What the benchmark of one long call says of it."""

from __future__ import annotations

import dataclasses

import pytest

from bench.long import QUESTIONS, summarise
from peer.softphone_log import TurnLog


def make_turn(number: int, voice_to_voice_ms: float) -> TurnLog:
    return TurnLog(turn=number, user_text="Hello.", heard_text="Hi.", voice_to_voice_ms=voice_to_voice_ms)


def test_the_end_of_a_call_is_compared_to_turns_20_to_30_which_asked_the_same() -> None:
    turns: list[TurnLog | None] = [make_turn(number, 500.0 + number) for number in range(1, 201)]
    result = summarise(turns, [100 << 20] * 19 + [200 << 20] * 180 + [202 << 20], [120] * 200)
    assert result["early_turns"] == [20, 30]
    assert result["late_turns"] == [190, 200]
    assert (190 - 20) % len(QUESTIONS) == 0
    assert result["latency_growth_pct"] == pytest.approx(100 * (695 / 525 - 1), abs=0.1)
    assert result["resident_growth_pct"] == 1.0


def test_a_turn_without_an_answer_counts_as_unanswered_and_has_no_time() -> None:
    turns: list[TurnLog | None] = [make_turn(number, 500.0) for number in range(1, 201)]
    turns[195] = None
    turns[196] = dataclasses.replace(make_turn(197, 500.0), heard_text="")
    result = summarise(turns, [1 << 20] * 200, [120] * 199)
    assert result["answered"] == 198
    assert result["late_median_ms"] == 500.0
