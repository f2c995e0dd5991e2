"""Seeded chance: named streams of draws, and the distributions jitter is drawn from.

Everything is built on `random.Random.random()`, whose sequence Python keeps for a seed across versions, and on
inversion, so that a seed means the same network everywhere; delays are rounded to whole microseconds by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Protocol

from impair.errors import ProfileError

Uniform01 = Callable[[], float]

CLOCK = -1
"""The stream of draws that belong to the passing of time and not to packets of a kind."""


class Chance:
    """One stage's draws: an independent stream for each kind of packet, all set by one seed text."""

    __slots__ = ("_seed", "_streams")

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._streams: dict[int, Uniform01] = {}

    def stream(self, kind: int) -> Uniform01:
        """The draws in [0, 1) of this kind of packet, begun when first asked for."""
        draw = self._streams.get(kind)
        if draw is None:
            draw = self._streams[kind] = Random(f"{self._seed}/{kind}").random
        return draw


class Distribution(Protocol):
    """A non-negative extra delay in ms, drawn with the uniform numbers it is handed."""

    def sample_ms(self, draw: Uniform01) -> float:
        """One delay in ms."""
        ...

    @property
    def reach_ms(self) -> float:
        """A delay that (almost) no draw exceeds, in ms: what a memory of arrivals must span."""
        ...


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ProfileError(message)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma-distributed delay of this mean; whole shapes are sums of exponentials (Erlang), drawn by inversion."""

    mean_ms: float
    shape: int = 2

    def __post_init__(self) -> None:
        _require(self.mean_ms >= 0, f"a gamma jitter needs a mean of 0 ms or more, not {self.mean_ms:g}")
        _require(
            self.shape >= 1 and self.shape == int(self.shape), f"a gamma jitter needs a whole shape, not {self.shape}"
        )

    def sample_ms(self, draw: Uniform01) -> float:
        """One delay in ms."""
        total = 0.0
        for _ in range(self.shape):
            total -= math.log(1.0 - draw())
        return self.mean_ms / self.shape * total

    @property
    def reach_ms(self) -> float:
        """Twenty standard deviations and more."""
        return self.mean_ms * (1 + 20 / math.sqrt(self.shape))


@dataclass(frozen=True, slots=True)
class TruncatedNormal:
    """Normal delay cut off at ± `cut` standard deviations and at 0, as RFC 8868 §4.5.1 has it (3 deviations)."""

    mean_ms: float
    sd_ms: float
    cut: float = 3.0

    def __post_init__(self) -> None:
        _require(
            self.sd_ms >= 0 and self.cut > 0, "a normal jitter needs a deviation of 0 ms or more and a cut above 0"
        )
        _require(self.mean_ms >= 0, f"a normal jitter needs a mean of 0 ms or more, not {self.mean_ms:g}")

    def sample_ms(self, draw: Uniform01) -> float:
        """One delay in ms, by inversion within the cut."""
        if self.sd_ms == 0:
            return self.mean_ms
        edge = _STANDARD.cdf(-self.cut)
        level = edge + (1.0 - 2.0 * edge) * draw()
        return max(0.0, self.mean_ms + self.sd_ms * _STANDARD.inv_cdf(min(max(level, 1e-12), 1 - 1e-12)))

    @property
    def reach_ms(self) -> float:
        """The cut itself."""
        return self.mean_ms + self.cut * self.sd_ms


@dataclass(frozen=True, slots=True)
class Weibull:
    """Weibull delay, the best fit to measured VoIP delay (Sun and Ifeachor 2006); shape below 1 has the long tail."""

    scale_ms: float
    shape: float

    def __post_init__(self) -> None:
        _require(
            self.scale_ms >= 0 and self.shape > 0, "a Weibull jitter needs a scale of 0 ms or more, a shape above 0"
        )

    def sample_ms(self, draw: Uniform01) -> float:
        """One delay in ms."""
        return float(self.scale_ms * (-math.log(1.0 - draw())) ** (1.0 / self.shape))

    @property
    def reach_ms(self) -> float:
        """Exceeded once in e^20 draws."""
        return float(self.scale_ms * 20 ** (1.0 / self.shape))


@dataclass(frozen=True, slots=True)
class UniformJitter:
    """Any delay between two bounds alike."""

    low_ms: float
    high_ms: float

    def __post_init__(self) -> None:
        _require(
            0 <= self.low_ms <= self.high_ms,
            f"a uniform jitter needs 0 <= low <= high, not {self.low_ms:g}, {self.high_ms:g}",
        )

    def sample_ms(self, draw: Uniform01) -> float:
        """One delay in ms."""
        return self.low_ms + (self.high_ms - self.low_ms) * draw()

    @property
    def reach_ms(self) -> float:
        """The upper bound."""
        return self.high_ms


_STANDARD = NormalDist()
