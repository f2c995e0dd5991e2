"""The ring of what the caller sent."""

from __future__ import annotations

import numpy as np

from peer.audio_history import AudioHistory


def _ramp(start: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.arange(start, start + count).astype(np.int16)


def test_a_span_comes_back_as_it_went_in_across_the_ring_s_edge() -> None:
    history = AudioHistory(capacity_s=1000 / 16_000)
    for start in range(0, 3000, 320):
        history.append(_ramp(start, 320), position_samples=start)
    assert history.end_samples == 3200
    assert history.span(2300, 3100).tolist() == list(range(2300, 3100))


def test_what_is_forgotten_or_not_yet_here_is_left_out() -> None:
    history = AudioHistory(capacity_s=1000 / 16_000)
    history.append(_ramp(0, 1600), position_samples=0)
    assert history.span(0, 9999).tolist() == list(range(600, 1600))
    assert len(history.span(1600, 1700)) == 0


def test_a_gap_becomes_silence_and_positions_stay_true() -> None:
    history = AudioHistory(capacity_s=1.0)
    history.append(_ramp(1, 10), position_samples=0)
    history.append(_ramp(1, 10), position_samples=20)
    assert history.span(8, 22).tolist() == [9, 10] + [0] * 10 + [1, 2]
