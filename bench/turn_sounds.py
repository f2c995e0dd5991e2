"""What callers say in the turn benchmark, and what they put over a reply: words, listening sounds, coughs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from peer.engines.base import LISTEN_RATE_HZ, Samples

_SETS: Final = Path(__file__).parent / "sets"

INTERRUPTIONS: Final = (
    "Stop, please.",
    "Wait, I have another question.",
    "No, that is not what I meant.",
    "Hold on a second.",
    "Actually, tell me about something else.",
    "Excuse me, can I ask you something?",
    "Sorry, but I wanted to know the time.",
    "Never mind, let us talk about music.",
    "What about the weather tomorrow?",
    "Can you speak a little slower?",
)
BACKCHANNELS: Final = (
    "Yeah.",
    "Okay.",
    "Right.",
    "Uh huh.",
    "I see.",
    "Yes.",
    "Oh yeah.",
    "Sure.",
    "Oh.",
    "Wow.",
)
"""The synthetic voice cannot hum: it spells "mhm" out, letter by letter. With a
comma it makes a pause: "oh, okay" takes it 0.8 s."""


def read_set(name: str) -> list[str]:
    """Return the lines of a set; its comments are left out."""
    lines = (_SETS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def make_cough(rng: np.random.Generator) -> Samples:
    """Return a cough, a knock or a door from shaped noise: one to three bursts of 40 to 160 ms, int16 at 16 kHz."""
    bursts = []
    for _ in range(int(rng.integers(1, 4))):
        count = int(rng.uniform(0.04, 0.16) * LISTEN_RATE_HZ)
        noise = rng.normal(0, 1, count)
        width = int(rng.integers(2, 24))
        shaped = np.convolve(noise, np.ones(width) / np.sqrt(width), mode="same")
        envelope = np.minimum(1, np.arange(count) / 80) * np.exp(-np.arange(count) / (count / 3))
        bursts += [shaped * envelope * rng.uniform(2500, 7000), np.zeros(int(rng.uniform(0.03, 0.12) * LISTEN_RATE_HZ))]
    return np.asarray(np.clip(np.concatenate(bursts), -32768, 32767), np.int16)
