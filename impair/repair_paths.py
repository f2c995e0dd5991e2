"""Paths that repair is measured on: each names what is lost and how long the round trip is, without anything else."""

from __future__ import annotations

from impair.chance import Gamma
from impair.link import Stage
from impair.profile import Profile, symmetric
from impair.stages import Delay, GilbertElliott, Jitter, Loss

_SOURCE = "this project's measurement of repair (docs/control.md)"


def _path(name: str, summary: str, *stages: Stage, rtt_ms: float) -> Profile:
    way = Delay(rtt_ms / 2)
    return symmetric(name, f"{summary}; round trip {rtt_ms:g} ms", _SOURCE, *stages, way, base=(way,))


def _jittered(name: str, summary: str, *stages: Stage, jitter_ms: float, rtt_ms: float) -> Profile:
    way = Delay(rtt_ms / 2)
    text = f"{summary}, jitter of {jitter_ms:g} ms mean; round trip {rtt_ms:g} ms"
    return symmetric(name, text, _SOURCE, *stages, way, Jitter(Gamma(jitter_ms)), base=(way,))


REPAIR_PATHS: tuple[Profile, ...] = (
    _path("loss10", "10 % independent loss", Loss(0.10), rtt_ms=60),
    _path("burst20x2", "20 % loss in bursts of 2", GilbertElliott.of(loss=0.20, mean_burst=2), rtt_ms=100),
    _jittered(
        "burst10x2_jitter20", "10 % loss in bursts of 2", GilbertElliott.of(loss=0.10, mean_burst=2),
        jitter_ms=20, rtt_ms=60,
    ),
    *(_path(f"rtt{rtt}_loss5", "5 % independent loss", Loss(0.05), rtt_ms=rtt) for rtt in (20, 40, 60, 150, 200)),
    *(_path(f"rtt{rtt}", "nothing but delay", rtt_ms=rtt) for rtt in (40, 50, 150, 200)),
    _path("rtt40_loss10", "10 % independent loss", Loss(0.10), rtt_ms=40),
)  # fmt: skip
