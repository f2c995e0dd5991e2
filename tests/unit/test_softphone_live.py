"""The microphone's line: bursts leave evenly, a fast sound card never grows it, a pause never starves it."""

from __future__ import annotations

import random

import numpy as np

from peer.softphone_live import BLOCK_SAMPLES, RATE_HZ, MicrophoneLine
from tests.sounds import tone
from transport.playout_queue import FRAME_SAMPLES, PlayoutQueue

_SLOT_S = FRAME_SAMPLES / RATE_HZ
_BLOCK_S = BLOCK_SAMPLES / RATE_HZ


def _sent(seconds: float, *, burst_s: float, drift: float = 0.0, loud: bool = True) -> tuple[np.ndarray, float]:
    """Return what leaves a line whose blocks arrive up to `burst_s` late, and the most that ever waited, ms."""
    queue = PlayoutQueue()
    line = MicrophoneLine(queue)
    source = random.Random(7)
    sound = tone(seconds, 300) if loud else np.zeros(int(seconds * RATE_HZ), np.int16)
    out: list[np.ndarray] = []
    most_ms, arrived, slot = 0.0, 0.0, 0
    for n in range(len(sound) // BLOCK_SAMPLES):
        arrived = max(arrived, n * _BLOCK_S / (1.0 + drift) + source.random() * burst_s)
        while slot * _SLOT_S <= arrived:
            frame = queue.pull(now=slot * _SLOT_S)
            out.append(np.zeros(FRAME_SAMPLES, np.int16) if frame is None else frame)
            slot += 1
        line.add(sound[n * BLOCK_SAMPLES : (n + 1) * BLOCK_SAMPLES])
        most_ms = max(most_ms, queue.queued_ms)
    return np.concatenate(out), most_ms


def _longest_silence_ms(sound: np.ndarray) -> float:
    loud = np.flatnonzero(np.abs(sound) > 100)
    return float(np.diff(loud).max() * 1000 / RATE_HZ)


def test_blocks_that_come_in_bursts_leave_without_a_gap() -> None:
    sound, most_ms = _sent(5.0, burst_s=0.035)
    steady = sound[RATE_HZ // 2 :]
    assert _longest_silence_ms(steady) < 5
    assert most_ms <= 110


def test_a_fast_sound_card_never_grows_the_line_and_a_slow_one_only_pauses() -> None:
    _, most_ms = _sent(120.0, burst_s=0.0, drift=0.01)
    assert most_ms <= 311
    _, quiet_ms = _sent(120.0, burst_s=0.0, drift=0.01, loud=False)
    assert quiet_ms <= 131
    slow, _ = _sent(60.0, burst_s=0.0, drift=-0.005)
    silent = np.abs(slow[RATE_HZ:]).reshape(-1, FRAME_SAMPLES).max(axis=1) == 0
    assert 2 <= silent.sum() <= 20
