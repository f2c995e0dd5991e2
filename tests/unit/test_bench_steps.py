"""What the benchmarks of repair read off their calls."""

from __future__ import annotations

import numpy as np
import pytest

from bench.plain_ears import turns
from bench.steps import count_turns
from tests.sounds import speech_like


@pytest.mark.parametrize(
    ("values", "turned"),
    [
        ([0, 0, 1, 1, 1], 0),
        ([0, 1, 0], 1),
        ([0, 1, 0, 1], 2),
        ([40, 90, 200, 195, 200, 190, 201], 0),
        ([200, 150, 100, 105, 40], 0),
        ([200, 100, 140, 40], 2),
        ([5, 5, 5], 0),
    ],
)
def test_turns_are_changes_of_direction_beyond_the_grain(values: list[float], turned: int) -> None:
    assert count_turns(values, grain=min(20.0, 0.25 * (max(values) - min(values)) or 1.0)) == turned


def test_a_plain_agent_s_turns_end_with_quiet_and_clicks_are_none() -> None:
    quiet = np.zeros(16_000, np.int16)
    speech = speech_like(1.0)[::3]
    click = np.full(1000, 8000, np.int16)
    found = turns(np.concatenate((quiet, speech, quiet, click, quiet, speech)))
    assert len(found) == 2
    assert all(abs(len(turn) - len(speech)) < 16_000 for turn in found)
