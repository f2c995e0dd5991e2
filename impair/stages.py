"""The stages of a link: what chance does to single packets, what the clock does to all, and a bottleneck's queue."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from impair.chance import Chance, Distribution
from impair.errors import ProfileError
from impair.link import Copy, Step

_UDP_IP_BYTES = 28
"""IPv4 and UDP headers, which a bottleneck carries too."""


def _us(ms: float) -> int:
    return round(ms * 1000)


def _check_rate(name: str, *rates: float) -> None:
    if not all(0 <= rate <= 1 for rate in rates):
        raise ProfileError(f"{name} takes probabilities from 0 to 1, not {', '.join(f'{rate:g}' for rate in rates)}")


def _check_not_negative(name: str, **values: float) -> None:
    for key, value in values.items():
        if not (value >= 0 and math.isfinite(value)):
            raise ProfileError(f"{name} takes a {key} of 0 or more, not {value:g}")


@dataclass(frozen=True, slots=True)
class Delay:
    """The same delay for every packet."""

    delay_ms: float
    may_reorder: ClassVar[bool] = False
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_not_negative("Delay", delay_ms=self.delay_ms)

    def start(self, chance: Chance) -> Step:
        """See Stage; nothing is left to chance."""
        del chance
        delay_us = _us(self.delay_ms)

        def step(copy: Copy, out: list[Copy]) -> None:
            copy.at_us += delay_us
            out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class Jitter:
    """A delay of its own for every packet; without `reorder` none overtakes another of its kind."""

    model: Distribution
    reorder: bool = True
    needs_order: ClassVar[bool] = False

    @property
    def may_reorder(self) -> bool:
        """As set."""
        return self.reorder

    def start(self, chance: Chance) -> Step:
        """See Stage."""
        sample_ms = self.model.sample_ms
        latest_us: dict[int, int] = {}
        keep_order = not self.reorder

        def step(copy: Copy, out: list[Copy]) -> None:
            copy.at_us += _us(sample_ms(chance.stream(copy.kind)))
            if keep_order:
                copy.at_us = latest_us[copy.kind] = max(copy.at_us, latest_us.get(copy.kind, copy.at_us))
            out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class Loss:
    """Independent loss."""

    rate: float
    may_reorder: ClassVar[bool] = False
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_rate("Loss", self.rate)

    def start(self, chance: Chance) -> Step:
        """See Stage."""
        rate = self.rate

        def step(copy: Copy, out: list[Copy]) -> None:
            if chance.stream(copy.kind)() >= rate:
                out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class GilbertElliott:
    """Loss in bursts: each packet first moves the state (good to bad with `p`, back with `r`), then meets its loss.

    Starts good. With the default losses it is Gilbert's model: one draw a packet, lost = bad, mean burst 1/r.
    """

    p: float
    r: float
    loss_good: float = 0.0
    loss_bad: float = 1.0
    may_reorder: ClassVar[bool] = False
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_rate("GilbertElliott", self.p, self.r, self.loss_good, self.loss_bad)

    @classmethod
    def of(cls, *, loss: float, mean_burst: float) -> GilbertElliott:
        """Gilbert's model by the fraction lost and the mean burst in packets: r = 1/burst, p = loss·r/(1−loss)."""
        if not (0 <= loss < 1 and mean_burst >= 1):
            raise ProfileError(
                f"a burst loss needs 0 <= loss < 1 and bursts of 1 or more, not {loss:g}, {mean_burst:g}"
            )
        r = 1 / mean_burst
        return cls(p=min(1.0, loss * r / (1 - loss)), r=r)

    def start(self, chance: Chance) -> Step:
        """See Stage."""
        bad_kinds: set[int] = set()
        p, r, loss_good, loss_bad = self.p, self.r, self.loss_good, self.loss_bad

        def step(copy: Copy, out: list[Copy]) -> None:
            draw = chance.stream(copy.kind)
            if copy.kind in bad_kinds:
                if draw() < r:
                    bad_kinds.discard(copy.kind)
            elif draw() < p:
                bad_kinds.add(copy.kind)
            loss = loss_bad if copy.kind in bad_kinds else loss_good
            if loss == 0.0 or (loss < 1.0 and draw() >= loss):
                out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Some packets come twice, the second copy up to `spread_ms` later."""

    rate: float
    spread_ms: float = 10.0
    may_reorder: ClassVar[bool] = True
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_rate("Duplicate", self.rate)
        _check_not_negative("Duplicate", spread_ms=self.spread_ms)

    def start(self, chance: Chance) -> Step:
        """See Stage."""
        rate, spread_ms = self.rate, self.spread_ms

        def step(copy: Copy, out: list[Copy]) -> None:
            draw = chance.stream(copy.kind)
            out.append(copy)
            if draw() < rate:
                out.append(Copy(copy.at_us + _us(spread_ms * draw()), copy.size_bytes, copy.kind, copy.flips))

        return step


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Some packets have one bit flipped (UDP checksums would drop them; broken middleboxes do not)."""

    rate: float
    may_reorder: ClassVar[bool] = False
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_rate("Corrupt", self.rate)

    def start(self, chance: Chance) -> Step:
        """See Stage."""
        rate = self.rate

        def step(copy: Copy, out: list[Copy]) -> None:
            draw = chance.stream(copy.kind)
            if draw() < rate and copy.size_bytes:
                copy.flips = (*copy.flips, int(draw() * copy.size_bytes * 8))
            out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class RateQueue:
    """A bottleneck of this rate with a drop-tail queue of `queue_ms` at that rate, headers counted in."""

    bits_per_second: float
    queue_ms: float
    may_reorder: ClassVar[bool] = False
    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.bits_per_second > 0:
            raise ProfileError(f"RateQueue needs a rate above 0 bit/s, not {self.bits_per_second:g}")
        _check_not_negative("RateQueue", queue_ms=self.queue_ms)

    def start(self, chance: Chance) -> Step:
        """See Stage; nothing is left to chance."""
        del chance
        us_per_byte = 8e6 / self.bits_per_second
        queue_us = _us(self.queue_ms)
        free_us = 0

        def step(copy: Copy, out: list[Copy]) -> None:
            nonlocal free_us
            begin_us = max(copy.at_us, free_us)
            if begin_us - copy.at_us > queue_us:
                return
            free_us = begin_us + round((copy.size_bytes + _UDP_IP_BYTES) * us_per_byte)
            copy.at_us = free_us
            out.append(copy)

        return step
